"""What becomes of a unit that has run: finished, due again, cut smaller, or never again.

The engine calls it with the answers to a unit's writes, or with its failure. The answers of an evicted unit never get here.
Keys leave the unit one by one, each by its own rule. The keys that remain have written, or their values were left alone.
Lives as long as its engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.core.answers import ENDING, FINISHING, UNCHANGED, WRITTEN, Answer, Result
from cacheupdater.core.brake import WINDOW, Brake
from cacheupdater.core.hints import Kind
from cacheupdater.core.policy import Loaded
from cacheupdater.core.seats import live_keys, live_parts
from cacheupdater.core.unit import Demand, Phase, Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cacheupdater.core.absent import AbsentMarks
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy
    from cacheupdater.core.removals import Removals
    from cacheupdater.core.retry import Troubles

_NOBODYS_FAULT = frozenset({Result.TOO_OLD, Result.UNAVAILABLE})  # tried for ever, more and more slowly
AGES_MAX = 10_000  # between two reports, a second apart: more would not make the histogram truer


PIECES_OF_A_FAULTY_UNIT = 16
"""One poisoned key among 200 costs 28 more statements. With two pieces it would cost 15, but eight
times in a row: a slow key beside the poisoned one made half of these slow, and held up the others for half a minute."""

PIECES_OF_A_SLOW_UNIT = 4  # a try costs a whole deadline; after four tries one key is left of a unit of 200


@dataclass(slots=True)
class Load:
    """What a unit's load showed beside its values. The shell fills it in step by step: a load that fails takes time too."""

    seconds: float = 0.0  # of the source's time
    stamps: Sequence[float | None] = ()  # what each key's row says about its last change; empty: nothing
    stage: Literal["token", "load", "write"] = "token"  # which step is under way, or has failed
    asked: bool = True  # False: the source has received nothing


class Failure(NamedTuple):
    """Why a unit failed. `own`: its keys or its statement are at fault, so it is cut smaller and the failure counts. `slow`:
    the witnesses decide whether it is at fault. `at_source`: its rows could not be loaded."""

    error: str
    own: bool
    slow: bool = False
    at_source: bool = False


