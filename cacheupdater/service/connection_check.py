"""Tries everything that an updater needs, once: queue, cache, databases, loaders. For `cacheupdater check --connect`.

`contact` builds the components of a service and tries each of them once, all servers at the same time, each within its own
time limit. This costs little and leaves nothing behind. Each statement loads one key that does not exist. A user's loader is
imported and called with an empty list. Redis gets one key per namespace, which is removed at once.

An error that a driver calls unavailable may be a wrong password. A running updater waits until somebody corrects it, but here
a person waits for the result. So the words of the servers decide whether a person must act.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from cacheupdater.adapters.loader_python import PythonLoader
from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.core.answers import FINISHING
from cacheupdater.depot_ports import Progress
from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable
from cacheupdater.pipeline.untold import UNTOLD
from cacheupdater.ports import Entry
from cacheupdater.service.components import Components
from cacheupdater.service.feed_check import feeds
from cacheupdater.service.findings import NOBODY, REFUSED, Finding, State, plain, trouble
from cacheupdater.service.side_by_side import side_by_side
from cacheupdater_client.protocol.lease import Grace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.config.models import NamespaceSection
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.config.settings import Config
    from cacheupdater.depot_ports import Depot
    from cacheupdater.ports import Loader, Value, Writer
    from cacheupdater_client.protocol.patterns import Capture, Pattern

CACHE_S = 15.0  # seconds for the writes of all namespaces; each takes a millisecond
SOURCE_S = 30.0  # seconds for the statements of one source, one after the other, each within its own timeout
IMPORT_S = 15.0  # seconds for a user's module, which may import many others
QUEUE_S = 15.0  # seconds for a depot, which takes milliseconds
JOIN_S = 2.0  # seconds: a check that dies meanwhile holds up no takeover for longer
TTL_MS = 5_000  # of the key that is written as a trial, in case this process ends before the key is removed


async def contact(config: Config) -> Sequence[Finding]:
    """Tries everything once; the findings are in the order of the configuration.

    Slow imports and builds come first, then all servers at the same time.
    """
    namespaces = config.namespaces.values()
    async with AsyncExitStack() as stack:
        components = Components(config, stack)
        imported = await asyncio.gather(
            *(
                _python(each, each.load.python, deadline=config.sources[each.load.source].statement_timeout)
                for each in namespaces
                if each.load.python and each.name not in config.declared
            )
        )
        asked = [each for each in namespaces if not each.load.python or each.name in config.declared]
        built = {each.name: _built(each, components) for each in asked}
        visits = [_queue(config.queue), _cache(config, components), feeds(config, components)]
        for name in config.sources:
            its = [each for each in asked if each.load.source == name]
            visits += [_source(name, its, built)] if its else []
        visited = await asyncio.gather(*visits)
        found = [finding for each in (*visited, imported) for finding in each]
        return [*found, *await _values(config, components, found)]


async def _values(config: Config, components: Components, found: Sequence[Finding]) -> Sequence[Finding]:
    """Compares the values in Redis with the values that would be written, for namespaces where both can be read."""
    if not any(each.part == "cache" and each.state == "ok" for each in found):
        return []
    names = [each.name for each in found if each.part == "load" and each.state == "ok"]
    said = await side_by_side(config, components, names)
    return [Finding("values", name, state, plain(what)) for name, state, what in said]


def _built(namespace: NamespaceSection, components: Components) -> Loader | Finding:
    """The namespace's loader, or why there is none.

    A driver may take half a second to import. It is imported here, so that the time does not count against a server.
    """
    try:
        return components.recipe(namespace.name).loader
    except CacheUpdaterError as e:
        return trouble("load", namespace.name, e)


async def _queue(queue: QueueConfig) -> Sequence[Finding]:
    """The findings about the queue. This visit runs first, so that its import is over before other visits are timed."""
    if isinstance(queue, StreamsQueueConfig):
        return [await _streams(queue)]
    if isinstance(queue, SqlQueueConfig):
        return [await _sql(queue)]
    if not isinstance(queue, KafkaQueueConfig):
        return [Finding("queue", "", "ok", "in this process: there is nothing to contact")]
    from cacheupdater.adapters import topic_kafka  # noqa: PLC0415  aiokafka is an extra

    try:
        topic = await topic_kafka.inspect(queue.address, queue.group)
    except CacheUpdaterError as e:
        return [trouble("queue", "", e)]
    said: Sequence[tuple[State, Sequence[str]]] = (
        ("wrong", topic.wrong),
        ("away", topic.away),
        ("note", topic.notes),
    )
    found = [Finding("queue", "", state, plain(each)) for state, all_of_it in said for each in all_of_it]
    works = not (topic.wrong or topic.away)
    may = f"; group {queue.group} may read it" if works else ""
    return [
        Finding("queue", "", "ok" if works else "note", f"topic {queue.address.topic}: {topic}{may}"),
        *found,
    ]


_NO_PROGRESS = Progress(epoch=-1, scan=0, done=0)  # no epoch is negative: such a commit changes nothing


async def _streams(queue: StreamsQueueConfig) -> Finding:
    from cacheupdater.adapters.depot_redis import RedisDepot  # noqa: PLC0415  not for other queues

    try:
        return await _joined(RedisDepot(queue.address, observer=UNTOLD, notices=UNTOLD), queue)
    except CacheUpdaterError as e:  # an option of the URL
        return trouble("queue", "", e)


async def _sql(queue: SqlQueueConfig) -> Finding:
    from cacheupdater.adapters.depot_sql import depot_at  # noqa: PLC0415  not for other queues

    try:
        return await _joined(depot_at(queue.address), queue)
    except CacheUpdaterError as e:  # a driver or a file is missing
        return trouble("queue", "", e)


async def _joined(depot: Depot, queue: StreamsQueueConfig | SqlQueueConfig) -> Finding:
    """Does what a starting updater does: it compares the number of partitions, joins for a moment, and leaves."""
    name = f"check-{uuid4().hex}"
    try:
        async with asyncio.timeout(QUEUE_S):
            partitions = await depot.open()
            await depot.renew(name, JOIN_S)
            await depot.read({0: 0}, 1)
            await depot.commit(name, {0: _NO_PROGRESS})
            await depot.leave(name)
    except TimeoutError:
        return Finding("queue", "", "away", f"{queue.address}: no answer within {QUEUE_S:g} s")
    except CacheUpdaterError as e:
        return trouble("queue", "", e)
    finally:
        await depot.close()
    return Finding("queue", "", "ok", f"{queue.address}: {partitions} partitions; this updater may read them")


async def _cache(config: Config, components: Components) -> Sequence[Finding]:
    """Takes a token, and writes and removes one key of each namespace: an ACL may allow some keys and commands only."""
    try:
        writer = components.writer()
        await writer.token()
    except CacheUpdaterError as e:
        return [trouble("cache", "", e)]
    found: list[Finding] = []
    try:
        async with asyncio.timeout(CACHE_S):
            for namespace in config.namespaces.values():
                refused = await _written(writer, namespace)
                found += [refused] if refused else []
    except TimeoutError:
        found.append(Finding("cache", "", "away", f"not all namespaces were tried within {CACHE_S:g} s"))
    return found or [
        Finding("cache", "", "ok", "answers, and its scripts may write the keys of every namespace")
    ]


async def _written(writer: Writer, namespace: NamespaceSection) -> Finding | None:
    """Why a write failed, or None.

    The floor of the key stays for about a minute: it forbids the trial's own write, if Redis runs that late.
    """
    key = namespace.pattern.format(_nobody(namespace.pattern))
    value: Value = {b"check": b"1"} if namespace.value.encoding == "hash" else b"1"
    try:
        [answer] = await writer.write(await writer.token(), [Entry(key, value, TTL_MS)])
        if namespace.fail_safe:
            await writer.prolong([key], Grace(ttl_ms=2 * TTL_MS, fail_safe_ms=0))
        [removal] = await writer.invalidate([key])
    except CacheUpdaterError as e:
        return trouble("cache", namespace.name, e)
    if answer.result in FINISHING:
        answer = removal
    if answer.result in FINISHING:
        return None
    return trouble(
        "cache", namespace.name, Unavailable(f"a trial write ended as {answer.result.value}: {answer.why}")
    )


async def _source(
    name: str, namespaces: Sequence[NamespaceSection], built: Mapping[str, Loader | Finding]
) -> Sequence[Finding]:
    """Judges the source by its first statement, then tries the other statements one by one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SOURCE_S
    found: list[Finding] = []
    answers = False
    for at, namespace in enumerate(namespaces):
        loader = built[namespace.name]
        if isinstance(loader, Finding):
            found.append(loader)
            continue
        one = await _loaded(namespace, loader)
        left = len(namespaces) - at - 1
        if not answers and (one.state == "away" or REFUSED.search(one.what)):
            rest = f"; {left} more of its statements were not tried" if left else ""
            return [Finding("source", name, one.state, f"{namespace.name}: {one.what}{rest}"), *found]
        answers = True
        found.append(one)
        if left and loop.time() > deadline:
            what = f"{left} of its statements were not tried within {SOURCE_S:g} s"
            return [Finding("source", name, "away", what), *found]
    return [Finding("source", name, "ok", "answers"), *found] if answers else found


