"""Random schedules of one partition: the real engine and the model side by side, compared after every event.

`play(seed)` draws a small world (namespaces, limits, budgets) and a short story (packs, answers, failures, late ends,
hand-overs), and lets everything come to rest. `automaton_worlds` draws the world, `automaton_comparison` compares both sides,
`automaton_promises` checks the rest. In every third story some namespaces are priced (`automaton_prices`). The model then gets
the hints that the policy passes on, for the automaton does not depend on the policy's reasons. The same seed gives the same
story; `play(seed, tell=print)` prints it.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from math import inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from automaton.comparison import compare, compare_counts
from automaton.model import Key, Model, Violation, require
from automaton.prices import EVERY, Prices, Ticked
from automaton.promises import check_ages, check_backlog, check_rest
from automaton.taps import DropLog, LoggedCursor
from automaton.worlds import GAP, TICK, draw_limits, draw_namespaces
from cacheupdater.core.answers import FINISHING, Answer, Result
from cacheupdater.core.engine import Engine
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.outcomes import Failure
from cacheupdater.core.policy import Fixed
from cacheupdater.core.redis_clock import RedisClock
from cacheupdater.core.unit import Phase, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from automaton.rows import Row
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.removals import Invalidation
    from cacheupdater.core.shedding import Dropped

REPLAY = "CACHEUPDATER_SEED={} pytest tests/unit/core/test_automaton_against_model.py -k replay -s"
GARBAGE = 100_000  # objects: some ten megabytes, of a hundred stories; a tenth of the time is saved
FINE = (Result.WRITTEN, Result.ADOPTED, Result.UNCHANGED, Result.DUPLICATE, Result.BRAKED, Result.FOREIGN)
AGES = (-64, -1, 0, 1, 2, 6, 12, 40)  # ticks since a reader's load began; some are still to come
UNITS = 10**9  # of a token in a second
POOR = 4  # one story in so many is about misses of rows that are not there, and keys that fail by themselves
FAILURES = (Failure("no", own=True), Failure("away", own=False), Failure("slow", own=False, slow=True))
NO, SHUT = Answer(Result.FAILED), Answer(Result.UNAVAILABLE)
BAD = (
    Result.REFUSED,
    Result.REFUSED,
    Result.TOO_OLD,
    Result.UNAVAILABLE,
    Result.UNDECIDED,
    Result.FAILED,
)
TOLD = (Result.REFUSED, Result.UNDECIDED)  # results with the time of the next try


class Running(NamedTuple):
    unit: Unit
    names: list[bytes]
    began: float


class Asked(NamedTuple):
    invalidation: Invalidation
    at: float


class Hinted(NamedTuple):
    name: bytes
    kind: Kind
    at: float
    said: str
    offset: int


class Play:
    """One story. The methods named like events make them happen to both engine and model."""

    def __init__(self, seed: int, tell: Callable[..., None] | None = None) -> None:
        rng = self.rng = Random(seed)
        self.tell = tell
        self.now = self.start = rng.choice((0.0, 1000.0))
        self.limits = draw_limits(rng)
        self.namespaces = draw_namespaces(rng, self.now)
        self.prices = Prices(self, seed) if seed % EVERY == 1 else None
        self.poor = seed % POOR == 2
        self.namespace = {namespace.name: namespace for namespace in self.namespaces}
        self.keyspace = Keyspace([(namespace.pattern, namespace) for namespace in self.namespaces])
        self.names = [
            b"%s:%d" % (n.name.encode(), at) for n in self.namespaces for at in range(rng.choice((1, 2, 3)))
        ]
        if rng.random() < 0.15:
            self.names += [b"a:x", b"z:1"]
        self.unparsed = [name for name in self.names if name.endswith(b"x")]
        self.offset = 0
        self.packs: list[Hints] = []
        self.forgotten: set[int] = set()  # packs that the queue has as finished, out of order
        self.wake = inf
        self.running: list[Running] = []
        self.asked: list[Asked] = []
        self.log: list[object] = []
        # where a hint can drop another key of its pack, packs are kept so small that the order is plain
        self.crowded = self.limits.backlog_age < 30 or any(n.max_backlog < 100 for n in self.namespaces)
        self.clock = RedisClock()  # Redis' clock shows the story's time
        self.model = Model({name: self._key(name) for name in self.names}, self.limits, 0)
        self.engine = self._engine(0)
        # the story's own record, for the promises
        self.hinted: list[Hinted] = []
        self.finished: dict[bytes, list[tuple[float, float]]] = {name: [] for name in self.names}
        self.filled: dict[bytes, list[tuple[float, float]]] = {name: [] for name in self.names}
        self.given_up: dict[bytes, list[float]] = {name: [] for name in self.names}
        self.removed: dict[bytes, list[float]] = {name: [] for name in self.names}
        self.last_start: dict[bytes, float] = {}
        self.last_change: dict[bytes, float] = {}
        self.declined: set[tuple[int, bytes]] = set()  # touches that the policy did not pass on, by offset
        self.excused: set[bytes] = set()  # failed, dropped or handed over since their last start
        self.rows: dict[Bucket, list[tuple[float, int]]] = {}

    def _key(self, name: bytes) -> Key:
        namespace = self.namespace.get(chr(name[0]))
        if namespace is None:
            return Key(None)
        hold = GAP if namespace.terms else namespace.every
        return Key(namespace.name, hold, namespace.missing_ttl, namespace.ttl, parses=not name.endswith(b"x"))

    def _engine(self, offset: int) -> Engine:
        policy = self.policy = self.prices.policy() if self.prices else Fixed()
        engine = Engine(
            self.keyspace,
            policy,
            limits=self.limits,
            random=self.rng.random,
            offset=offset,
            clock=self.clock,
        )
        engine.cursor = LoggedCursor(offset, self.log)
        engine._dedup.schedule.shedding.dropped = DropLog(self.log, engine._dedup.schedule)
        return engine

    # --- events -----------------------------------------------------------------------------------------

    def event(self) -> None:
        rng = self.rng
        self._let_time_pass()
        chance = rng.random()
        if chance < 0.5 or not (self.running or self.asked):
            self.hints()
        elif chance < 0.9 and self.running:
            self.end(self.running.pop(rng.randrange(len(self.running))))
        elif self.asked:
            self.acknowledge(self.asked.pop(), away=rng.random() < 0.2, refused=0.2)
        elif rng.random() < 0.3:
            self.hand_over()
        if rng.random() < 0.85:
            self.step()
        if rng.random() < 0.5:
            self.forgotten.update(self.engine.cursor.finished())

    def _let_time_pass(self) -> None:
        chance = self.rng.random()
        if chance < 0.3 and self.now < self.wake < inf:
            self.now = self.wake
        elif chance < 0.75:
            self.now += self.rng.choice((1, 2, 4, 4, 8, 16, 24, 40)) * TICK

    def hints(self) -> None:
        batch = [self._pack() for _ in range(self.rng.choice((1, 1, 2, 3)))]
        if self.prices:
            batch = [self.prices.counted(pack) for pack in batch]
        self.packs += batch
        self.read(batch, remember=True)

    def _pack(self) -> Hints:
        rng = self.rng
        kind = rng.choice((Kind.TOUCH, Kind.MISS if self.poor else Kind.TOUCH, Kind.MISS, Kind.CHANGE))
        most = 1 if self.crowded and kind is not Kind.TOUCH else 3
        names = rng.sample(self.names, min(1 if self.poor else rng.randint(1, most), len(self.names)))
        if rng.random() < 0.05 and not self.crowded:
            names.append(names[0])  # our client never repeats a key in a pack; others may
        self.offset += rng.choice((1, 1, 2))
        tokens: Sequence[int] = ()
        if kind is Kind.TOUCH and not self.prices and rng.random() < 0.3:
            tokens = [round((self.now - rng.choice(AGES) * TICK) * UNITS)] * len(names)
        return Hints(self.offset - 1, kind, names, (), tokens=tokens)

    def read(self, batch: Sequence[Hints], *, remember: bool) -> None:
        if self.tell:
            self.tell(f"{self.now:.5f} hints", *batch)
        packs = {pack.offset: pack for pack in batch}
        self.begin()
        self.clock.told(round(self.now * UNITS), self.now, self.now)
        self.engine.on_hints(batch, self.now)
        for entry in self.log:
            if not isinstance(entry, int):
                self._dropped(entry)
                continue
            self.model.scan = entry + 1
            self._hear(packs[entry], remember=remember)
        compare_counts(self.engine, self.model, repeated=any(len(set(p.keys)) < len(p.keys) for p in batch))
        compare(self.engine, self.model, self.now)

    def _hear(self, pack: Hints, *, remember: bool) -> None:
        """The model reads one pack: the touches that the policy passed on; of changes, first those that cannot wait."""
        offset, kind, names = pack.offset, pack.kind, pack.keys
        if pack.tokens:
            names = self._filled(pack)
        patient: Collection[bytes] = ()
        if self.prices and kind is Kind.TOUCH:
            names = self._passed(pack, remember=remember)
        elif self.prices and kind is Kind.CHANGE:
            patient = self.policy.patient.popleft()
            names = self._changed(names)
        often = dict(zip(pack.keys, pack.counts, strict=False))
        for name in names:
            if self.model.knows_as_nobodys(name):  # counted as often as the pack names them
                self.model.count("unknown", often.get(name, 1) - 1)
            said = self.model.hint(name, kind, offset, self.now, patient=name in patient)
            if said == "quarantined":
                self.given_up[name].append(self.now)
            if remember:
                self.hinted.append(Hinted(name, kind, self.now, said, offset))

    def _filled(self, pack: Hints) -> list[bytes]:
        """The model reads fills. Returns the keys to which they are touches."""
        done: set[bytes] = set()
        for name, token in dict(zip(pack.keys, pack.tokens, strict=True)).items():
            at = self.clock.taken(token, self.now)
            said = self.model.fill(name, at, self.now)
            if said is not None:
                done.add(name)
                self.filled[name].append((at, self.now))
        return [name for name in pack.keys if name not in done]

    def _changed(self, names: Sequence[bytes]) -> list[bytes]:
        """A key that is named twice has one change; in quarantine it has two removals."""
        barred = [name for name in names if self.now < self.model.quarantine.get(name, -inf)]
        return [name for at, name in enumerate(names) if name in barred or name not in names[:at]]

    def _passed(self, pack: Hints, *, remember: bool) -> Sequence[bytes]:
        """The touches of the pack that the policy wants. The others are declined, by name, and counted."""
        passed = self.policy.passed.popleft()
        require(len(set(passed)) == len(passed), "passed on twice:", passed)
        nobodys = [
            name
            for name in dict.fromkeys(pack.keys)
            if name not in passed and self.model.knows_as_nobodys(name)
        ]
        for name in dict.fromkeys(pack.keys):
            if name not in passed and name not in nobodys:
                require(not self.is_fixed(name), name, "is not priced, and was declined")
                self.declined.add((pack.offset, name))
                if not remember:  # so are those that had merged into it, and are not read again
                    self.given_up[name].append(self.now)
                self.model.declined(name)
        require(set(passed) <= set(pack.keys), "passed on", passed, "of", pack.keys)
        return [*passed, *nobodys]

    def is_fixed(self, name: bytes) -> bool:
        namespace = self.namespace.get(chr(name[0]))
        return namespace is None or not namespace.terms

    def end(self, running: Running) -> None:
        """A unit's load and write ended, with any result, perhaps too late."""
        rng = self.rng
        if rng.random() < 0.25:
            self.fail(running, FAILURES[0] if self.poor else rng.choice(FAILURES))
        elif rng.random() < 0.5:
            self.answer(running, [self._answer(FINE)] * len(running.names))
        else:
            self.answer(running, [self._answer(FINE + BAD) for _ in running.names])

    def _answer(self, results: Sequence[Result]) -> Answer:
        result = self.rng.choice(results)
        wait = self.rng.choice((0.0, 8 * TICK)) if result in TOLD else 0.0
        return Answer(result, wait)

    def answer(self, running: Running, answers: list[Answer], *, absent: bool | None = None) -> None:
        unit, names, began = running
        rows_lost, lost = absent, 0.8 if self.poor else 0.3  # else drawn by lot, key by key
        absent = [name for name in names if (self.rng.random() < lost if rows_lost is None else rows_lost)]
        if self.tell:
            self.tell(f"{self.now:.5f} answers", names, [a.result.value for a in answers], "absent", absent)
        owned = self._owned(running)
        self.begin()
        self.engine.on_answers(unit, answers, self.now, absent=absent)
        self.model.ended(unit, self.now, answered=True)
        delayed = []
        for name, (result, wait, _) in zip(names if owned else (), answers, strict=owned):
            if result in FINE:
                self.finished[name].append((began, self.now))
            else:
                self.excused.add(name)
                delayed += [name] if result not in TOLD else []
            self.model.answered(name, result, self.now, absent=name in absent, wait=wait)
            if name in self.model.quarantine and self.model.keys[name].head is None:
                self._forgotten(name)
        if self.prices:
            self._check_told(names, answers, began, owned=owned)
        self._after(delayed)

    def _check_told(self, names: list[bytes], answers: list[Answer], began: float, *, owned: bool) -> None:
        """The policy hears of each finished refresh once, and of no other."""
        told = [
            (name, None if answer.result is Result.ADOPTED else answer.result is Result.WRITTEN, began)
            for name, answer in zip(names, answers, strict=True)
            if answer.result in FINISHING and owned
        ]
        require(Counter(self.policy.told()) == Counter(told), "the policy should have been told", told)

    def fail(self, running: Running, failure: Failure) -> None:
        unit, names, _ = running
        if self.tell:
            self.tell(f"{self.now:.5f} failure", names, failure)
        owned = self._owned(running)
        self.begin()
        self.engine.on_failure(unit, failure, self.now)
        self.model.ended(unit, self.now, answered=failure.own)
        delayed: Sequence[bytes] = []
        if owned:
            self.excused.update(names)
            if failure.slow:
                delayed = self._timed_out(names, unit)
            elif failure.own and len(names) > 1:
                self.model.split(names)
            elif failure.own:
                if self.model.at_fault(names[0], self.now):
                    self._forgotten(names[0])
                else:
                    delayed = names
            else:
                delayed = names
                for name in names:
                    self.model.set_back(name)
        self._after(delayed)

    def _timed_out(self, names: Sequence[bytes], ticket: Unit) -> Sequence[bytes]:
        delayed = self.model.timed_out(names, ticket, self.now)
        if not self.model.keys[names[0]].head:
            self._forgotten(names[0])
        return delayed

    def _forgotten(self, name: bytes) -> None:
        """A key in quarantine has left memory, and with it the time of its last start.

        The list is bounded, so other keys may push it out before a gap is over.
        """
        self.given_up[name].append(self.now)
        self.last_start.pop(name, None)
        self.last_change.pop(name, None)

    def _owned(self, running: Running) -> bool:
        owns = {self.model.owns(name, running.unit) for name in running.names}
        require(len(owns) == 1, "a unit's keys ended one by one:", running.names)
        return owns.pop()

    def _after(self, delayed: Sequence[bytes]) -> None:
        dropped = self._drops()
        for name in delayed:
            if name not in dropped and self.model.keys[name].head:
                self._take_delay(name)
        compare_counts(self.engine, self.model)
        compare(self.engine, self.model, self.now)

    def acknowledge(self, asked: Asked, *, away: bool = False, refused: float = 0.0) -> None:
        """Redis was unreachable; or it removed all keys except some, which it refuses or cannot remove now."""
        rng = self.rng
        said = [
            rng.choice((NO, SHUT)) if rng.random() < refused else Answer(Result.WRITTEN)
            for _ in (() if away else asked.invalidation.keys)
        ]
        if self.tell:
            self.tell(f"{self.now:.5f} invalidation", asked.invalidation.keys, said or "away")
        given_up = list(self.engine.on_invalidated(asked.invalidation, said, self.now))
        expected = []
        for at, removal in enumerate(asked.invalidation.removals):
            result = said[at].result if said else Result.UNAVAILABLE
            name = removal.key
            gone, up = self.model.removed(name, removal, result, self.now)
            expected += [name] if up else []
            if gone:
                self.removed[name].append(asked.at)
        require(given_up == expected, "gave up", given_up, "instead of", expected)
        compare_counts(self.engine, self.model)

    def hand_over(self) -> None:
        """The owner dies. The next one reads again from the committed offset."""
        done = self.engine.cursor.advance()
        if self.tell:
            self.tell(f"{self.now:.5f} hand over at", done)
        for running in self.running:
            self.engine.on_cut_off(running.unit, self.now)
        self.engine.leave()  # this source lives on
        self.excused.update(self.names)
        self.last_start.clear()
        self.last_change.clear()
        self.running, self.asked, self.log = [], [], []
        self.model = self.model.handed_over(done)
        self.engine = self._engine(done)
        again = [pack for pack in self.packs if pack.offset >= done and pack.offset not in self.forgotten]
        for pack in again:
            self.read([pack], remember=False)

    def step(self) -> None:
        if self.tell:
            self.tell(f"{self.now:.5f} step")
        self.begin()
        work = self.engine.step(self.now)
        if self.prices:
            self._asked_by_policy()
        delayed: list[bytes] = []
        for ticket in self.model.overdue(self.now):
            names = [name for name, key in self.model.keys.items() if key.ticket is ticket]
            self.excused.update(names)
            delayed += self._timed_out(names, ticket)
        dropped = self._drops()
        for name in delayed:
            if name not in dropped:
                self._take_delay(name)
        for name in self.unparsed:
            if self.model.keys[name].due and name not in self.engine._dedup.seats:
                self.model.dropped(name, "unknown")
        for unit in work.units:
            self._started(unit)
        if work.invalidation:
            self.asked.append(Asked(work.invalidation, self.now))
            for removal in work.invalidation.removals:
                self.model.asked(removal.key, removal.open_pack.offset, removal, self.now)
        self.wake = work.wake
        require(work.wake > self.now, "the engine asks to be woken at once, at", work.wake)
        compare_counts(self.engine, self.model)
        compare(self.engine, self.model, self.now)
        check_ages(self)

    def _asked_by_policy(self) -> None:
        """Keys that the policy wants to be loaded without a recent read: they count as touched now."""
        for ticked in [entry for entry in self.log if isinstance(entry, Ticked)]:
            self.log.remove(ticked)
            for name in ticked.keys:
                require(not self.is_fixed(name), name, "is not priced, and was asked for")
                said = self.model.hint(name, Kind.TOUCH, self.model.scan, self.now)
                if said == "quarantined":
                    self.given_up[name].append(self.now)

    def _started(self, unit: Unit) -> None:
        names, namespace = list(unit.keys), unit.namespace
        if self.tell:
            self.tell(f"{self.now:.5f}   starts", names)
        require(0 < len(names) <= self.limits.unit_keys, "a unit of", len(names))
        require(len(set(names)) == len(names), "twice in one unit", names)
        require(all(self.model.keys[n].namespace == namespace.name for n in names), "namespaces mixed", names)
        require(list(unit.captures) == [namespace.pattern.parse(n) for n in names], "captures", names)
        for demand, part in unit.parts:
            for name in part:
                self._check_spacing(name, demand.kind, self.model.keys[name].hold)
        self.model.started(names, unit, self.now)
        self.running.append(Running(unit, names, self.now))
        require(self.engine.on_statement(unit, self.now), "paid, and must not leave", names)
        for bucket in (namespace.source.bucket, namespace.quota):
            if bucket is not None and bucket.rate < 1000:
                self.rows.setdefault(bucket, []).append((self.now, len(names)))

    def _check_spacing(self, name: bytes, kind: Kind, hold: float) -> None:
        """Q1: touches at least hold apart, starts for a change at least gap, others at least gap after any."""
        last = self.last_start.get(name, -inf)
        changed = self.last_change.get(name, -inf) if kind is Kind.CHANGE else last
        self.last_start[name] = self.now
        if kind is Kind.CHANGE:
            self.last_change[name] = self.now
        require(self.now - changed >= GAP - 1e-9, name, "starts", self.now - changed, "after its last start")
        if kind is Kind.TOUCH and name not in self.excused:
            require(
                self.now - last >= hold - 1e-9,
                name,
                "starts for a touch",
                self.now - last,
                "after its last start",
            )
        self.excused.discard(name)

    # --- drops and delays -------------------------------------------------------------------------------

    def begin(self) -> None:
        self.log.clear()
        self.model.expire(self.now)

    def _drops(self) -> set[bytes]:
        names: set[bytes] = set()
        for entry in self.log:
            self._dropped(entry)
            names.update(entry.keys)
        return names

    def _dropped(self, dropped: Dropped) -> None:
        if self.tell:
            self.tell(f"{self.now:.5f}   drops", dropped.keys, dropped.reason)
        if dropped.reason == "backlog" and dropped.keys:
            check_backlog(self, dropped)
        for name in dropped.keys:
            key = self.model.keys[name]
            if dropped.reason in {"aged", "unworthy"}:
                require(
                    key.due and key.head.since + self.limits.backlog_age <= self.now, name, "is not so old"
                )
            self.model.dropped(name, dropped.reason)
            self.given_up[name].append(self.now)
            if dropped.demand.not_before > self.now or dropped.demand.kind is Kind.CHANGE:
                # it waited for its gap, or need not; a dropped key leaves memory, and with it the time of its last start
                self.last_start.pop(name, None)
                self.last_change.pop(name, None)
            self.excused.add(name)

    def _take_delay(self, name: bytes) -> None:
        unit = self.engine._dedup.seats.get(name)
        require(unit is not None and unit.phase is Phase.DUE, name, "should be due again")
        demand = unit.demand
        waits = demand.not_before if demand.earliest is None else demand.earliest
        self.model.delay(name, waits, self.now)

    # --- the end ----------------------------------------------------------------------------------------

    def rest(self) -> None:
        """No fault happens from now on, and nothing may be left in the end."""
        if self.prices:
            self.policy.quiet = True
        for _ in range(300):
            self.step()
            if self.running or self.asked:
                while self.running:
                    running = self.running.pop()
                    self.answer(running, [Answer(Result.WRITTEN)] * len(running.names))
                while self.asked:
                    self.acknowledge(self.asked.pop())
            elif self.wake == inf:
                break
            else:
                self.now = self.wake
        else:
            raise Violation("never comes to rest")
        check_rest(self)


