"""The automaton of `automaton.TABLE`, carried out for whole batches: which keys have a seat, and what their hints become.

One dict holds each key's seat: the unit in which the key waits, runs or is held. So starting, ending or expiring a unit
touches one object, and a touch of a seated key costs one membership test. (A dict of floats with side tables was measured:
it was twice as slow, and larger.) Tails stand in a dict of their own. A heap of units, not of keys, says when holds are
over. Running units are kept in the order of their starts, for eviction. A key leaves its seat when its hold is over, for
most touches come just then. A miss may still come too soon after the key's last end, so `recent_ends` remembers that end.

One per engine. Nothing here awaits, so promotion, decline, ending and eviction are atomic in their event loop.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count, filterfalse, groupby
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core import seats
from cacheupdater.core.automaton import TABLE, Action, Event, State
from cacheupdater.core.hints import Kind
from cacheupdater.core.recent_ends import RecentEnds
from cacheupdater.core.schedule import Schedule
from cacheupdater.core.seen import Seen
from cacheupdater.core.slow_keys import SlowKeys
from cacheupdater.core.unit import PATIENT, URGENCY, Demand, Phase, Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cacheupdater.core.absent import AbsentMarks
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace

_ROOM = 1024  # timers of units that are over, before they are tidied up


class Dedup:
    """The seats of one partition."""

    def __init__(self, limits: Limits, marks: AbsentMarks, *, namespaces: int) -> None:
        self.seats: seats.Seats = {}
        self.tails: dict[bytes, Demand] = {}
        self.seen = Seen(limits.seen)
        self.slow_keys = SlowKeys()
        self.schedule = Schedule(self.seats, limits, namespaces=namespaces)
        self.running_keys = 0
        self._limits = limits
        self._marks = marks
        self._recent_ends = RecentEnds(limits.gap)
        self._running: dict[Unit, None] = {}
        self._late = 0  # units with seats whose hold is over: their touches need a look
        self._behind = -inf  # units whose hold was over at this time may not be marked late yet
        self._timers: list[tuple[float, int, Unit]] = []  # (end of hold or seat, order, unit)
        self._order = count()
        self._roomy = _ROOM

    # --- hints ------------------------------------------------------------------------------------------

    def touches(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Of these touched keys, those that need a seat, and those that have a seat and need a look.

        A key needs a look if its hold is over. It also needs one if its change waits for a quiet moment, for the touch shows
        that somebody reads the old value. All other touches are merged into a due head or held: nothing is left to do for
        them.
        """
        seated, patient = self.seats, self.schedule.patient
        if not self._late and self._behind == -inf and not patient:
            # most hints end here; a comprehension would take 1.06 times as long
            return list(filterfalse(seated.__contains__, keys)), []
        fresh, over = [], []
        for key, unit in zip(keys, map(seated.get, keys), strict=True):
            if unit is None:
                fresh.append(key)
            elif (
                unit.late
                or (unit.hold_until <= self._behind and unit.phase is not Phase.DUE)
                or (patient and unit.phase is Phase.DUE and unit.demand.urgency == PATIENT)
            ):
                over.append(key)
        return fresh, over

    def new(self, keys: Sequence[bytes], kind: Kind, now: float) -> Collection[bytes]:
        """Of these missed or changed keys, those of which nothing is known: each needs a seat. Most need no more than this look."""
        seated = self.seats
        unseated = [key for key in keys if key not in seated]
        if kind is Kind.MISS:
            unseated = self._marks.without(self._recent_ends.without(unseated, now))
        return frozenset(unseated)

    def hint(self, key: bytes, new: Demand, now: float, *, asks: int = 1) -> Action | None:
        """Does what the table says about one hint, of so many readers, and returns it. None: the key needs a seat, which
        `accept` gives it later."""
        kind, open_pack = new.kind, new.open_pack
        unit = self.seats.get(key)
        event = self._event(key, kind, unit, now)
        action = TABLE[self._state(key, unit), event][1]
        if unit is None:
            return None if action is Action.ACCEPT else action
        if action is Action.ACCEPT:
            # almost every touch comes after the gap: another demand for it would cost a hundredth of a step
            demand = self._spaced(new, unit, key) if now < unit.began + self._limits.gap else new
            self._vacate(unit, key)
            self._recent_ends.put((key,), unit.ended, now)
            if demand.not_before <= now:
                return None
            open_pack.hold(1)
            self._seat(unit.namespace, [key], demand, now)
        elif action is Action.MERGE:
            demand = unit.demand.covering(new)
            if kind is Kind.MISS and self.schedule.is_behind(unit.namespace):
                demand = unit.asked(demand, asks)
            if demand is not unit.demand:
                self.schedule.leave(unit)
                open_pack.lean(new.outweighs(unit.demand))
                self._seat(unit.namespace, [key], demand, now)
        elif action is Action.BLOCK:
            open_pack.hold(1)
            self.tails[key] = new
        elif action is Action.COVER:
            tail = self.tails[key]
            open_pack.lean(new.outweighs(tail))
            self.tails[key] = tail.covering(new)
        elif action is Action.DECLINE and unit.phase is Phase.RUNNING:
            # if the head fails, it is due again and serves this miss too
            open_pack.lean(any(new.outweighs(demand) for demand, _ in unit.parts))
        return action

    def fill(
        self, namespace: Namespace, keys: Sequence[bytes], demand: Demand, *, began: float, hold: float
    ) -> tuple[list[bytes], list[bytes]]:
        """Readers have loaded these keys themselves, as from `began`. Returns those that are held from then on, and those
        whose running head serves them. To the others a fill is a touch."""
        now, gap = demand.since, self._limits.gap
        held: list[bytes] = []
        covered: list[bytes] = []
        for key in keys:
            unit = self.seats.get(key)
            if unit is not None and not _is_news(unit, began, now, gap=gap):
                continue
            action = TABLE[self._state(key, unit), Event.FILL][1]
            if action is Action.FILLED:
                self._make_way(unit, key)
                held.append(key)
            else:
                covered.append(key)
        if held:
            unit = Unit(namespace, held, demand)
            unit.phase, unit.began, unit.ended, unit.hold_until = Phase.HELD, began, now, began + hold
            seats.give(self.seats, unit)
            self._remind(unit.hold_until, unit)
            self.seen.put(held, now)
        return held, covered

    def _make_way(self, unit: Unit | None, key: bytes) -> None:
        """The key leaves a unit that is due or held, for it gets another seat."""
        if unit is None:
            return
        if unit.phase is Phase.DUE:
            unit.demand.open_pack.release(1)
            self.schedule.leave(unit)
        else:
            self._vacate(unit, key)

    def accept(self, namespace: Namespace, keys: list[bytes], demand: Demand, now: float) -> None:
        """New heads for keys that have no seat. Misses of unseen keys are apart, for they may have to wait. So are suspects."""
        if demand.kind is Kind.MISS and not demand.alone:
            keys, unseen = self.seen.split(keys)
            self._accept(namespace, unseen, demand._replace(unseen=True), now)
        if self.slow_keys:
            keys, pieces = self.slow_keys.split(keys)
            for piece in pieces:
                self._accept(namespace, piece, demand.apart(self.slow_keys[piece[0]]), now)
        self._accept(namespace, keys, demand, now)

    def _accept(self, namespace: Namespace, keys: list[bytes], demand: Demand, now: float) -> None:
        """Cuts the keys so that each part can run as a unit without change."""
        size = self._limits.unit_keys
        units: list[Unit] = []
        for at in range(0, len(keys), size):
            unit = Unit(namespace, keys[at : at + size] if len(keys) > size else keys, demand)
            before = len(self.seats)
            seats.give(self.seats, unit)
            if len(self.seats) - before < len(unit.keys):
                self._seat_once(unit, units)
            units.append(unit)
        for unit in units:
            demand.open_pack.hold(len(unit.keys))
            self.schedule.add(unit, now)

    def _seat_once(self, unit: Unit, others: list[Unit]) -> None:
        """For a pack that names a key twice: our client sends none, others may. The first place counts."""
        for other in others:
            seats.give(self.seats, other)
        seats.narrow(unit, [key for key in dict.fromkeys(unit.keys) if self.seats[key] is unit])

    def _seat(self, namespace: Namespace, keys: list[bytes], demand: Demand, now: float) -> None:
        """Seats keys in a unit of their own. The demand's open pack is held for them already."""
        if len(keys) == 1 and keys[0] in self.slow_keys:
            demand = demand.apart(self.slow_keys[keys[0]])
        unit = Unit(namespace, keys, demand)
        seats.give(self.seats, unit)
        self.schedule.add(unit, now)

    def _vacate(self, unit: Unit, key: bytes) -> None:
        seats.vacate(self.seats, unit, key)
        if unit.phase is Phase.HELD and unit.gone == len(unit.keys):
            self._over(unit)

    def _state(self, key: bytes, unit: Unit | None) -> State:
        if unit is None:
            return State.INIT
        if unit.phase is Phase.DUE:
            return State.DUE
        if unit.phase is Phase.HELD:
            return State.HELD
        return State.BLOCK if key in self.tails else State.PROCESS

    def _event(self, key: bytes, kind: Kind, unit: Unit | None, now: float) -> Event:
        if kind is Kind.CHANGE:
            return Event.CHANGE
        if kind is Kind.TOUCH:
            held = unit is not None and unit.phase is not Phase.DUE and now < unit.hold_until
            return Event.TOUCH_HELD if held else Event.TOUCH
        if unit is not None and unit.phase is not Phase.HELD:
            return Event.MISS
        soon = self._recent_ends.soon(key, now) if unit is None else now < unit.ended + self._limits.gap
        if soon:
            return Event.MISS_SOON
        return Event.MISS_ABSENT if key in self._marks else Event.MISS

    # --- units ------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Unit]:
        """Units that were just paid for. They stay DUE until `run`, so that bad keys can leave first."""
        return self.schedule.start(now)

    def strip(self, unit: Unit, bad: Collection[bytes]) -> None:
        """These keys leave a unit that has not begun to run."""
        parts = []
        for demand, keys in unit.parts:
            good = [key for key in keys if key not in bad]
            demand.open_pack.release(len(keys) - len(good))
            if good:
                parts.append((demand, good))
        seats.narrow_parts(unit, parts)
        seats.forget(self.seats, bad)

    def run(self, unit: Unit, hold: float, now: float) -> None:
        """The head begins to run; hold, head timeout and spacing count from here."""
        unit.phase = Phase.RUNNING
        unit.began = now
        unit.hold_until = now + hold
        unit.announced = [keys for demand, keys in unit.parts if demand.kind is Kind.CHANGE]
        self._running[unit] = None
        self.running_keys += len(unit.keys)
        if hold > 0.0:
            self._remind(unit.hold_until, unit)
        else:
            self._set_late(unit)

    def finish(self, unit: Unit, now: float) -> None:
        """The head of every key that is still in the unit has written: tails are promoted, seats are kept."""
        for demand, keys in seats.live_parts(self.seats, unit):
            demand.open_pack.release(len(keys))
        self._ended(unit)
        unit.phase, unit.ended = Phase.HELD, now
        tails = self.tails
        if tails and not tails.keys().isdisjoint(unit.keys):
            self._promote(unit, [key for key in seats.live_keys(self.seats, unit) if key in tails], now)
        if unit.gone == len(unit.keys):
            self._over(unit)
        elif unit.late:
            self._leave(unit, now)

    def _promote(self, unit: Unit, keys: list[bytes], now: float) -> None:
        """The tails of these keys are due. Neighbours with the same demand share a unit, unless there are suspects."""
        seats.moved(unit, len(keys))
        for demand, same in groupby(keys, lambda key: self._spaced(self.tails.pop(key), unit, key)):
            for together in ([key] for key in same) if self.slow_keys else [list(same)]:
                self._seat(unit.namespace, together, demand, now)

    def _spaced(self, demand: Demand, unit: Unit, key: bytes) -> Demand:
        """The demand, due no earlier than a gap after the unit's start. A change waits only if a change had caused that start."""
        spaced = max(demand.not_before, unit.began + self._limits.gap)
        if unit.announced and any(key in keys for keys in unit.announced):
            return demand._replace(not_before=spaced)
        return (
            demand
            if demand.kind is Kind.CHANGE
            else demand._replace(not_before=spaced, earliest=demand.not_before)
        )

    def again(self, unit: Unit, keys: list[bytes], demand: Demand, now: float) -> None:
        """These heads did not write: what they stood for is due again, together with their tails."""
        demand = self._spaced(demand, unit, keys[0])
        blocked = [key for key in keys if key in self.tails] if self.tails else []
        rest = [key for key in keys if key not in self.tails] if blocked else keys
        seats.moved(unit, len(keys))
        for key in blocked:
            tail = self.tails.pop(key)
            tail.open_pack.release(1)
            tail.open_pack.lean(tail.outweighs(demand))
            self._seat(unit.namespace, [key], demand.covering(tail), now)
        if rest:
            self._seat(unit.namespace, rest, demand, now)

    def give_up(self, unit: Unit, key: bytes) -> Demand | None:
        """The key leaves without a refresh, and so does its tail. The packs of both stay open until the caller releases them."""
        self._vacate(unit, key)
        return self.tails.pop(key, None)

    def close(self, unit: Unit) -> None:
        """The unit ended and none of its keys is left in it."""
        self._ended(unit)
        self._over(unit)

    def overdue(self, now: float) -> Iterator[Unit]:
        """Units that have run for longer than a head may; the caller ends each before it asks for the next."""
        while self._running:
            unit = next(iter(self._running))
            if unit.began + self._limits.head_timeout > now:
                return
            yield unit

    def expire(self, now: float) -> None:
        """Holds that are over make their units late; seats that are over are forgotten, some thousand in one call."""
        timers, looked = self._timers, 0
        while timers and timers[0][0] <= now and looked < self._limits.turn_seats:
            _, _, unit = heappop(timers)
            looked += len(unit.keys) + 1
            if unit.phase is Phase.RUNNING:
                self._set_late(unit)
            elif unit.phase is Phase.HELD:
                self._leave(unit, now)
        self._behind = now if timers and timers[0][0] <= now else -inf
        self._recent_ends.turn(now)

    def wake(self) -> float:
        """When the next hold, seat or head is over."""
        times = [self.schedule.wake, self._recent_ends.wake]
        if self._timers:
            times.append(self._timers[0][0])
        if self._running:
            times.append(next(iter(self._running)).began + self._limits.head_timeout)
        return min(times)

    def _leave(self, unit: Unit, now: float) -> None:
        """The hold is over: its seats are given up, or kept until the next heads may start."""
        spaced = unit.began + self._limits.gap
        if spaced <= now:
            self._forget(unit, now)
        else:
            self._set_late(unit)
            self._remind(spaced, unit)

    def _remind(self, at: float, unit: Unit) -> None:
        """Sets a timer. Timers of units that are over are removed, or long holds would keep these units in memory."""
        timers = self._timers
        if len(timers) >= self._roomy:
            timers[:] = [timer for timer in timers if timer[2].phase is not Phase.OVER]
            heapify(timers)
            self._roomy = 2 * len(timers) + _ROOM
        heappush(timers, (at, next(self._order), unit))

    def _set_late(self, unit: Unit) -> None:
        if not unit.late:
            unit.late = True
            self._late += 1

    def _ended(self, unit: Unit) -> None:
        del self._running[unit]
        self.running_keys -= len(unit.keys)
        unit.parts = unit.captures = ()

    def _forget(self, unit: Unit, now: float) -> None:
        keys = seats.live_keys(self.seats, unit)
        seats.forget(self.seats, keys)
        self._recent_ends.put(keys, unit.ended, now)
        self._over(unit)

    def _over(self, unit: Unit) -> None:
        unit.phase = Phase.OVER
        seats.narrow(unit, [])
        unit.announced = ()
        if unit.late:
            unit.late = False
            self._late -= 1


def _is_news(unit: Unit, began: float, now: float, *, gap: float) -> bool:
    """Whether a fill tells something about a key with this seat: see FILL in the table's module."""
    if unit.phase is Phase.DUE:
        demand = unit.demand
        # a touch that was refused waits for a change that nobody has announced here
        is_mere = demand.kind is Kind.TOUCH and demand.urgency == URGENCY[Kind.TOUCH]
        return is_mere and demand.not_before <= now
    if unit.phase is Phase.HELD:
        return began > unit.began and unit.began + gap <= now
    return began > unit.began