async def _loaded(namespace: NamespaceSection, loader: Loader) -> Finding:
    """Loads one key that does not exist. This costs no more than the smallest unit of an updater."""
    try:
        await loader.load([_nobody(namespace.pattern)])
    except CacheUpdaterError as e:
        return trouble("load", namespace.name, e)
    return Finding(
        "load", namespace.name, "ok", "its loader answers" if namespace.load.python else "its statement runs"
    )


async def _python(namespace: NamespaceSection, function: str, *, deadline: float) -> Finding:
    """Imports the function and calls it with an empty list: most things that it lacks show in this call."""
    made: list[PythonLoader] = []
    try:
        await _in_thread(lambda: made.append(PythonLoader(function, namespace.pattern, deadline=deadline)))
    except TimeoutError:
        what = f"{function} was not imported within {IMPORT_S:g} s: what does its module do at import?"
        return Finding("load", namespace.name, "wrong", what)
    except CacheUpdaterError as e:
        return trouble("load", namespace.name, e)
    try:
        await made[0].try_out()
    except CacheUpdaterError as e:
        said = trouble("load", namespace.name, e)
        return said._replace(what=f"called with an empty list, {said.what}")
    finally:
        await made[0].close()
    return Finding("load", namespace.name, "ok", f"{function} answers an empty list")


async def _in_thread(work: Callable[[], object]) -> None:
    """Runs the work in a daemon thread. An import that hangs in an executor's thread would hold up the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():  # else the wait has timed out
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error: CacheUpdaterError | None = None
        try:
            work()
        except CacheUpdaterError as e:
            error = e
        except BaseException as e:  # noqa: BLE001  a module that calls sys.exit must not end the thread silently
            error = Misconfigured(f"the module ends its thread by {type(e).__name__} when it is imported")
        with suppress(RuntimeError):  # the loop has ended before the import did
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="import", daemon=True).start()
    async with asyncio.timeout(IMPORT_S):
        await done


def _nobody(pattern: Pattern) -> tuple[Capture, ...]:
    """The captures of a key of this pattern that no application has."""
    return tuple(NOBODY[kind] for kind in pattern.types)
