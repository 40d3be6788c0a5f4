"""What a partition reports of its work: counts and levels to the observer, troubles and their ends to the notices.

Each `Partition` makes one `Telling` and calls it after each event. Nothing is decided and nothing waits here. The subject of
a trouble is its cause: a source that does not answer, a namespace whose statement or values are at fault, or Redis.
"""

from __future__ import annotations

import logging
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from cacheupdater.core.answers import FINISHING, UNSOUND, Result, plain
from cacheupdater.core.mending import ROWLESS
from cacheupdater.core.words import counted
from cacheupdater.errors import Faulty, Unpaid
from cacheupdater.pipeline.naming import named
from cacheupdater.pipeline.quarantining import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.core.engine import Engine
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.outcomes import Load
    from cacheupdater.core.unit import Unit
    from cacheupdater.errors import CacheUpdaterError
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

# levels of a partition: they end once another updater owns it, or their sums and offsets over all processes would be wrong
_OURS: tuple[Metric, ...] = (
    "pending",
    "tracked",
    "oldest_open_seconds",
    "quarantined",
    "slow_keys",
    "removals_waiting",
    "scan_offset",
    "done_offset",
)
_ANSWERED = frozenset(
    {Result.FAILED, Result.FOREIGN, Result.SPARED}
)  # Redis was up; this key stays as it was