class Outcomes:
    """The rules for the end of a head."""

    def __init__(
        self,
        dedup: Dedup,
        marks: AbsentMarks,
        *,
        policy: Policy,
        troubles: Troubles,
        removals: Removals,
        tally: Tally,
    ) -> None:
        self.ages: list[tuple[str, float]] = []  # (namespace, seconds from hint to value)
        self.troubles = troubles
        self._dedup = dedup
        self._marks = marks
        self._policy = policy
        self._removals = removals
        self._tally = tally
        self._brakes: dict[Namespace, Brake] = {}
        self._released = -inf  # when all brakes forgot last

    def suspects(self, unit: Unit, absent: Collection[bytes]) -> list[bytes]:
        """Of these keys without a row, those that were touched: the brake must know whether they have a value."""
        if unit.phase is not Phase.RUNNING or not absent:
            return []
        rowless = set(absent)
        touched = (keys for demand, keys in unit.parts if demand.kind is Kind.TOUCH)
        return [key for key in chain.from_iterable(touched) if key in rowless]

    def braked(
        self, unit: Unit, absent: Collection[bytes], now: float, *, valueless: Collection[bytes] = ()
    ) -> Collection[bytes] | None:
        """Of these keys without a row, those whose values stay; None unless so many are suddenly absent.

        Nobody knows any more which keys of a late unit were touched, so all their values stay: the next unit decides. The
        `valueless` have nothing to lose and do not count: touches of them are a stranger's, or came late.
        """
        self._release(now)
        if unit.phase is not Phase.RUNNING:
            return absent
        parts = [keys for demand, keys in unit.parts if demand.kind is Kind.TOUCH]
        touched = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        if valueless:
            touched = [key for key in touched if key not in valueless]
        rowless = set(absent)
        gone = [key for key in touched if key in rowless] if absent else []
        brake = self._brakes.get(unit.namespace)
        if brake is None:
            brake = self._brakes[unit.namespace] = Brake()
        return frozenset(gone) if brake.trips(touched, gone, now) else None

    def _release(self, now: float) -> None:
        """The brakes of namespaces that are idle now keep no keys: those of thousands would take a hundred megabytes."""
        if now >= self._released + WINDOW:
            self._released = now
            for brake in self._brakes.values():
                brake.forget(now)

    def answered(
        self,
        unit: Unit,
        answers: Sequence[Answer],
        now: float,
        *,
        absent: Collection[bytes],
        load: Load,
    ) -> None:
        """The writes of a running unit were answered, in the order of its keys."""
        stamps = load.stamps
        if load.seconds:
            self._dedup.slow_keys.loaded(unit, unit.receipt.verdict)
        learned = unit.keys if self._policy.learns else ()
        bad: dict[bytes, Answer] = {}
        adopted: Collection[bytes] = ()
        if self._count_results(unit, answers) < len(answers):
            bad = {
                key: answer
                for key, answer in zip(unit.keys, answers, strict=True)
                if answer.result not in FINISHING
            }
            adopted = _adopted(unit, answers)
            self._settle(unit, bad, now)
            absent = [key for key in absent if key not in bad]  # a key that was left alone is not marked
        wrote = self._wrote(unit, bad)
        self._report_ages(unit.namespace, wrote, now)
        if learned:
            said = dict(zip(learned, stamps, strict=True)) if stamps else {}
            by_key = dict(zip(learned, answers, strict=True))
            for kind, keys in _by_kind(wrote):  # each kind apart, for an announced change is no surprise
                changed: list[bool | None] = [by_key[key].result is Result.WRITTEN for key in keys]
                if adopted:
                    changed = [
                        None if key in adopted else each for key, each in zip(keys, changed, strict=True)
                    ]
                mine = [said[key] for key in keys] if said else ()
                self._policy.on_loaded(Loaded(kind, keys, changed, unit.began, mine, absent), now)
        self._finish(unit, absent, now)

    def on_absent(self, unit: Unit, absent: Collection[bytes], now: float) -> None:
        """The source has answered, and has no rows of these keys. Those that misses of unseen keys have asked for are charged,
        whatever becomes of the write. Changes and known keys may find many too, after a clean-up."""
        if not absent:
            return
        rowless = set(absent)
        asked = chain.from_iterable(keys for demand, keys in unit.parts if demand.unseen)
        rows = sum(key in rowless for key in asked)
        unit.namespace.absent_bucket.charge(rows, now)
        self._tally.add("absent_rows", rows, unit.namespace.name)

    def failed(self, unit: Unit, failure: Failure, now: float) -> None:
        """The whole unit leaves. If it is at fault itself, it is due again in smaller pieces; if not, as it was."""
        at_fault, pieces = set(unit.keys) if failure.own else set(), PIECES_OF_A_FAULTY_UNIT
        if failure.slow:
            at_fault, pieces = self._slow(unit, now), PIECES_OF_A_SLOW_UNIT
        parts = list(unit.parts)
        for demand, keys in parts:
            if at_fault and len(unit.keys) == 1:
                self._retry(unit, keys[0], demand, failure=failure._replace(own=True), now=now)
                continue
            self._put_off(unit, [key for key in keys if key not in at_fault], demand, now)
            for piece in _cut([key for key in keys if key in at_fault], pieces if len(parts) == 1 else 1):
                if failure.slow:
                    self._dedup.slow_keys.suspect(piece, len(piece))
                self._dedup.again(
                    unit,
                    piece,
                    demand.apart(len(piece)) if failure.slow else demand._replace(alone=True),
                    now,
                )
        self._dedup.close(unit)

    def _slow(self, unit: Unit, now: float) -> set[bytes]:
        """Which keys may have caused a timeout. A key's first timeout is nobody's fault. While the breaker is open, the source may be
        away: then only a key that is known to be slow is at fault."""
        source = unit.namespace.source
        witnessed = source.witnesses.answered_since(unit.began)
        suspects = self.troubles.timed_out(unit.keys, witnessed=witnessed)
        at_fault = suspects if source.witnesses.blame(unit, now) else set()
        source.witnesses.silent(now)
        if source.breaker.is_open:
            return set(filter(self.troubles.is_slow, at_fault))
        return at_fault

    def _put_off(self, unit: Unit, keys: list[bytes], demand: Demand, now: float) -> None:
        """Nobody is at fault: these keys are due again together, later."""
        if keys:
            for key in keys:
                self.troubles.failed(key, now, own=False)
            delayed = demand._replace(not_before=now + self.troubles.delay(keys[0]))
            self._dedup.again(unit, keys, delayed, now)

    def _finish(self, unit: Unit, absent: Collection[bytes], now: float) -> None:
        """The keys that are still in the unit are finished."""
        seats = self._dedup.seats
        gone = unit.gone
        keys = live_keys(seats, unit)
        self.troubles.over(keys)
        self._dedup.seen.put(keys, now)
        if absent:
            self._dedup.seen.forget(absent)
            # A tail is a change or touch since the head began: it ends the mark at once.
            tails = self._dedup.tails
            known = [key for key in absent if seats.get(key) is unit and key not in tails]
            self._marks.mark(known, unit.namespace.missing_ttl)
        if len(unit.keys) == gone:
            self._dedup.close(unit)
        else:
            self._dedup.finish(unit, now)

    def _settle(self, unit: Unit, failed: Mapping[bytes, Answer], now: float) -> None:
        """Keys whose write was not accepted leave the unit, each by its own rule. Braked and foreign keys stay."""
        for demand, keys in unit.parts:
            together: dict[float, list[bytes]] = {}  # by their wait
            for key in keys:
                answer = failed.get(key)
                if answer is None or answer.result in ENDING:
                    continue
                if answer.result is Result.UNDECIDED:
                    together.setdefault(answer.wait, []).append(key)
                elif answer.result is Result.REFUSED:
                    self._dedup.again(unit, [key], demand.refused(now + answer.wait), now)
                else:
                    own = answer.result not in _NOBODYS_FAULT
                    failure = Failure(answer.why or answer.result.value, own)
                    self._retry(unit, key, demand, failure=failure, now=now)
            for wait, undecided in together.items():
                self._dedup.again(unit, undecided, demand._replace(not_before=now + wait), now)

    def _retry(self, unit: Unit, key: bytes, demand: Demand, *, failure: Failure, now: float) -> None:
        """One key failed: it is tried again later, or never, if it was at fault itself too often."""
        if not self.troubles.failed(key, now, own=failure.own):
            self._dedup.again(unit, [key], demand._replace(not_before=now + self.troubles.delay(key)), now)
            return
        tail = self._dedup.give_up(unit, key)
        failing = self.troubles.failing(key)
        self.troubles.over([key])
        # Where a load was refused, the statement may be at fault. A slow key is not excused: each try takes a whole deadline.
        namespace = unit.namespace if failure.at_source and not failure.slow else None
        self.troubles.quarantine.put(key, failure.error, now, namespace=namespace, failing=failing)
        self._tally.add("dropped", 1, unit.namespace.name, reason="quarantined")
        if tail is not None:
            tail.open_pack.release(1)
            tail.open_pack.lean(tail.outweighs(demand))
        whole = demand if tail is None else demand.covering(tail)
        if whole.kind is Kind.CHANGE:
            self._removals.ask(unit.namespace, [key], [demand.open_pack], only_ours=whole.is_set)
        else:
            demand.open_pack.release(1)

    def _count_results(self, unit: Unit, answers: Sequence[Answer]) -> int:
        """How many are plain successes. In almost every unit all are, and that is found without a look at each."""
        name, plain = unit.namespace.name, 0
        for usual in (WRITTEN, UNCHANGED) if answers[0] is WRITTEN else (UNCHANGED, WRITTEN):
            if plain < len(answers):
                alike = answers.count(usual)
                self._tally.add("refreshes", alike, name, reason=usual.result.value)
                plain += alike
        if plain < len(answers):
            for answer in answers:
                if answer.result not in (Result.WRITTEN, Result.UNCHANGED):
                    self._tally.add("refreshes", 1, name, reason=answer.result.value)
        return plain

    def _wrote(self, unit: Unit, bad: Collection[bytes]) -> list[tuple[Demand, list[bytes]]]:
        """Each demand with its keys that have written."""
        parts = live_parts(self._dedup.seats, unit)
        if bad:
            parts = [(demand, [key for key in keys if key not in bad]) for demand, keys in parts]
        return [part for part in parts if part[1]]

    def _report_ages(
        self, namespace: Namespace, parts: Sequence[tuple[Demand, list[bytes]]], now: float
    ) -> None:
        """One age per demand: its keys came together. Bounded, for it may be that nobody takes the ages."""
        for demand, _ in parts[: AGES_MAX - len(self.ages)]:
            self.ages.append((namespace.name, now - demand.since))


def _adopted(unit: Unit, answers: Sequence[Answer]) -> Collection[bytes]:
    """The keys over whose values we have written for the first time. The application may spell the same row in another way, so
    the policy learns from their loads neither that a row has changed nor that it has not."""
    return {key for key, each in zip(unit.keys, answers, strict=True) if each.result is Result.ADOPTED}


def _by_kind(parts: Sequence[tuple[Demand, list[bytes]]]) -> Iterable[tuple[Kind, list[bytes]]]:
    """The keys by the kind of their demand: of hot misses each may have a demand of its own."""
    if len(parts) == 1:
        return [(parts[0][0].kind, parts[0][1])]
    kinds: dict[Kind, list[bytes]] = {}
    for demand, keys in parts:
        kinds.setdefault(demand.kind, []).extend(keys)
    return kinds.items()


def _cut(keys: list[bytes], pieces: int) -> Iterator[list[bytes]]:
    """At most so many parts, of about the same size."""
    size = -(-len(keys) // pieces)
    return (keys[at : at + size] for at in range(0, len(keys), size or 1))