def play(seed: int, tell: Callable[..., None] | None = None) -> Play:
    """Plays one schedule. Raises Violation, or any error of the engine."""
    story = Play(seed, tell)
    for _ in range(story.rng.randint(3, 9) * (4 if story.poor else 1)):
        story.event()
    story.rest()
    return story


class Block(NamedTuple):
    """The results of a block of stories."""

    failure: str  # the first failure and the command that replays it, or nothing
    seconds: float  # of CPU
    priced: int  # stories with priced namespaces
    real: int  # of them, those that used the real policy
    rows: Counter[Row]  # how often each row of the table was taken


def play_block(seeds: Sequence[int]) -> Block:
    """Plays stories until one fails. Runs in a process of its own, for it collects garbage rarely."""
    began, priced, real, failure = time.process_time(), 0, 0, ""
    rows: Counter[Row] = Counter()
    gc.set_threshold(GARBAGE)
    for seed in seeds:
        try:
            story = play(seed)
        except Exception as e:  # noqa: BLE001  an engine that raises has failed as well
            failure = f"{e!r}\nTo see it happen: {REPLAY.format(seed)}"
            break
        priced += story.prices is not None
        real += story.prices is not None and story.prices.real
        rows += story.model.rows.taken
    return Block(failure, time.process_time() - began, priced, real, rows)
