"""One owned partition: an engine, and the tasks that do what it decides.

The supervisor makes a `Partition` when ownership is gained, runs `execute` until it is lost, and calls `hand_over`
within the time that the queue allows: exactly what a leader does between election and hand-over. All decisions are
the engine's; here are only waiting, I/O and its errors. Everything of an epoch ends with this object.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from cacheupdater.core.answers import UNCHANGED, WRITTEN, Result
from cacheupdater.core.endings import Failure
from cacheupdater.core.engine import Load
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.unit import Phase, Unit
from cacheupdater.errors import CacheUpdaterError, Faulty, Unavailable
from cacheupdater.pipeline.commit import Committer
from cacheupdater.pipeline.intake import take_in
from cacheupdater.pipeline.load import Seen, load
from cacheupdater.pipeline.sparing import Sparing
from cacheupdater.pipeline.write import matched, prepare, write

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.core.engine import Engine
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.removals import Invalidation
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Gained, Observer, Queue, Writer

log = logging.getLogger(__name__)

FETCH_PACKS = 32  # per turn: at most 32,000 hints, some ten milliseconds in which nothing else runs
COMMIT_EVERY = 0.1  # seconds; frees the memory queue, and is what a crash replays at the most when idle
FULL_PAUSE = 0.1  # seconds until a partition at its cap looks again whether it may read on
FETCH_AGAIN = 0.5  # seconds until a queue that could not be reached is asked again
TICK = 0.001  # seconds: uvloop's clock goes by milliseconds; a shorter wait would spin until the next
LONGEST_WAIT = 60.0  # seconds; the engine may have nothing to wait for
REPORT_EVERY = 1.0  # seconds between two reports of totals and levels
# levels of what this process holds in memory: none once the partition is another's, or its sum over all processes would lie
_OURS: tuple[Metric, ...] = ("pending", "tracked", "quarantined")
INVALIDATE_AGAIN = 0.5  # seconds before a removal that Redis did not acknowledge is asked for again


@dataclass(frozen=True)
class Surroundings:
    """What all partitions of a process share."""

    queue: Queue
    recipes: Mapping[Namespace, Recipe]
    writer: Writer  # for invalidations, whatever the namespace
    observer: Observer
    random: Callable[[], float]
    notices: Notices

    @cached_property
    def keyspace(self) -> Keyspace[Namespace]:
        """Whose keys they are, for what is counted by namespace."""
        return Keyspace([(each.pattern, each) for each in self.recipes])


class Partition:
    """inaugurate, execute, hand over."""

    def __init__(
        self, gained: Gained, engine: Engine, *, around: Surroundings, stir_all: Callable[[], None]
    ) -> None:
        """`stir_all` wakes every partition: a unit that ended made room at a source that they share."""
        self.engine = engine
        self.label = str(gained.partition)
        self._partition = gained.partition
        self._around = around
        self._stir_all = stir_all
        self._committer = Committer(around.queue, gained, engine.cursor)
        self._stirred = asyncio.Event()
        self._stepped = asyncio.Event()
        self._sparing = Sparing()
        self._reading: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def stir(self) -> None:
        """Something happened that the engine may have an answer to."""
        self._stirred.set()

    async def execute(self) -> None:
        """Until cancelled, or until `hand_over` has ended it."""
        async with asyncio.TaskGroup() as group:
            self._reading = group.create_task(self._read())
            tasks = [group.create_task(each) for each in (self._work(group), self._commit(), self._report())]
            self._under_way.update(tasks)

    async def hand_over(self, within: float) -> None:
        """Stop reading, finish what can be finished `within` seconds, commit, forget the rest."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within
        if self._reading is not None:
            self._reading.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self.engine.pending:  # only a step, or what stirs one, makes it less
                    self._stepped.clear()
                    await self._stepped.wait()
        for task in self._under_way:
            task.cancel()
        self._say_totals()
        for metric in _OURS:
            self._around.observer.level(metric, 0, label=self.label)
        self.engine.leave()
        with suppress(Unavailable):  # what is not committed is read again by the next owner
            await self._committer.commit()

    # --- tasks ------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            if self.engine.full:
                await asyncio.sleep(FULL_PAUSE)
                continue
            try:
                messages = await self._around.queue.fetch(self._partition, FETCH_PACKS)
            except Unavailable as e:
                log.warning("reading partition %s failed, will be tried again: %s", self.label, e)
                await asyncio.sleep(FETCH_AGAIN)
                continue
            if not messages:
                return
            take_in(self.engine, messages, clock(), observer=self._around.observer)
            self.stir()
            await asyncio.sleep(0)  # a queue that always has something must not starve the others

    async def _work(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._stirred.clear()
            units, invalidation, wake = self.engine.step(clock())
            self._stepped.set()
            for unit in units:
                refresh = self._start(group, self._refresh(unit))
                refresh.add_done_callback(partial(self._give_back, unit))
            if invalidation is not None:
                self._start(group, self._invalidate(invalidation))
            await self._wait(wake)

    async def _wait(self, until: float) -> None:
        """Until somebody stirs, at the latest we ourselves. No exception ends it: every unit comes by here."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(max(TICK, until - loop.time()), LONGEST_WAIT), self.stir)
        try:
            await self._stirred.wait()
        finally:
            timer.cancel()

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = group.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def _give_back(self, unit: Unit, task: asyncio.Task[None]) -> None:
        """A refresh that was cut off told the engine nothing, and others share its source."""
        if task.cancelled():
            unit.namespace.source.free += 1
            self._stir_all()

    async def _commit(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY)
            try:
                await self._committer.commit()
            except Unavailable as e:
                if self._may_say("", "commit"):
                    log.warning("commit of partition %s failed, will be tried again: %s", self.label, e)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._say_totals()

    # --- work -------------------------------------------------------------------------------------------

    async def _refresh(self, unit: Unit) -> None:
        """token, load, write; and the engine hears how it ended, whatever happened."""
        clock, seen = asyncio.get_running_loop().time, Seen()
        try:
            await self._load_and_write(unit, seen)
        except (Unavailable, Faulty) as e:
            self._say_failure(unit, e)
            failure = Failure(str(e), own=isinstance(e, Faulty))
            self.engine.on_failure(unit, failure, clock(), load=Load(seen.seconds))
        except Exception as e:  # a fault of ours or of a loader must not stop the other keys
            log.exception("refresh of %s failed unexpectedly", unit.namespace.name)
            self.engine.on_failure(unit, Failure(repr(e), own=True), clock(), load=Load(seen.seconds))
        self._stir_all()

    async def _load_and_write(self, unit: Unit, seen: Seen) -> None:
        around, name = self._around, unit.namespace.name
        recipe = around.recipes[unit.namespace]
        keys, captures = unit.keys, unit.captures  # an eviction empties the unit while we wait
        clock = asyncio.get_running_loop().time
        token = await recipe.writer.token(keys)
        self.engine.on_statement(unit, clock())
        values = await load(recipe, captures, namespace=name, observer=around.observer, seen=seen)
        found = matched(captures, values)
        absent = [key for key, value in zip(keys, found, strict=True) if value is None]
        braked = bool(absent) and self.engine.braked(unit, absent, clock())
        prepared = prepare(recipe, keys, found, complete=not absent, keep_absent=braked, lot=around.random())
        answers = await write(recipe, token, prepared, namespace=name, observer=around.observer)
        if answers.count(WRITTEN) + answers.count(UNCHANGED) < len(answers):
            self._say_unwritable(name, answers)
        if braked and unit.phase is Phase.RUNNING and self._may_say(name, "braked"):
            what = "%s: %d of %d rows are suddenly absent; nothing was deleted"
            log.warning(what, name, len(absent), len(keys))
        self.engine.on_answers(unit, answers, clock(), absent=absent, load=Load(seen.seconds, seen.stamps))

    async def _invalidate(self, invalidation: Invalidation) -> None:
        try:
            await self._around.writer.invalidate(invalidation.keys)
        except CacheUpdaterError as e:
            if self._may_say("", "removal"):
                what = "removal of %d changed keys failed, will be tried again: %s"
                log.warning(what, len(invalidation.keys), e)
            refused = isinstance(e, Faulty)
            if not refused or len(invalidation.keys) == 1:
                await asyncio.sleep(INVALIDATE_AGAIN)
            if refused:
                self.engine.on_refused(invalidation)
            else:
                self.engine.on_invalidated(invalidation, done=False)
        else:
            self._count_removals(invalidation.keys)
            self.engine.on_invalidated(invalidation, done=True)
        self._stir_all()

    def _say_failure(self, unit: Unit, error: CacheUpdaterError) -> None:
        reason = "faulty" if isinstance(error, Faulty) else "unavailable"
        self._around.observer.count("errors", 1, label=unit.namespace.name, reason=reason)
        now = asyncio.get_running_loop().time()
        more = self._sparing.repeats((unit.namespace.name, reason), now)
        if more is not None:
            what = "refresh of %d keys of %s failed (and %d units before it): %s"
            log.warning(what, len(unit.keys), unit.namespace.name, more, error)

    def _say_unwritable(self, name: str, answers: Sequence[Answer]) -> None:
        """Keys that their server did not take: counted by the engine, but only here a person learns the reason."""
        bad = [each for each in answers if each.result in {Result.FAILED, Result.WRONG_TYPE}]
        if bad and self._may_say(name, "unwritable"):
            why = bad[0].why or bad[0].result.value
            log.warning("%s: %d of %d values cannot be written: %s", name, len(bad), len(answers), why)
        shut = [each for each in answers if each.result is Result.UNAVAILABLE]
        if shut and self._may_say(name, "unavailable"):
            what = "%s: %d of %d values cannot be written now, will be tried again: %s"
            log.warning(what, name, len(shut), len(answers), shut[0].why)

    def _may_say(self, name: str, what: str) -> bool:
        return self._sparing.repeats((name, what), asyncio.get_running_loop().time()) is not None

    def _count_removals(self, keys: Sequence[bytes]) -> None:
        groups, _ = self._around.keyspace.resolve_many(keys)
        for namespace, known in groups.items():
            self._around.observer.count("invalidations", len(known), label=namespace.name)

    def _say_totals(self) -> None:
        observer, engine = self._around.observer, self.engine
        for (metric, label, reason), amount in engine.tally.drain().items():
            observer.count(metric, amount, label=label, reason=reason)
        for name, seconds in engine.take_ages():
            observer.measure("age_seconds", seconds, label=name)
        levels: tuple[tuple[Metric, int], ...] = (
            ("pending", engine.pending),
            ("tracked", engine.tracked),
            ("quarantined", len(engine.quarantine)),
            ("scan_offset", engine.cursor.scan),
            ("done_offset", engine.cursor.done),
        )
        for metric, level in levels:
            observer.level(metric, level, label=self.label)
