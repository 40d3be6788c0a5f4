"""Decides whether a consumer that looks healthy is stuck: it waits although the brokers could serve it.

The Kafka queue's watch calls `look` now and then, with its latest view. The result is None, or the reason why the process
should end. There are two signs, and they count only while the brokers answer: no partitions are assigned to us, or a partition
has packs to read and its position does not move. A broker that is away is no sign: then it is right to wait, and the patience
begins again when the broker is back. A `Stall` lives as long as the queue; the clock is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Place(NamedTuple):
    """The state of one partition that may be read."""

    position: int  # the next offset that we read
    end: int  # the offset after the last pack, by the broker


class Sight(NamedTuple):
    """The result of one look of the watch."""

    answers: bool  # whether the brokers answer
    joined: bool  # whether the group has assigned us our partitions, even if there are none
    places: Mapping[int, Place]  # without partitions that are paused on purpose
    trouble: str = ""  # the consumer's latest error, which the reason names


class Stall:
    """How long the consumer has made no progress."""

    def __init__(self, patience: float) -> None:
        """`patience` is the seconds without progress after which the consumer counts as stuck."""
        self._patience = patience
        self._looked: float | None = None
        self._waiting: float | None = None  # since when nothing is assigned
        self._still: dict[
            int, tuple[int, float]
        ] = {}  # by partition: its position, and since when it has not moved

    def look(self, now: float, sight: Sight) -> str | None:
        """The reason to give up, or None."""
        # After a late look, this process itself was held up (stopped, or its loop was blocked): the gap proves no stall.
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
