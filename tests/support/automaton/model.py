"""The automaton of one key, written from the design's section 3 alone: slow, plain, one object per key.

`automaton.schedules` drives the real engine and this model side by side and compares them after every event. Each line has
the rule that it carries out beside it, in quotes. Some choices the design leaves to the schedule: which of the due keys starts
first, how long a back-off is drawn. The model does not predict these. The story passes them in, and the model raises on a
choice that no rule allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from automaton.rows import DONE, Rows
from cacheupdater.core.answers import Result
from cacheupdater.core.automaton import Action, Event, State
from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.limits import Limits

AGAIN, REFUSALS_MAX = 0.5, 5  # seconds between two attempts at a removal that Redis refuses, and their number
# "it queues as the most urgent, miss before change before touch"
MOST_URGENT_FIRST = (Kind.MISS, Kind.CHANGE, Kind.TOUCH)
PATIENT = 3  # behind all of these: a change that can wait, as the policy says


class Violation(AssertionError):
    """Engine and design disagree."""


def require(holds: object, *what: object) -> None:
    if not holds:
        raise Violation(" ".join(map(str, what)))


@dataclass(slots=True)
class Wanted:
    """A head or a tail, and the hints that it covers."""

    kind: Kind  # "takes the strongest kind that it covers, change > miss > touch"
    urgency: int
    offset: int  # of the oldest hint in it
    since: float
    waits: float = 0.0  # for a floor to pass, or a back-off
    spaced: float = -inf  # a gap after the last start
    spaced_change: float = -inf  # a gap after the last start for a change
    siblings: frozenset[bytes] | None = None  # the unit that failed with it

    @property
    def not_before(self) -> float:
        """ "starts for a change at least gap after the last such, others at least gap after any" """
        return max(self.waits, self.spaced_change if self.kind is Kind.CHANGE else self.spaced)

    def cover(self, kind: Kind, urgency: int) -> None:
        self.kind = max(self.kind, kind)
        self.hurry(urgency)

    def hurry(self, urgency: int) -> None:
        self.urgency = min(self.urgency, urgency)


@dataclass(slots=True)
class Removal:
    """A change that waits for Redis to forget its key."""

    offset: int
    refusals: int = 0
    not_before: float = -inf
    ticket: object = None  # of the removal that Redis was asked for


@dataclass(slots=True)
class Key:
    """One key. No head and not seated: Init. Head not running: due. Running: Process, with a tail: Block."""

    namespace: str | None  # None: the key is nobody's
    hold: float = 0.0
    missing_ttl: float = 0.0
    ttl: float = 0.0
    parses: bool = True
    stranger: bool = False  # a unit has found that the key does not parse
    head: Wanted | None = None
    tail: Wanted | None = None
    ticket: object = None  # of the running head
    seated: bool = False  # a head has begun and is not forgotten, so `began` is valid
    began: float = -inf
    announced: float = -inf  # the last start for a change
    kept: float = -inf  # the last end that kept its seat
    faults: int = 0
    timeouts: int = 0
    absent_until: float = -inf
    claimed_until: float = -inf  # no further fill is believed
    removals: list[Removal] = field(default_factory=list)

    @property
    def due(self) -> bool:
        return self.head is not None and self.ticket is None

    @property
    def state(self) -> State:
        """In the words of the table."""
        if self.ticket:
            return State.BLOCK if self.tail else State.PROCESS
        if self.head:
            return State.DUE
        return State.HELD if self.seated else State.INIT


class Model:
    """All keys of one partition."""

    def __init__(
        self, keys: dict[bytes, Key], limits: Limits, offset: int, *, rows: Rows | None = None
    ) -> None:
        self.keys = keys
        self.rows = rows or Rows()  # of the table, that were taken
        self.limits = limits
        self.scan = offset
        self.quarantine: dict[bytes, float] = {}  # until when
        self.counts: dict[str, int] = {}
        self.late_unknown = (
            0  # dropped changes of nobody's keys, which are counted with the next pack or step
        )
        # the source as seen so far: the units that run and since when, those that were answered, those that were too late
        self.running: dict[object, float] = {}
        self.answers: list[float] = []
        self.silences: list[tuple[object, float]] = []

    # --- hints ------------------------------------------------------------------------------------------

    def declined(self, name: bytes) -> None:
        """A touch that the policy declined still counts as a read of the key."""
        self.keys[name].absent_until = -inf
        self.counts["policy"] = self.counts.get("policy", 0) + 1

    def count(self, what: str, amount: int) -> None:
        if amount:
            self.counts[what] = self.counts.get(what, 0) + amount

    def knows_as_nobodys(self, name: bytes) -> bool:
        """ "keys of nobody are remembered": no policy learns of them"""
        return self.keys[name].stranger

    def hint(self, name: bytes, kind: Kind, offset: int, now: float, *, patient: bool = False) -> str:
        """The result of one hint: the action's name, or the reason why it was dropped."""
        key = self.keys[name]
        if kind is not Kind.MISS:
            key.absent_until = -inf  # "ends at any change or touch"
        urgency = PATIENT if patient else MOST_URGENT_FIRST.index(kind)
        before, event = key.state, self._event(key, kind, now)
        decided = said = self._decide(key, kind, now)
        if said == "merge":
            if kind is Kind.TOUCH and key.head.urgency != PATIENT:
                said = "hold"  # the engine does not look closer at a touch whose key has a seat
            else:
                key.head.cover(kind, urgency)
        elif said == "block":
            key.tail = Wanted(kind, urgency, offset, now)
        elif said == "cover":
            key.tail.cover(kind, urgency)
        elif said == "accept":
            said = self._accept(name, Wanted(kind, urgency, offset, now))
        if said not in {"unknown", "quarantined"}:  # these are dropped before they reach the automaton
            self.rows.take((before, event), DONE[decided], key.state)
        self.counts[said] = self.counts.get(said, 0) + 1
        return said

    def fill(self, name: bytes, at: float, now: float) -> str | None:
        """ "A touch whose token is newer than the key's last refresh counts as a refresh start." None: it is a mere touch."""
        key = self.keys[name]
        if key.namespace is None or key.stranger or name in self.quarantine:
            return None
        if at + key.hold <= now or now < key.claimed_until:
            return None  # "no load is due until the policy's next interval"; "one claim in half of the value's life"
        if not self._is_news(key, at, now):
            return None
        before, key.absent_until = key.state, -inf
        said = "hold" if key.ticket else "filled"
        if not key.ticket:  # "a waiting refresh for a mere touch that began before is not needed"
            key.head, key.seated, key.began, key.kept = None, True, at, now
            key.claimed_until = at + max(2 * key.hold, key.ttl / 2)
            key.faults = key.timeouts = 0
        self.rows.take((before, Event.FILL), DONE[said], key.state)
        self.counts[said] = self.counts.get(said, 0) + 1
        return said

    def _is_news(self, key: Key, at: float, now: float) -> bool:
        """ "a change is never swallowed by it": nor is a miss, nor what waits for its next try"""
        if key.due:
            is_touch = (key.head.kind, key.head.urgency) == (Kind.TOUCH, MOST_URGENT_FIRST.index(Kind.TOUCH))
            return is_touch and key.head.not_before <= now
        if key.ticket:
            return at > key.began
        return not key.seated or (at > key.began and now >= key.began + self.limits.gap)

    def _event(self, key: Key, kind: Kind, now: float) -> Event:
        """The event that this hint is for this key, in the words of the table."""
        if kind is Kind.CHANGE:
            return Event.CHANGE
        if kind is Kind.TOUCH:
            held = key.seated and not key.due and now < key.began + key.hold
            return Event.TOUCH_HELD if held else Event.TOUCH
        if key.head:
            return Event.MISS
        if now < key.kept + self.limits.gap:
            return Event.MISS_SOON
        return Event.MISS_ABSENT if now < key.absent_until else Event.MISS

    def _decide(self, key: Key, kind: Kind, now: float) -> str:  # noqa: PLR0911  one return per rule
        if key.due:
            return "merge"  # "A head is due from acceptance ...; hints that arrive meanwhile merge into it."
        if kind is Kind.TOUCH and key.seated and now < key.began + key.hold:
            return "hold"  # "touch earlier than hold after its head began to run -> Decline (counted held)"
        if kind is Kind.MISS:
            if key.ticket:
                return "decline"  # "miss ... while it runs, or within gap after an end that kept its seat -> Decline"
            if now < key.kept + self.limits.gap:
                return "decline"
            if now < key.absent_until:
                return "absent"  # "A row known to be absent: the mark ... declines misses only"
        if key.ticket:  # "Later -> Block if it runs", "change while the head runs -> Block"
            # as told: "hint -> Decline (covered by the tail; state stays Block)"
            return "cover" if key.tail else "block"
        return "accept"

    def _accept(self, name: bytes, head: Wanted) -> str:
        key, now = self.keys[name], head.since
        if key.stranger:  # "keys of nobody are remembered"
            return "unknown"
        if now < self.quarantine.get(name, -inf):
            if head.kind is Kind.CHANGE:  # "A dropped or quarantined change invalidates its key in Redis"
                key.removals.append(Removal(head.offset))
            return "quarantined"
        freed = self.quarantine.pop(name, None)  # "the next hint after quarantine_for tries again"
        if key.namespace is None:
            key.stranger = True
            return "unknown"
        key.head = head
        if key.seated:  # "a new head, not before gap after the last start"
            self._space(key)
        key.seated = False
        if freed is not None:  # apart, so that no neighbour fails with it
            key.head.siblings = frozenset([name])
        return "accept"

    # --- heads ------------------------------------------------------------------------------------------

    def started(self, names: Collection[bytes], ticket: object, now: float) -> None:
        """A unit begins to run."""
        self.running[ticket] = now
        for name in names:
            key = self.keys[name]
            require(key.due, name, "started without a due head: two heads, or none wanted")
            require(key.head.not_before <= now, name, "started at", now, "before", key.head.not_before)
            siblings = key.head.siblings
            if siblings:  # "A failing unit is split: its parts become due again"
                require(
                    len(names) < len(siblings) or len(siblings) == 1,
                    name,
                    "runs with as many as failed with it",
                )
                require(siblings.issuperset(names), name, "runs with keys that did not fail with it")
            # "Hold, head timeout and spacing count from there"
            key.ticket, key.seated, key.began = ticket, True, now
            self.rows.take((State.DUE, Event.STARTED), Action.RUN, key.state)
            if key.head.kind is Kind.CHANGE:
                key.announced = now

    def overdue(self, now: float) -> list[object]:
        """ "a stuck head is evicted head_timeout after it began to run" """
        late = {key.ticket for key in self.keys.values() if key.ticket}
        return [
            ticket
            for ticket, began in self.running.items()
            if ticket in late and began + self.limits.head_timeout <= now
        ]

    def ended(self, ticket: object, now: float, *, answered: bool) -> None:
        """A load ended, in time or not, with an answer of the source or without."""
        self.running.pop(ticket)
        if answered:
            self.answers.append(now)

    def timed_out(self, names: Collection[bytes], ticket: object, now: float) -> list[bytes]:
        """ "on timeouts from the second one of the same keys, unless other units of the source ran meanwhile and all of
        them timed out too. A key that times out alone has failed by itself." Those that back off now."""
        began = self.keys[min(names)].began
        silent = any(at > began for other, at in self.silences if other is not ticket)
        silent |= any(
            since <= (began + now) / 2 for other, since in self.running.items() if other is not ticket
        )
        blamed = any(at > began for at in self.answers) or not silent
        self.silences.append((ticket, now))
        for name in names:
            self.keys[name].timeouts += 1
        suspects = [name for name in names if blamed and self.keys[name].timeouts > 1]
        if suspects and len(names) == 1:
            return [] if self.at_fault(suspects[0], now) else list(suspects)
        for name in names:
            if name in suspects:
                self._again(self.keys[name], 0.0)
                self.keys[name].head.siblings = frozenset(names)
            else:
                self.set_back(name)
        return [name for name in names if name not in suspects]

    def owns(self, name: bytes, ticket: object) -> bool:
        """ "only its holder may end the head" """
        return self.keys[name].ticket is ticket

    def answered(self, name: bytes, result: Result, now: float, *, absent: bool, wait: float) -> None:
        """One key's write was answered."""
        key = self.keys[name]
        if result in (Result.WRITTEN, Result.ADOPTED, Result.UNCHANGED, Result.DUPLICATE):
            self._finished(key, now, absent=absent)
        elif result in (
            Result.BRAKED,
            Result.FOREIGN,
        ):  # "Braked and foreign end a head without a write: ... nobody's fault"
            self._finished(key, now, absent=False)
        elif result is Result.REFUSED:
            # as told, "refused: urgently, not before the returned floor, and still as the kind that it was"
            key.head.hurry(MOST_URGENT_FIRST.index(Kind.CHANGE))
            self._again(key, now + wait)
        elif result in (Result.TOO_OLD, Result.UNAVAILABLE):  # nobody's fault
            self.set_back(name)
        elif result is Result.UNDECIDED:  # nothing may be written before the namespace's verdict
            self._again(key, now + wait)
        else:
            self.at_fault(name, now)

    def _finished(self, key: Key, now: float, *, absent: bool) -> None:
        """ "Only written, unchanged and duplicate finish a head's hints and keep its seat." """
        row = key.state, Event.FINISHED
        key.faults = key.timeouts = 0
        key.ticket, key.head = None, None
        if key.tail:  # "Head ends: Block -> the tail becomes head"
            key.head, key.tail = key.tail, None
            self._space(key)
            key.seated = False
            self.rows.take(row, Action.PROMOTE, key.state)
            return
        self.rows.take(row, Action.KEEP, key.state)
        key.kept = now
        self._expire(key, now)
        if absent:  # "set only by an accepted absent write"; a tail is a change or touch that came since
            key.absent_until = now + key.missing_ttl

    def _again(self, key: Key, not_before: float) -> None:
        """ "its hints, attempts and delay pass to the tail, else the key is due again" """
        row = key.state, Event.FAILED
        if key.tail:
            key.head.cover(key.tail.kind, key.tail.urgency)
        key.head.waits = not_before
        self._space(key)
        key.ticket, key.tail, key.seated = None, None, False
        self.rows.take(row, Action.AGAIN, key.state)

    def _space(self, key: Key) -> None:
        """ "a refresh that a mere read caused does not hold up a change" """
        key.head.spaced = key.began + self.limits.gap
        key.head.spaced_change = key.announced + self.limits.gap

    def set_back(self, name: bytes) -> None:
        """Not its own error: "refusal, timeout, connection and breaker do not count"."""
        self._again(self.keys[name], inf)  # "with back-off": how long is drawn by lot, `delay` takes it over

    def delay(self, name: bytes, waits: float, now: float) -> None:
        """ "with back-off of at most 2 s and jitter"; what the head's spacing adds the model knows by itself"""
        limits, head = self.limits, self.keys[name].head
        spaced = head.spaced_change if head.kind is Kind.CHANGE else head.spaced
        least, most = now + limits.backoff / 2, now + limits.backoff_max
        require(least <= waits <= max(most, spaced), name, "backs off until", waits)
        head.waits = waits

    def at_fault(self, name: bytes, now: float) -> bool:
        """ "After max_attempts errors of its own the key is quarantined" """
        key = self.keys[name]
        key.faults += 1
        if key.faults < self.limits.max_attempts:
            self._again(key, inf)
            return False
        if Kind.CHANGE in (key.head.kind, key.tail.kind if key.tail else None):
            key.removals.append(Removal(key.head.offset))
        self._forget(key, Event.QUARANTINED)
        self.quarantine.pop(name, None)
        self.quarantine[name] = now + self.limits.quarantine_for
        if len(self.quarantine) > self.limits.quarantined:  # "bounded list"
            del self.quarantine[next(iter(self.quarantine))]
        self.counts["quarantined"] = self.counts.get("quarantined", 0) + 1
        return True

    def split(self, names: Collection[bytes]) -> None:
        """ "A failing unit is split: its parts become due again with new tickets, tokens and clock" """
        for name in names:
            key = self.keys[name]
            self._again(key, 0.0)
            key.head.siblings = frozenset(names)

    def dropped(self, name: bytes, reason: str) -> bool:
        """True where the key must leave Redis: "A dropped ... change invalidates its key"."""
        key = self.keys[name]
        require(key.due, name, "was dropped but is not due")
        late = key.head.kind is Kind.CHANGE and not key.parses and reason != "unknown"
        if late:  # nothing of nobody's is removed
            reason = "unknown"
        key.stranger = reason == "unknown"
        change = key.head.kind is Kind.CHANGE and not key.stranger
        if change:
            key.removals.append(Removal(key.head.offset))
        self._forget(key, Event.DROPPED)
        # a fill may have given it a seat before anybody looked at its captures; no miss comes soon after that any more
        if key.stranger:
            key.began = key.kept = -inf
        if late:
            self.late_unknown += 1
        else:
            self.counts[reason] = self.counts.get(reason, 0) + 1
        return change

    def asked(self, name: bytes, offset: int, ticket: object, now: float) -> None:
        """Redis is asked to forget the key. After a refusal the next attempt waits."""
        waits = [each for each in self.keys[name].removals if each.offset == offset]
        mine = [each for each in waits if each.ticket is ticket] or [
            each for each in waits if not each.ticket
        ]
        require(mine and mine[0].not_before <= now, name, "is removed for no reason, or too soon")
        mine[0].ticket = ticket

    def removed(self, name: bytes, ticket: object, result: Result, now: float) -> tuple[bool, bool]:
        """ "it is finished when Redis has acknowledged that"; or it is given up after so many refusals. Whether either."""
        waits = self.keys[name].removals
        [found] = [each for each in waits if each.ticket is ticket]
        found.refusals += result is Result.FAILED
        given_up = found.refusals >= REFUSALS_MAX
        if result is Result.WRITTEN or given_up:
            waits.remove(found)
            if given_up:
                self.counts["removal_refused"] = self.counts.get("removal_refused", 0) + 1
            return True, given_up
        found.not_before = now + AGAIN
        return False, False

    def _forget(self, key: Key, event: Event) -> None:
        row = key.state, event
        key.head = key.tail = key.ticket = None
        key.seated, key.faults, key.timeouts, key.announced = False, 0, 0, -inf
        self.rows.take(row, Action.FORGET, key.state)

    # --- time, and the visible state --------------------------------------------------------------------

    def expire(self, now: float) -> None:
        for key in self.keys.values():
            if key.seated and not key.ticket:
                self._expire(key, now)

    def _expire(self, key: Key, now: float) -> None:
        """A key leaves its seat when its hold, and the gap after its start, is over."""
        key.seated = now < key.began + max(key.hold, self.limits.gap)
        if not key.seated:
            self.rows.take((State.HELD, Event.OVER), Action.FORGET, key.state)

    def done(self) -> int:
        """Everything before it is finished: "done never passes an unfinished hint"."""
        least = self.scan
        for key in self.keys.values():
            for one in (key.head, key.tail):
                if one and one.offset < least:
                    least = one.offset
            for removal in key.removals:
                least = min(least, removal.offset)
        return least

    def handed_over(self, offset: int) -> Model:
        """The model of the next owner, which knows only the cursor."""
        keys = {
            name: Key(key.namespace, key.hold, key.missing_ttl, key.ttl, key.parses)
            for name, key in self.keys.items()
        }
        return Model(keys, self.limits, offset, rows=self.rows)
