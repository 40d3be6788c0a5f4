"""When a consumer that looks healthy is stuck: it waits, and the brokers could serve it.

The Kafka queue's watch asks once in a while and gives what it has seen; the answer is None, or the reason with which the
process should end. Two things count, and only while the brokers answer: nothing is assigned to us, or a partition
has something to read and its place does not move. A broker that is away is no reason: waiting is right then, and the
patience begins anew when it is back. It lives as long as the queue; the clock is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Place(NamedTuple):
    """One partition that may be read."""

    position: int  # the next offset that we shall read
    end: int  # what the broker says comes last, and one


class Sight(NamedTuple):
    """What one look has found."""

    answers: bool  # the brokers
    joined: bool  # partitions are assigned to us, be it none
    places: Mapping[int, Place]  # without those that are held back on purpose
    trouble: str = ""  # what the consumer complained of last, for the reason


class Stall:
    """Patience, in one place."""

    def __init__(self, patience: float) -> None:
        """Seconds of standing still that are too many."""
        self._patience = patience
        self._looked: float | None = None
        self._waiting: float | None = None  # since then nothing is assigned
        self._still: dict[int, tuple[int, float]] = {}  # partition: its place, and since when it stands there

    def look(self, now: float, sight: Sight) -> str | None:
        """The reason to give up, or None."""
        # Whoever looks late was held up itself (a stopped process, a blocked loop): what it missed was nobody's standing still.
        late = self._looked is not None and now - self._looked > self._patience / 2
        self._looked = now
        if late or not sight.answers:
            self._waiting = None
            self._still.clear()
            return None
        why = self._unassigned(now, sight) or self._standing(now, sight)
        return f"{why}{f'; the last error was: {sight.trouble}' if sight.trouble else ''}" if why else None

    def _unassigned(self, now: float, sight: Sight) -> str | None:
        if sight.joined:
            self._waiting = None
            return None
        if self._waiting is None:
            self._waiting = now
        waited = now - self._waiting
        if waited < self._patience:
            return None
        return f"no partitions were assigned for {waited:.0f} s although the brokers answer"

    def _standing(self, now: float, sight: Sight) -> str | None:
        before, self._still = self._still, {}
        for partition, place in sight.places.items():
            if place.end <= place.position:
                continue
            position, since = before.get(partition, (place.position, now))
            if position != place.position:
                since = now
            self._still[partition] = (place.position, since)
            if now - since >= self._patience:
                behind = place.end - place.position
                return f"partition {partition} has {behind} packs to read and nothing came for {now - since:.0f} s"
        return None