class Turn:
    """Measures an intake or a step, during which nothing else can run: its seconds by the clock, and of the processor."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._began = self._cpu = 0.0

    def __enter__(self) -> None:
        self._began, self._cpu = perf_counter(), thread_time()

    def __exit__(self, *_: object) -> None:
        self._observer.measure("turn_seconds", perf_counter() - self._began)
        self._observer.measure("turn_cpu_seconds", thread_time() - self._cpu)


class Telling:
    """The reports of one partition."""

    def __init__(self, around: Surroundings, label: str) -> None:
        self._around = around
        self._label = label
        self._quarantined: set[bytes] = set()  # keys that the log has named
        self._held_up = False  # whether reading has paused since the last look

    @property
    def _notices(self) -> Notices:
        return self._around.notices

    @property
    def _observer(self) -> Observer:
        return self._around.observer

    # --- reading and committing -------------------------------------------------------------------------

    def unread(self, error: CacheUpdaterError) -> None:
        """The queue could not be read."""
        self._notices.trouble("fetch_failed", self._label, f"reading will be tried again: {error}")

    def read(self) -> None:
        """The queue has been read."""
        self._notices.over("fetch_failed", self._label)

    def held_up(self) -> None:
        """The queue is not read for now, or not for some senders: too much is open."""
        self._held_up = True

    def uncommitted(self, error: CacheUpdaterError) -> None:
        """A commit has failed."""
        self._notices.trouble("commit_failed", self._label, f"the commit will be tried again: {error}")

    def committed(self) -> None:
        """A commit has succeeded."""
        self._notices.over("commit_failed", self._label)

    # --- refreshing -------------------------------------------------------------------------------------

    def failed(self, unit: Unit, error: CacheUpdaterError, seen: Load) -> None:
        """The unit's keys were not refreshed; the engine tries again."""
        faulty, name, keys = isinstance(error, Faulty), unit.namespace.name, len(unit.keys)
        reason = "faulty" if faulty else "unavailable"
        self._observer.count("errors", 1, label=name, reason=reason)
        if isinstance(error, Unpaid):
            return  # no trouble: the budget went to another updater, and the keys are tried again
        if seen.stage == "load":
            text = f"{counted(keys, 'key')} of {name} not loaded: {error}"
            if faulty:
                self._notices.trouble("load_refused", name, text, keys=keys)
            else:
                self._notices.trouble("load_failed", unit.namespace.source.name, text, keys=keys)
        elif faulty:
            self._notices.trouble(
                "write_failed", name, f"{counted(keys, 'key')} not written: {error}", keys=keys
            )
        else:
            self._notices.trouble(
                "redis_down", "", f"{counted(keys, 'key')} of {name} must wait: {error}", keys=keys
            )

    def surprised(self, unit: Unit, error: Exception) -> None:
        """The unit failed by a fault of ours or of a loader."""
        name = unit.namespace.name
        text = f"{counted(len(unit.keys), 'key')} not refreshed: {type(error).__name__}"
        self._notices.trouble("unexpected", name, text, keys=len(unit.keys), error=error)

    def loaded(self, unit: Unit, now: float) -> None:
        """The unit's source has answered."""
        self._around.vitals.loaded(unit.namespace.source.name, now)
        self._notices.over("load_failed", unit.namespace.source.name)
        self._notices.over("load_refused", unit.namespace.name)
        if unit.namespace.fail_safe:
            self._notices.over("prolonged", unit.namespace.name)
            self._notices.over("not_prolonged", unit.namespace.name)

    def braked(self, unit: Unit, absent: int, *, rowless: bool) -> None:
        """Too many of the unit's rows are suddenly absent; or `rowless`: no row has been found yet, and there are values."""
        text = f"{absent} of {len(unit.keys)} rows are suddenly absent; none of them was deleted"
        if rowless:
            text = f"no value is removed until a row is found: {ROWLESS}"
        self._notices.trouble("braked", unit.namespace.name, text, keys=absent)

    def believed(self, unit: Unit) -> None:
        """The brake is off: absent rows count as deleted again."""
        self._notices.over("braked", unit.namespace.name)

    def answered(self, unit: Unit, answers: Sequence[Answer]) -> None:
        """Redis has answered for each key. The engine counts the answers; only the reports of this method name the reasons."""
        name = unit.namespace.name
        self._notices.over("unexpected", name)
        if self._around.unremoved or self._around.foreign:
            done = zip(unit.keys, answers, strict=False)  # an eviction empties the unit while we wait
            keys = [key for key, each in done if each.result in FINISHING]
            self._around.unremoved.served(name, keys)
            self._around.foreign.served(name, keys)
        if plain(answers):
            self._all_written(name)
        else:
            self._some_not_written(unit, answers)

    def _all_written(self, name: str) -> None:
        self._notices.over("write_failed", name)
        self._notices.over("redis_down", "")
        self._notices.over("write_delayed", name)

    def _some_not_written(self, unit: Unit, answers: Sequence[Answer]) -> None:
        name, notices = unit.namespace.name, self._notices
        self._around.unsound.found("floor", answers.count(UNSOUND))
        bad = [each for each in answers if each.result is Result.FAILED]
        if bad:
            why = bad[0].why or bad[0].result.value
            text = f"{len(bad)} of {len(answers)} values cannot be written: {why}"
            notices.trouble("write_failed", name, text, keys=len(bad))
        else:
            notices.over("write_failed", name)
        if any(each.result in _ANSWERED for each in answers):
            self._name_refused(unit, answers)
        shut = [each for each in answers if each.result is Result.UNAVAILABLE]
        if len(shut) < len(answers):
            notices.over("redis_down", "")
        if shut:
            text = f"{len(shut)} of {len(answers)} values cannot be written now: {shut[0].why}"
            notices.trouble("write_delayed", name, text, keys=len(shut))
        else:
            notices.over("write_delayed", name)

    def _name_refused(self, unit: Unit, answers: Sequence[Answer]) -> None:
        how = self._around.log_keys
        if how == "off" or not log.isEnabledFor(logging.DEBUG):
            return
        for key, answer in zip(unit.keys, answers, strict=False):  # an eviction has emptied the unit
            if answer.result in _ANSWERED:
                log.debug("%s: %s", answer.result.value, named(key, how))

    # --- prolonging -------------------------------------------------------------------------------------

    def prolonged(self, namespace: Namespace, answers: Sequence[bool | None]) -> None:
        """Redis has answered for each key whether its old value has more time."""
        name = namespace.name
        if answers.count(None) < len(answers):
            self._notices.over("not_prolonged", name)
        if kept := answers.count(True):
            what = f"{counted(kept, 'value')} of {name} got one more ttl, because the source fails"
            most = namespace.ttl + namespace.fail_safe
            self._notices.trouble("prolonged", name, f"{what}; no value gets older than {most:g} s")

    def not_prolonged(self, namespace: Namespace, keys: int, error: CacheUpdaterError) -> None:
        """Redis could not be asked; it is asked again."""
        text = f"{counted(keys, 'value')} may expire while their source fails: {error}"
        self._notices.trouble("not_prolonged", namespace.name, text)

    # --- removing ---------------------------------------------------------------------------------------

    def not_removed(self, keys: Sequence[bytes], error: CacheUpdaterError) -> None:
        """The removal of changed keys could not reach Redis; the engine tries again."""
        text = f"the removal of {counted(len(keys), 'changed key')} must wait: {error}"
        self._notices.trouble("redis_down", "", text, keys=len(keys))

    def removed(
        self, keys: Sequence[bytes], answers: Sequence[Answer], given_up: Sequence[bytes], now: float
    ) -> None:
        """Redis has answered for each key. The keys that are `given_up` keep their old values."""
        gone = [key for key, answer in zip(keys, answers, strict=True) if answer.result is Result.WRITTEN]
        foreign = [key for key, answer in zip(keys, answers, strict=True) if answer.result is Result.FOREIGN]
        if len(gone) == len(keys) or any(answer.result in _ANSWERED for answer in answers):
            self._notices.over("redis_down", "")
        for name, known in self._by_name(gone):
            self._observer.count("invalidations", len(known), label=name)
            self._around.unremoved.served(name, known)
            self._around.foreign.served(name, known)
        for name, known in self._by_name(foreign):
            self._observer.count("refreshes", len(known), label=name, reason=Result.FOREIGN.value)
        if given_up:
            why = next(answer.why for key, answer in zip(keys, answers, strict=True) if key in given_up)
            for name, known in self._by_name(given_up):
                self._around.unremoved.given_up(name, known, why, now)

    def _by_name(self, keys: Sequence[bytes]) -> list[tuple[str, Sequence[bytes]]]:
        groups, _ = self._around.keyspace.resolve_many(keys)
        return [(namespace.name, known) for namespace, known in groups.items()]

    # --- totals -----------------------------------------------------------------------------------------

    def totals(self, engine: Engine, now: float) -> None:
        """Reports what the core has counted since the last call, and how full it is."""
        observer = self._observer
        self._around.unremoved.tick(now)
        self._around.foreign.tick(now)
        totals = engine.tally.drain()
        self._around.vitals.counted(totals)
        for (metric, label, reason), amount in totals.items():
            observer.count(metric, amount, label=label, reason=reason)
        self._tell_full(engine)
        self._name_quarantined(engine)
        self._count_quarantined(engine, now)
        for name, seconds in engine.take_ages():
            observer.measure("hint_to_write_seconds", seconds, label=name)
        levels: tuple[tuple[Metric, float], ...] = (
            ("pending", engine.pending),
            ("tracked", engine.tracked),
            ("oldest_open_seconds", engine.cursor.age(now)),
            ("quarantined", len(engine.quarantine)),
            ("slow_keys", len(engine.slow_keys)),
            ("removals_waiting", engine.removals_waiting),
            ("scan_offset", engine.cursor.scan),
            ("done_offset", engine.cursor.done),
        )
        for metric, level in levels:
            observer.level(metric, level, label=self._label)

    def _tell_full(self, engine: Engine) -> None:
        """A partition at its limit is read and pauses by turns. So the trouble is over only after a second without a pause."""
        held_up, self._held_up = self._held_up, False
        if engine.full:
            self._notices.trouble("full", self._label, _full(engine, "no hint of it is read"))
        elif senders := len(engine.held):
            unread = f"no hint of {counted(senders, 'sender')}, who sent most of them, is read"
            self._notices.trouble("full", self._label, _full(engine, unread))
        elif not held_up:
            self._notices.over("full", self._label)

    def _name_quarantined(self, engine: Engine) -> None:
        """Names newly quarantined keys at the log's debug level, as far as the configuration lets keys be named."""
        if self._around.log_keys == "off" or not log.isEnabledFor(logging.DEBUG):
            return
        now = set(engine.quarantine.keys)
        for key in now - self._quarantined:
            log.debug("quarantined: %s", named(key, self._around.log_keys))
        self._quarantined = now

    def _count_quarantined(self, engine: Engine, now: float) -> None:
        """Counts the keys in quarantine by namespace. A key whose time is over, or that is free before it, waits for a hint only."""
        records = engine.quarantine.keys
        keys = [key for key, record in records.items() if now < record.until and not record.free]
        if keys or self._around.quarantining:
            by_name: dict[str, Counts] = {}
            for name, known in self._by_name(keys):
                refused = sum(records[key].refused is not None for key in known)
                by_name[name] = Counts(len(known) - refused, refused)
            self._around.quarantining.holds(self._label, by_name)

    def left(self, engine: Engine, now: float) -> None:
        """This process does not own the partition any more."""
        self.totals(engine, now)
        self._around.quarantining.holds(self._label, {})
        for metric in _OURS:
            self._observer.end(metric, label=self._label)
        self._notices.over("full", self._label)
        self.read()
        self.committed()


def _full(engine: Engine, unread: str) -> str:
    """What is open, and who is not read for it."""
    removals = engine.removals_waiting
    waiting = f" ({removals} of them wait to be removed)" if removals else ""
    return (
        f"this partition has {counted(engine.pending, 'open key')}{waiting}, so {unread} before some are done:"
        " hints come faster than the sources and Redis serve them"
    )
