"""The composition root of `cacheupdater record`: the configured addresses and sources, and no component that refreshes.

`record` listens on the updater's addresses for the given time, and returns a recording of the reads and of a sample of
changes. It never uses Redis. It loads from a source only for the sample (`recording.watch`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.config.addresses import MemoryAddress
from cacheupdater.config.queues import MemoryQueueConfig
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.words import counted
from cacheupdater.errors import Misconfigured
from cacheupdater.recording.recorder import Recorder
from cacheupdater.recording.recording import Recording, Space
from cacheupdater.recording.watch import KEYS_MAX, Watch
from cacheupdater.service.components import Components
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.config.settings import Config
    from cacheupdater.core.namespace import Namespace


async def record(
    config: Config, seconds: float, *, ready: Callable[[str], None], say: Callable[[str], None]
) -> Recording:
    """Calls `ready` once, with the addresses that accept hints. Calls `say` with each thing that the recording lacks."""
    if not isinstance(config.queue, MemoryQueueConfig):
        raise Misconfigured(
            "queue: hints that go through Kafka or a Redis are not recorded; let one application send to a socket for a while, "
            "with queue: {url: memory://} in a configuration for the recording"
        )
    addresses = [str(each) for each in config.listen if not isinstance(each, MemoryAddress)]
    if not addresses:
        raise Misconfigured(
            "listen: a memory:// mailbox is heard by its own process only; add a unix:// address"
        )
    async with AsyncExitStack() as stack:
        components = Components(config, stack)
        namespaces = components.namespaces(asyncio.get_running_loop().time())
        keyspace = Keyspace([(each.pattern, each) for each in namespaces])
        recorder = Recorder(keyspace)
        watches = _watches(config, components, namespaces, recorder)
        hello = wire.Hello(config.queue.partitions, keyspace.prefixes)
        listener = StreamListener(recorder, hello, observer=recorder)
        stack.push_async_callback(listener.close)
        await listener.start(addresses)
        ready(" ".join(listener.addresses))
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(watch.run(seconds))
            await asyncio.sleep(seconds)
    _say_faults(recorder, watches, say)
    by_name = {watch.source.name: watch for watch in watches}
    spaces = [
        _space(each, recorder, by_name[each.source.name], least=config.sources[each.source.name].least_gain)
        for each in namespaces
    ]
    return Recording(seconds, spaces, recorder.dropped)


def _watches(
    config: Config, components: Components, namespaces: Sequence[Namespace], recorder: Recorder
) -> list[Watch]:
    stamps = {each: config.namespaces[each.name].load.stamp for each in namespaces}
    dated = {each for each, stamp in stamps.items() if stamp is not None and stamp.kind == "age"}
    sources = dict.fromkeys(each.source for each in namespaces)
    return [
        Watch(
            source,
            {each: components.recipe(each.name) for each in namespaces if each.source is source},
            dated,
            recorder,
            random.SystemRandom(),
            most=KEYS_MAX // len(sources),
        )
        for source in sources
    ]


def _space(namespace: Namespace, recorder: Recorder, watch: Watch, *, least: float) -> Space:
    terms = namespace.terms
    return Space(
        name=namespace.name,
        source=namespace.source.name,
        worth=terms.worth if terms else 1.0,
        max_age=terms.max_age if terms else None,
        keys=dict(Counter(recorder.reads.get(namespace, {}).values())),
        announced=recorder.announced[namespace],
        milliseconds=watch.milliseconds(namespace),
        sample=watch.sample(namespace),
        least_gain=least,
    )


def _say_faults(recorder: Recorder, watches: Sequence[Watch], say: Callable[[str], None]) -> None:
    if recorder.dropped:
        say(f"left out {counted(recorder.dropped, 'key')} that hardly anybody reads: there was no room")
    if recorder.foreign:
        say(f"left out {counted(recorder.foreign, 'hint')} of keys that belong to no namespace")
    if recorder.rejected:
        say(f"{counted(recorder.rejected, 'pack')} could not be read")
    for watch in watches:
        if watch.failed:
            say(
                f"source {watch.source.name}: {counted(watch.failed, 'key')} of the sample not loaded: {watch.why}"
            )
