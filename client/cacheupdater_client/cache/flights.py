"""Single flight: in one process, one caller loads a key and the others wait for its outcome.

One `Flights` belongs to one cache and serves threads and event loops alike. `steps` decides what a flight ends with. A
forked child begins with none, for the callers that would end them stayed in the parent.
"""

from __future__ import annotations

import os
import secrets
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

from cacheupdater_client.cache import forks

if TYPE_CHECKING:
    from collections.abc import Iterable


class Again:
    """How a flight ends whose value its passengers must not take: they read again."""


AGAIN: Final = Again()
Outcome: TypeAlias = bytes | Again | None


@dataclass(slots=True, eq=False)
class Flight:
    """One load. A caller that boards after `closed` may have begun after a change which the load has not seen."""

    outcome: Future[Outcome] = field(default_factory=Future)
    closed: bool = False

    def land(self, outcome: Outcome) -> None:
        """All passengers get this."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: BaseException) -> None:
        """All passengers get this error."""
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(slots=True)
class Boarded:
    """What a caller got: the keys that it loads itself, and the flights of others. `late`: it boarded a closed flight."""

    led: dict[bytes, Flight] = field(default_factory=dict)
    joined: dict[bytes, tuple[Flight, bool]] = field(default_factory=dict)


class Flights:
    """The flights of a cache."""

    def __init__(self) -> None:
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """No flight, and another owner of leases."""
        self._lock = Lock()
        self._flights: dict[bytes, Flight] = {}
        self.owner = f"{os.getpid():x}-{secrets.token_hex(8)}"  # of this process' leases

    def board(self, keys: Iterable[bytes]) -> Boarded:
        """A flight for each key: a new one, which the caller leads, or the one that is under way."""
        boarded = Boarded()
        with self._lock:
            for key in keys:
                flight = self._flights.get(key)
                if flight is None:
                    self._flights[key] = boarded.led[key] = Flight()
                elif key not in boarded.led:
                    boarded.joined[key] = (flight, flight.closed)
        return boarded

    def close(self, flights: Iterable[Flight]) -> None:
        """Whoever boards from now on reads again. Called before a fill, whose success proves nothing about later changes."""
        with self._lock:
            for flight in flights:
                flight.closed = True

    def leave(self, key: bytes, flight: Flight) -> None:
        """The next caller begins a new flight."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
