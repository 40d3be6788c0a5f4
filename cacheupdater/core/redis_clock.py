"""When a fence token was taken, by the clock of our event loop.

One per process: the service's probe of Redis tells it Redis' time every few seconds, and the engines ask it about fills. A
token comes from a client, so it may be anything. A token that nobody can have taken yet is not believed. `now` is an argument.
"""

from __future__ import annotations

from math import inf

SKEW_S = 1.0  # a token further ahead was not taken from our Redis; the clocks of a cluster's nodes differ by milliseconds
TRIP_MAX_S = 0.5  # an answer that took longer says too little about the time
KNOWN_S = 60.0  # without a newer answer for so long, clocks may have been set
_UNITS = 1e9  # of a token in a second


class RedisClock:
    """The difference between two clocks, as it was last measured."""

    def __init__(self) -> None:
        self._ahead = 0.0  # Redis' time less ours
        self._measured = -inf

    def told(self, token: int, sent: float, got: float) -> None:
        """Redis has answered with this token. It was asked at `sent`, and answered by `got`."""
        if got - sent <= TRIP_MAX_S:
            self._ahead, self._measured = token / _UNITS - (sent + got) / 2, got

    def taken(self, token: int, now: float) -> float:
        """When the token was taken; never, if that cannot be believed."""
        at = token / _UNITS - self._ahead
        if now - self._measured > KNOWN_S or at > now + SKEW_S:
            return -inf
        return min(at, now)
