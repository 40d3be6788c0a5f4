"""Whether a source is asked at all: after a second of nothing but trouble it is left alone, then probed, then eased in.

One per source, shared by all engines. `schedule` asks before each unit, and the source reports how units ended. It is our own
code rather than a library: nothing here waits or calls, `now` is an argument, and an engine chooses the key of a probe.

A load is *trouble* if the source refused or cut a connection, or let a load wait several times its usual time. An error in a
statement is an answer. Three troubles, and no answer for a second, open the breaker: nothing starts at the source and nothing
is spent. After `OPEN_S` one key may be loaded: the probe. An answer closes the breaker, and trouble opens it again. A probe that
was cut off, or never reached the source, says nothing, and another one may start. From the closing on, spending rises to
the whole budget within `RAMP_S`, because a database that has just started has cold caches.

An answer of anybody keeps the breaker closed. So one namespace whose table is locked never closes the source to the others.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from math import inf

TROUBLES = 3
"""Troubles in a row that open the breaker: one connection may be cut, and its neighbour with it, without a reason."""

SILENT_S = 1.0
"""Seconds without any answer before the breaker opens. A statement's own timeout is as long."""

OPEN_S = 1.0
"""Seconds from the opening to the first probe, and between probes: a source that is back is noticed after a second."""

PROBE_KEYS = 1
"""Keys of a probe. If every unit has a slow row, most single keys are still answered. If the source is away, a failed probe
delays a single key."""

RAMP_S = 5.0
"""Seconds from the closing until the whole budget may be spent. It rises evenly, from nothing."""

FIRST = 10.0
"""Rows, or milliseconds, that may be spent at once after the closing: the ramp would begin too slowly for small budgets."""


class State(Enum):
    """What a source may be asked."""

    CLOSED = "closed"  # anything
    OPEN = "open"  # nothing, and after a while one probe


class Breaker:
    """The breaker of one source."""

    __slots__ = ("_answered", "_closed", "_opened", "_probe", "_spent", "_troubles", "state")

    def __init__(self) -> None:
        self.state = State.CLOSED
        self._answered = -inf  # the last answer
        self._troubles: deque[float] = deque(maxlen=TROUBLES)  # since then
        self._opened = -inf  # when it was opened, or the last probe failed
        self._probe: object = None
        self._closed = -inf  # when the ramp began
        self._spent = 0.0  # what the source had cost by then

    def is_calm(self, now: float) -> bool:
        """Whether the source has had no trouble lately, so that all may start that can be paid."""
        return self.state is State.CLOSED and now - self._closed >= RAMP_S

    @property
    def is_open(self) -> bool:
        """Whether nothing but a probe may start."""
        return self.state is State.OPEN

    def opens_at(self, now: float) -> float:
        """When a unit may start at the earliest: now, or at the next probe; inf while a probe is under way."""
        if self.state is State.CLOSED:
            return now
        return inf if self._probe is not None else max(now, self._opened + OPEN_S)

    def may_spend(self, now: float, rate: float, spent: float) -> float:
        """What the ramp allows now, where the source has cost `spent` so far; inf when the ramp is over."""
        since = now - self._closed
        if self.state is not State.CLOSED or since >= RAMP_S:
            return inf  # after the ramp; or a probe, which is a single key
        return max(0.0, FIRST + rate * since * since / (2.0 * RAMP_S) - (spent - self._spent))

    def eased(self, now: float) -> float:
        """The part of the whole budget to which spending has risen by now."""
        return min(1.0, (now - self._closed) / RAMP_S)

    def began(self, unit: object) -> None:
        """The unit starts. While the breaker is open it is the probe."""
        if self.state is State.OPEN:
            self._probe = unit

    def answered(self, now: float, spent: float) -> None:
        """The source has answered. `spent` is what it has cost so far."""
        self._answered = now
        self._troubles.clear()
        if self.state is State.OPEN:  # else there is no probe
            self.state, self._probe = State.CLOSED, None
            self._closed, self._spent = now, spent

    def troubled(self, unit: object, now: float) -> None:
        """The source refused the unit, or did not answer it in time."""
        if self.state is State.OPEN:
            if unit is self._probe:
                self._probe, self._opened = None, now
            return
        self._troubles.append(now)
        if len(self._troubles) == TROUBLES and now - self._answered >= SILENT_S:
            self.state, self._opened = State.OPEN, now
            self._troubles.clear()

    def gone(self, unit: object) -> None:
        """The unit has ended in a way that says nothing of the source."""
        if unit is self._probe:
            self._probe = None
