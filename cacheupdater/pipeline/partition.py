"""One owned partition: an engine, and the tasks that do what it decides.

The supervisor makes a `Partition` when this process gains the partition. It runs `execute` until the partition is lost, and
then calls `hand_over`, within the time that the queue allows. All decisions are the engine's; this module does the waiting
and the I/O, and handles the errors of the I/O. Everything that belongs to an epoch ends with this object.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from cacheupdater.core.answers import BRAKED, Answer, Result, plain
from cacheupdater.core.outcomes import Failure, Load
from cacheupdater.core.unit import Phase, Unit
from cacheupdater.errors import CacheUpdaterError, Faulty, TimedOut, Unavailable, Unpaid, Unreached
from cacheupdater.pipeline.commit import Committer
from cacheupdater.pipeline.intake import take_in
from cacheupdater.pipeline.load import load
from cacheupdater.pipeline.prolong import prolong
from cacheupdater.pipeline.put_back import Returner
from cacheupdater.pipeline.remove import remove
from cacheupdater.pipeline.rowless import keeping
from cacheupdater.pipeline.telling import Telling, Turn
from cacheupdater.pipeline.write import matched, prepare, without_value, write
from cacheupdater.ports import PutsBack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence

    from cacheupdater.core.engine import Engine
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.prolonging import Prolongation
    from cacheupdater.core.removals import Invalidation
    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater.ports import Gained, Message

FETCH_PACKS = 4  # in one fetch, at least, however large they are
FETCH_PACKS_MOST = 16  # in one fetch of small packs; `full` is looked at before each fetch only
FEW_PACKS = (
    8  # a fetch of fewer has emptied the queue; a read of a depot with 32 partitions brings so many of each
)
FETCH_BYTES = 96 * 1024  # of packs in one fetch, about
TURN_BYTES = 32 * 1024  # of packs in one turn, in which nothing else runs: 3,000 hints with keys of ten bytes
EFFORT = 1_000  # of one turn (`Engine.effort`): a key that the policy has not met before costs several times as much as others
OTHERS = 4  # rounds of the loop after each turn: a unit hears of an answer of Redis after three
COMMIT_EVERY = 0.1  # seconds; frees the memory queue, and bounds what an idle updater replays after a crash
FULL_PAUSE = 0.025  # seconds until a partition at its cap checks again whether it may read
FETCH_AGAIN = 0.5  # seconds until the next try at a queue that could not be reached
TICK = 0.001  # seconds: uvloop's clock counts milliseconds; a shorter wait would spin until the next one
LONGEST_WAIT = 60.0  # seconds; the engine may have nothing to wait for
REPORT_EVERY = 1.0  # seconds between two reports of totals and levels


class Partition:
    """The life of one owned partition: inaugurate, execute, hand over."""

    def __init__(
        self, gained: Gained, engine: Engine, *, around: Surroundings, wake_all: Callable[[], None]
    ) -> None:
        """`wake_all` wakes every partition: a unit that has ended leaves room at the source, which all partitions share."""
        self.engine = engine
        self.label = str(gained.partition)
        self._around = around
        self._wake_all = wake_all
        self._hear = around.vitals.hear
        self._committer = Committer(around.queue, gained, engine.cursor)
        self._gained = gained
        self._returner = (
            Returner(around.queue, gained, engine, observer=around.observer, wall=around.wall)
            if isinstance(around.queue, PutsBack) and around.queue.takes_back
            else None
        )
        self._woken = asyncio.Event()
        self._stepped = asyncio.Event()
        self._telling = Telling(around, self.label)
        self._turn = Turn(around.observer)
        self._reading: asyncio.Task[None] | None = None
        self._to_tell: list[
            tuple[Sequence[bytes], Sequence[Answer]]
        ] = []  # answers that may hold foreign values
        self._under_way: set[asyncio.Task[None]] = set()

    def wake_up(self) -> None:
        """Something has happened, so the engine may have work to start."""
        self._woken.set()

    def pause(self, namespaces: Collection[Namespace]) -> None:
        """These namespaces are paused from now on, and no others."""
        self.engine.pause(namespaces, asyncio.get_running_loop().time())
        self.wake_up()

    def retry(self, keys: Sequence[bytes]) -> int:
        """These keys leave quarantine and are due now. Returns how many were there."""
        freed = self.engine.retry(keys, asyncio.get_running_loop().time())
        self.wake_up()
        return freed

    async def execute(self) -> None:
        """Runs until it is cancelled, or until `hand_over` has ended its tasks."""
        self.pause(self._around.paused.pauses.keys())
        async with asyncio.TaskGroup() as group:
            self._reading = group.create_task(self._read())
            tasks = [group.create_task(each) for each in (self._work(group), self._commit(), self._report())]
            self._under_way.update(tasks)

    async def hand_over(self, within: float) -> None:
        """Stop reading, finish as much as possible `within` these seconds, commit, and forget the rest."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within
        if self._reading is not None:
            self._reading.cancel()
        self.engine.hasten()
        self.wake_up()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self.engine.pending:  # falls only in a step, or in an event that causes one
                    self._stepped.clear()
                    await self._stepped.wait()
        for task in self._under_way:
            task.cancel()
        self._telling.left(self.engine, clock())
        self.engine.leave()
        with suppress(Unavailable):  # the next owner reads again what is not committed
            await self._committer.commit()

    # --- tasks ------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        clock, packs = asyncio.get_running_loop().time, FETCH_PACKS
        while True:
            if self.engine.full:
                self._telling.held_up()
                await asyncio.sleep(FULL_PAUSE)
                continue
            try:
                messages = await self._fetch(packs)
            except Unavailable as e:
                self._telling.unread(e)
                await asyncio.sleep(FETCH_AGAIN)
                continue
            self._telling.read()
            if messages is None:
                continue
            if not messages:
                return
            unread, caught_up = deque(messages), len(messages) < min(packs, FEW_PACKS)
            packs = _as_many_as(messages)
            while unread:
                if self._returner:
                    await self._returner.at_rest.wait()
                with self._turn:
                    self._take_in(_of_one_turn(unread, self.engine), clock(), caught_up=caught_up)
                self.wake_up()
                for _ in range(OTHERS):
                    await asyncio.sleep(0)  # a queue that always has something must not starve the others

    async def _fetch(self, packs: int) -> Sequence[Message] | None:
        """The next messages, or None if only held peers have sent any."""
        held, queue = self.engine.held, self._around.queue
        if not held:
            return await queue.fetch(self._gained.partition, packs)
        self._telling.held_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(FULL_PAUSE):
                return await queue.fetch(self._gained.partition, packs, held)
        return None

    def _take_in(self, messages: Iterable[Message], now: float, *, caught_up: bool) -> None:
        around, late = self._around, None
        if around.sieve:
            late = partial(around.sieve.late, caught_up=caught_up)
        take_in(self.engine, messages, now, observer=around.observer, hear=self._hear, late=late)
        around.judging.awaited(self.engine.awaited)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._woken.clear()
            with self._turn:
                units, invalidation, prolongation, wake = self.engine.step(clock())
            self._stepped.set()
            for unit in units:
                refresh = self._start(group, self._refresh(unit))
                refresh.add_done_callback(partial(self._give_back, unit))
            if invalidation is not None:
                self._start(group, self._invalidate(invalidation))
            if prolongation is not None:
                self._start(group, self._prolong(prolongation))
            to_tell, self._to_tell = self._to_tell, []
            for keys, answers in to_tell:
                self._start(group, self._tell_foreign(keys, answers))
            await self._wait(wake)

    async def _wait(self, until: float) -> None:
        """Waits for `wake_up`, which a timer calls at `until`. It raises no timeout, for that would cost time at every unit."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(max(TICK, until - loop.time()), LONGEST_WAIT), self.wake_up)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = group.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _give_back(self, unit: Unit, task: asyncio.Task[None]) -> None:
        """Frees the slot of a refresh that was cut off: the engine has not heard of its end, and others share the source."""
        if task.cancelled():
            self.engine.on_cut_off(unit, asyncio.get_running_loop().time())
            self._wake_all()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY)
            try:
                await self._committer.commit()
            except Unavailable as e:
                self._telling.uncommitted(e)
            else:
                self._telling.committed()
                if self._returner:
                    await self._returner.put_back()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._telling.totals(self.engine, asyncio.get_running_loop().time())

    # --- work -------------------------------------------------------------------------------------------

    async def _refresh(self, unit: Unit) -> None:
        """Token, load, write. However the refresh ends, the engine hears of it."""
        clock, seen = asyncio.get_running_loop().time, Load()
        began, keys = clock(), unit.keys
        try:
            await self._load_and_write(unit, seen)
        except (Unavailable, Faulty) as e:
            self._telling.failed(unit, e, seen)
            at_source = seen.stage == "load" and not isinstance(e, Unpaid)
            failure = Failure(
                str(e), own=isinstance(e, Faulty), slow=isinstance(e, TimedOut), at_source=at_source
            )
            seen.asked = seen.stage != "token" and not isinstance(e, Unreached)
            self._around.recent.failed(keys, str(e), clock(), clock() - began)
            self.engine.on_failure(unit, failure, clock(), load=seen)
        except Exception as e:  # noqa: BLE001  a fault of ours or of a loader must not stop the other keys; it is reported
            self._telling.surprised(unit, e)
            self._around.recent.failed(keys, type(e).__name__, clock(), clock() - began)
            failure = Failure(repr(e), own=True, at_source=seen.stage == "load")
            self.engine.on_failure(unit, failure, clock(), load=seen)
        self._wake_all()

    async def _load_and_write(self, unit: Unit, seen: Load) -> None:
        around, name = self._around, unit.namespace.name
        recipe = around.recipes[unit.namespace]
        keys, captures = unit.keys, unit.captures  # an eviction empties the unit while we wait
        clock = asyncio.get_running_loop().time
        began = clock()
        judging = around.judging
        found_there = await judging.look(unit.namespace, recipe, keys, clock())
        if isinstance(found_there, Answer):
            answers: Sequence[Answer] = [found_there] * len(keys)
            around.recent.answered(keys, answers, clock(), clock() - began)
            self.engine.on_unasked(unit, answers, clock())
            return
        token = await recipe.writer.token(keys)
        leaves = partial(self._leave, unit)
        values = await load(
            recipe, captures, namespace=name, observer=around.observer, seen=seen, leaves=leaves
        )
        self._telling.loaded(unit, clock())
        found = matched(captures, values)
        absent = [] if all(found) else [k for k, value in zip(keys, found, strict=True) if value is None]
        self.engine.on_absent(unit, absent, clock())
        suspects = self.engine.suspects(unit, absent)
        valueless = await without_value(recipe, suspects) if suspects else ()
        kept = self.engine.braked(unit, absent, clock(), valueless=valueless)
        rows = dict(zip(keys, found, strict=True)) if judging.is_watched(unit.namespace) else {}
        barred, stay = judging.judge(unit.namespace, recipe, clock(), found=found_there, rows=rows)
        rowless: Sequence[bytes] = ()
        if absent and barred is None and judging.is_open(unit.namespace):
            rowless = await keeping(recipe, absent, frozenset(chain.from_iterable(unit.announced)))
            kept = frozenset(rowless).union(kept or ()) or kept  # None still means that the brake is off
        stay = {**dict.fromkeys(kept or (), BRAKED), **stay}
        prepared = prepare(recipe, keys, found, complete=not absent, stay=stay, lot=around.random())
        if barred is None:
            answers = await write(recipe, token, prepared, namespace=name, observer=around.observer)
            self._telling.answered(unit, answers)
        else:
            answers = [barred] * len(keys)
        if kept is None and not (absent and judging.is_open(unit.namespace)):
            self._telling.believed(unit)
        elif kept and barred is None and unit.phase is Phase.RUNNING:
            self._telling.braked(unit, len(kept), rowless=bool(rowless))
        around.recent.answered(keys, answers, clock(), clock() - began)
        self.engine.on_answers(unit, answers, clock(), absent=absent, load=seen)
        if barred is None and not plain(answers):
            # reported by a task of its own: a look at a slow Redis must not hold up finished keys
            self._to_tell.append((keys, answers))

    def _leave(self, unit: Unit) -> None:
        """The unit's statement is about to leave. Raises Unpaid where it must not leave any more."""
        if not self.engine.on_statement(unit, asyncio.get_running_loop().time()):
            raise Unpaid("the budget that it was paid from has gone to another updater")

    async def _invalidate(self, invalidation: Invalidation) -> None:
        """Ask Redis to remove these keys. Whether Redis removes, refuses or does not answer, the engine hears of it."""
        answers: Sequence[Answer] = ()
        keys = invalidation.keys
        try:
            answers = await remove(self._around, keys, only_ours=invalidation.only_ours)
        except CacheUpdaterError as e:
            self._telling.not_removed(keys, e)
        now = asyncio.get_running_loop().time()
        given_up = self.engine.on_invalidated(invalidation, answers, now)
        if answers:
            self._telling.removed(keys, answers, given_up, now)
        self._wake_all()
        await self._tell_foreign(keys, answers)

    async def _prolong(self, prolongation: Prolongation) -> None:
        """Ask Redis for one more ttl for these values. Whatever it says, the engine hears of it."""
        answers = await prolong(self._around, prolongation, self._telling)
        self.engine.on_prolonged(prolongation, answers, asyncio.get_running_loop().time())
        self.wake_up()

    async def _tell_foreign(self, keys: Sequence[bytes], answers: Sequence[Answer]) -> None:
        """Report the keys that the fence left alone. A namespace without a verdict has its own report, once there is one."""
        around, now = self._around, asyncio.get_running_loop().time()
        found = [key for key, each in zip(keys, answers, strict=False) if each.result is Result.FOREIGN]
        for namespace, known in around.keyspace.resolve_many(found)[0].items() if found else ():
            if not around.judging.is_open(namespace):
                await around.foreign.found(namespace.name, around.recipes[namespace], known, now)


def _as_many_as(messages: Sequence[Message]) -> int:
    """How many packs of this size the next fetch takes. Each fetch has a cost of its own, so it takes more of small ones."""
    size = sum(len(each.payload) for each in messages) // len(messages)
    return min(max(FETCH_PACKS, FETCH_BYTES // max(1, size)), FETCH_PACKS_MOST)


def _of_one_turn(unread: deque[Message], engine: Engine) -> Iterator[Message]:
    """The next messages, as long as the turn has room. The engine takes in each before the next, so `effort` counts each already."""
    room, before = TURN_BYTES, engine.effort
    while unread and room > 0 and engine.effort - before <= EFFORT:
        message = unread.popleft()
        room -= len(message.payload)
        yield message
