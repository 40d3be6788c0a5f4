"""Compares the real engine of a partition with its model: both must have the same state for every key.

`automaton.schedules` compares after every event. The comparison looks inside the engine, for outside much shows too late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from automaton.model import Key, Model, Violation, require
from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import Phase, Unit

if TYPE_CHECKING:
    from cacheupdater.core.engine import Engine
    from cacheupdater.core.unit import Demand


def compare(engine: Engine, model: Model, now: float) -> None:
    """Compares every key, every mark and every count."""
    dedup = engine._dedup
    seats, tails = dedup.seats, dedup.tails
    seated = heads = waiting = removals = 0
    faults, absent = {}, set()
    for name, key in model.keys.items():
        if key.faults:
            faults[name] = key.faults
        if now < key.absent_until:
            absent.add(name)
        if key.removals:
            removals += len(key.removals)
        unit = seats.get(name)
        if unit is None and key.head is None and not key.seated:
            continue
        seated += 1
        heads += key.head is not None
        waiting += key.tail is not None
        if (
            key.head is None
            and key.seated
            and unit is not None
            and unit.phase is Phase.HELD
            and unit.began == key.began
        ):
            continue  # the usual case
        mine, theirs = _model_says(key, now), _engine_says(name, unit, tails.get(name), now)
        if mine != theirs:
            raise Violation(f"{name!r} should be {mine} but is {theirs}")
    if not len(seats) == seated == engine.tracked:
        raise Violation(f"seats of nobody: {seats}")
    if len(tails) != waiting:
        raise Violation(f"tails of nobody: {tails}")
    _compare_marks(engine, model, faults, absent)
    _compare_pending(engine, model, heads + waiting, removals)


def _model_says(key: Key, now: float) -> tuple[object, ...]:
    head, tail = key.head, key.tail
    if head is None:
        return ("held", key.began) if key.seated else ("idle",)
    wants = (head.kind, head.urgency, head.offset, head.since)
    if not key.ticket:
        return ("due", max(head.not_before, now), *wants)
    waits = (tail.kind, tail.urgency, tail.offset, tail.since) if tail else ()
    return ("runs", key.ticket, key.began, *wants, *waits)


def _engine_says(name: bytes, unit: Unit | None, tail: Demand | None, now: float) -> tuple[object, ...]:
    if unit is None:
        return ("idle",)
    if unit.phase is Phase.HELD:
        return "held", unit.began
    due = unit.phase is Phase.DUE
    demand = unit.demand if due else next(demand for demand, part in unit.parts if name in part)
    wants = (demand.kind, demand.urgency, demand.open_pack.offset, demand.since)
    if due:
        return ("due", max(demand.not_before, now), *wants)
    waits = (tail.kind, tail.urgency, tail.open_pack.offset, tail.since) if tail else ()
    return ("runs", unit, unit.began, *wants, *waits)


def _compare_marks(engine: Engine, model: Model, faults: dict[bytes, int], absent: set[bytes]) -> None:
    if not engine._dedup.schedule.shedding.dropped:  # else the next step will tidy up
        theirs = {
            name: trouble.faults for name, trouble in engine._troubles._troubles.items() if trouble.faults
        }
        require(faults == theirs, "faults should be", faults, "but are", theirs)
    if absent or engine._marks.keys:
        marked = {name for name in model.keys if name in engine._marks}
        require(absent == marked == engine._marks.keys, "absent are", absent, "but marked", marked)
    if engine.quarantine.keys or model.quarantine:
        require(list(engine.quarantine.keys) == list(model.quarantine), "quarantine", engine.quarantine.keys)


def _compare_pending(engine: Engine, model: Model, live: int, removals: int) -> None:
    lost, expected = 0, model.done()
    for _, names, demand, _ in engine._dedup.schedule.shedding.dropped:  # the next step will account for them
        lost += sum(model.keys[each].parses for each in names) if demand.kind is Kind.CHANGE else 0
        expected = min(expected, demand.open_pack.offset)
    require(engine._removals.open + lost == removals, "invalidations", engine._removals.open, removals)
    require(engine.pending == live + engine._removals.open, "pending", engine.pending, live)
    before, done = engine.cursor.done, engine.cursor.advance()
    require(before <= done == expected, "done is", done, "after", before, "and should be", expected)


def compare_counts(engine: Engine, model: Model, *, repeated: bool = False) -> None:
    """Each decision is counted once, by its name."""
    counts: dict[str, int] = {}
    counted = engine.tally.drain()
    if not counted and not model.counts:
        return
    for (metric, _, reason), amount in counted.items():
        if metric in {"decisions", "dropped"}:
            counts[reason] = counts.get(reason, 0) + amount
    expected, model.counts = model.counts, {}
    for reason in ("aged", "unworthy", "backlog"):  # counted by the step after
        expected.pop(reason, None)
        counts.pop(reason, None)
    late = counts.get("unknown", 0) - expected.get("unknown", 0)
    if 0 < late <= model.late_unknown:
        model.late_unknown -= late
        expected["unknown"] = counts["unknown"]
    require(repeated or counts == expected, "counted", counts, "instead of", expected)
