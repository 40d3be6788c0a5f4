"""What the core knows of one key, in plain words: for a person who asks why a value is old.

`Engine.explain` calls `seat_of` when a person asks the updater. Nothing here runs on a hint's path or changes anything. A
seat's sentence names the first thing that stands in the way of the key's next load. `shortage` says in numbers what a budget
or a quota pays, and how much waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import PATIENT, URGENCY, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.quarantine import Quarantined
    from cacheupdater.core.unit import Demand, Unit

State: TypeAlias = Literal["none", "due", "running", "held"]

WORTH_TELLING_S = 1.0
"""Seconds: what is due for less long needs no explanation. From here on a source counts as behind (`schedule`)."""


class Seat(NamedTuple):
    """Where a key stands. Times are seconds."""

    state: State
    kind: str = ""  # of the strongest hint that a due head covers
    since: float = 0.0  # a due head: since its oldest hint; a running or held one: since its start
    waits_for: str = ""
    tail: str = ""  # the kind of hint that waits behind a running head


NO_SEAT = Seat("none")


class Explained(NamedTuple):
    """All that the core knows of one key."""

    seat: Seat
    quarantined: Quarantined | None
    absent: bool  # its row is known not to exist: misses cost the database nothing for a while


class Shortage(NamedTuple):
    """A budget or a quota that pays for less than is asked. Amounts are rows, or milliseconds if it is `timed`."""

    whose: Literal["budget", "quota"]
    of: str  # the source, or the namespace
    timed: bool
    rate: float  # a second
    waiting: float
    seconds: float  # until all of that could be paid, if nothing more came
    given_up: float  # seconds after which a key that is due is dropped


def seat_of(dedup: Dedup, key: bytes, now: float) -> Seat:
    """What the automaton knows of this key."""
    unit = dedup.seats.get(key)
    if unit is None:
        return NO_SEAT
    if unit.phase is Phase.DUE:
        demand = unit.demand
        return Seat("due", demand.kind.name.lower(), now - demand.since, hindrance(unit, now))
    if unit.phase is Phase.HELD:
        held = max(0.0, unit.hold_until - now)
        return Seat("held", since=now - unit.began, waits_for=f"its hold to be over, in {held:.1f} s")
    tail = dedup.tails.get(key)
    waits_for = "its statement and its write to end"
    return Seat(
        "running", since=now - unit.began, waits_for=waits_for, tail=tail.kind.name.lower() if tail else ""
    )


def hindrance(unit: Unit, now: float) -> str:
    """Why these due keys do not run yet."""
    namespace, demand = unit.namespace, unit.demand
    source, quota = namespace.source, namespace.quota
    if demand.not_before > now:
        return f"its next try, in {demand.not_before - now:.1f} s"
    if busy := _unpaid(namespace, demand, now) or _busy(namespace, now) or _apart(namespace, demand):
        return busy
    if source.bucket.level(now) < namespace.cost.per_row:
        return f"the budget of source {source.name}, which is spent{_overtaken(unit)}"
    if quota is not None and quota.level(now) < 1.0:
        return f"the quota of namespace {namespace.name}, which is spent"
    if demand.urgency == PATIENT:
        return "a quiet moment of its source: few readers would notice the change"
    return "its turn among namespaces and peers"


def _unpaid(namespace: Namespace, demand: Demand, now: float) -> str:
    """Why a miss of an unseen key may not start."""
    bucket = namespace.absent_bucket
    if not demand.unseen or bucket.room(now) >= 1:
        return ""
    return (
        f"the absent bucket of namespace {namespace.name}, for {bucket.opens_at(now) - now:.1f} s: more rows than"
        f" {bucket.rate:g} a second did not exist (missing.share), and no load has found this key before"
    )


def _apart(namespace: Namespace, demand: Demand) -> str:
    """Why a suspect may not start while others do."""
    if not demand.slow or namespace.source.slots.apart(known=demand.slow == 1) > 0:
        return ""
    return f"the end of another slow key: loads with this key took long, so it runs apart, on part of source {namespace.source.name}'s connections"


def _overtaken(unit: Unit) -> str:
    """Whether hotter misses go first."""
    source = unit.namespace.source
    is_miss = unit.demand.urgency == URGENCY[Kind.MISS]
    return (
        "; misses for which more readers ask go first" if is_miss and source.due > source.bucket.rate else ""
    )


def _busy(namespace: Namespace, now: float) -> str:
    """Why no unit of this namespace may start at its source, whatever can be paid."""
    source = namespace.source
    if source.breaker.opens_at(now) > now:
        return f"source {source.name}: nothing but trouble came from it, so it is only probed now"
    if source.slots.free <= 0:
        return f"a connection of source {source.name}: all are busy"
    if source.slots.room(namespace) <= 0:
        return f"a connection of source {source.name}: loads of namespace {namespace.name} are slow, so others keep one"
    return ""


def shortage(
    namespace: Namespace, age: float, now: float, *, worthy: Mapping[Namespace, float] | None = None
) -> Shortage | None:
    """What pays for less than is asked: the budget of the namespace's source, or its quota if that needs longer.

    `age` is how long the core lets a key be due. `worthy` are keys that a policy asks for once they can be paid.
    """
    source, quota, cost, also = namespace.source, namespace.quota, namespace.cost, worthy or {}
    if source.breaker.opens_at(now) > now:
        return None
    more = sum(keys * each.cost.per_row for each, keys in also.items() if each.source is source)
    given_up = min(namespace.backlog_age, age)
    waiting = source.due + more
    seconds = _unpaid_for(source.bucket, waiting, cost.per_row, now)
    found = Shortage("budget", source.name, source.timed, source.bucket.rate, waiting, seconds, given_up)
    if quota is not None:
        waiting = cost.due + also.get(namespace, 0.0)
        seconds = _unpaid_for(quota, waiting, 1.0, now)
        if seconds > found.seconds:
            found = Shortage("quota", namespace.name, False, quota.rate, waiting, seconds, given_up)
    return found if found.seconds >= WORTH_TELLING_S else None


def _unpaid_for(bucket: Bucket, waiting: float, row: float, now: float) -> float:
    """Seconds until this bucket has paid for all that waits, or for the next row; 0: something else holds it up."""
    level = bucket.level(now)
    # a row or two are there for a moment before each load, however small the bucket is
    if level >= max(2.0 * row, bucket.burst / 2) or bucket.rate <= 0.0:
        return 0.0
    return max(0.0, max(waiting, row) - level) / bucket.rate
