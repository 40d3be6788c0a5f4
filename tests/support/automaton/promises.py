"""The promises that a story of `automaton.schedules` must keep: design section 6, for one partition.

During the story nothing is dropped without need and nothing waits too long. At rest nothing is left of any key, no hint was
lost, and no bucket was overspent.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from automaton.model import require
from automaton.worlds import GAP, TICK
from cacheupdater.core.hints import Kind
from cacheupdater.core.shedding import MORE, room

if TYPE_CHECKING:
    from automaton.model import Key
    from automaton.schedules import Play
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.shedding import Dropped


def check_backlog(play: Play, dropped: Dropped) -> None:
    """Only what exceeds a limit is dropped: of its namespace, or of all that may wait."""
    most = dropped.namespace.max_backlog
    waiting = len(_waiting(play, dropped.namespace)) - len(dropped.keys)
    total = sum(key.due for key in play.model.keys.values()) - len(dropped.keys)
    left = room(play.limits, len(play.namespaces)) - int(play.limits.pending * MORE)
    require(waiting >= most or total >= left, "dropped", dropped.keys, "of", waiting, "and", total)


def _waiting(play: Play, namespace: Namespace) -> dict[bytes, Key]:
    return {n: k for n, k in play.model.keys.items() if k.due and k.namespace == namespace.name}


def check_ages(play: Play) -> None:
    """ "no cursor waits longer than the age": a hint that waits is given up soon after."""
    most = play.limits.backlog_age + play.limits.prune
    for name, key in play.model.keys.items():
        if key.due:
            require(play.now - key.head.since < most, name, "waits since", key.head.since)


def check_rest(play: Play) -> None:
    """All promises at rest."""
    _check_idle(play)
    _check_promises(play)
    _check_budgets(play)


def _check_idle(play: Play) -> None:
    """I1: every key ends idle."""
    engine = play.engine
    dedup, schedule = engine._dedup, engine._dedup.schedule
    left = (
        dedup.seats,
        dedup.tails,
        dedup._timers,
        dedup._running,
        dedup._recent_ends,
        schedule.delayed,
        schedule.shedding.dropped,
    )
    require(not any(left), "left behind:", left)
    require(engine.pending == engine.tracked == dedup._late == dedup.running_keys == 0, "counters are off")
    require(not engine._troubles, "troubles are left")
    require(engine._removals.open == 0, "an invalidation is left")
    for backlog in schedule._backlogs.values():
        require(not (backlog.ready or backlog.waiting), "a backlog counts keys that are gone")
    require(engine.cursor.advance() == play.model.scan == engine.cursor.scan, "the cursor does not catch up")
    engine.step(play.now + 32 * TICK)
    require(not engine._marks.keys, "absent marks are left")


def _check_promises(play: Play) -> None:
    """L1, hint by hint."""
    for name, kind, at, said, offset in play.hinted:
        key = play.model.keys[name]
        if key.namespace is None or not key.parses or said == "absent" or (offset, name) in play.declined:
            continue
        if play.prices and offset in play.forgotten and said != "accept":
            continue  # it merged into a refresh of the policy's own, which ends with its owner
        if kind is Kind.CHANGE:
            kept = any(began >= at for began, _ in play.finished[name]) or any(
                t >= at for t in play.removed[name]
            )
        else:
            kept = any(t >= at for t in play.given_up[name]) or any(
                ended > at - GAP if kind is Kind.MISS else began >= at or began > at - key.hold
                for began, ended in play.finished[name] + play.filled[name]
            )
        require(kept, f"L1: the {kind.name.lower()} of {name!r} at {at} is lost")


def _check_budgets(play: Play) -> None:
    """Q1: in any window at most rate * t + burst, and nothing at first."""
    for bucket, starts in play.rows.items():
        sums = list(accumulate((rows for _, rows in starts), initial=0))
        for first, (begin, _) in enumerate(starts):
            for last in range(first, len(starts)):
                spent = sums[last + 1] - sums[first]
                allowed = bucket.rate * (starts[last][0] - begin) + bucket.burst
                require(spent <= allowed + 1e-6, "Q1:", spent, "rows where", allowed, "are allowed")
        for last, (at, _) in enumerate(starts):
            require(sums[last + 1] <= bucket.rate * (at - play.start) + 1e-6, "Q1: a bucket began full")
