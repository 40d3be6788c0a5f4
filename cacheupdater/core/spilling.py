"""Which hints a collector keeps on disk, and for how long: decisions about segments, without a disk.

Where the queue is away, a collector writes packs into *segments*, and replays them later. One `Spilling` lives as long as
the collector and knows all its segments. It says into which segment a pack goes, when a segment is sealed, which segment
is dropped (too old, or too many bytes), and which is replayed next. `Absence` says when the queue counts as away, and `Pace`
how fast hints are replayed. `collector.spill` and `collector.replay` ask, and `adapters.spill_files` has the bytes.

Changes and misses are *urgent*: their clients have forgotten them once they are on disk. Touches lie in segments of their
own, so that they can be dropped first. How long a hint is kept depends on its kind, for a read of a minute ago is worth
nothing, and a change of an hour ago is worth a refresh. Pure: time is an argument. Ages use the wall clock, for segments
outlive their process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.core.hints import KIND_OF, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    Reason = Literal["expired", "full"]

AWAY_S = 1.0  # without a connection or an acknowledgement; a link that lost its updater finds the next one within a second
SEGMENT_BYTES = 4 * 1024 * 1024  # what a full disk costs at a time, and what a restart reads at a time
SEGMENT_S = 60.0  # from the first pack of a segment to its seal, at most
PARTS = 8  # a segment takes at most this part of the size and of the time kept, so that a drop takes little
SEGMENTS_MAX = 1_000  # files; a queue that comes and goes makes a new one each time
SIZE_MIN = 16 * 1024 * 1024  # bytes: what a single turn can bring must fit
PACE_BURST_S = 0.2  # seconds of the rate that a pause saves up: two turns


class Limits(NamedTuple):
    """What one spill may keep, and how fast it is replayed."""

    changes_s: float = 3600.0
    misses_s: float = 30.0  # later, its reader has loaded the key itself
    touches_s: float = 30.0  # later, the next read says the same
    size: int = 256 * 1024 * 1024  # bytes of all segments
    rate: float = 5_000.0  # keys replayed a second: a quarter of what an updater takes in on a busy core

    def kept_s(self, kind: int) -> float:
        """How long a hint of this kind is kept, from the time when it was spilled."""
        return (self.touches_s, self.misses_s, self.changes_s)[KIND_OF[kind]]


LIMITS = Limits()


@dataclass(slots=True, eq=False)
class Segment:
    """One file of packs. It has no more than its number and these figures here."""

    number: int  # a higher number is younger
    urgent: bool
    size: int = 0  # bytes
    hints: int = 0  # neither replayed nor dropped, repeated ones included
    began_ms: int = 0  # of the first pack; 0 until that is known
    ends_ms: int = 0  # when the last of its hints expires; 0 until that is known
    sealed: bool = False
    read: bool = False  # all its packs are in the outbox, or were


class Spilling:
    """The segments of one directory."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._segments: dict[int, Segment] = {}
        self._open: dict[bool, Segment] = {}
        self._next = 1

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments.values())

    def __contains__(self, segment: Segment) -> bool:
        return self._segments.get(segment.number) is segment

    @property
    def hints(self) -> int:
        """Hints on disk, repeated ones included."""
        return sum(each.hints for each in self)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(each.size for each in self)

    def age_s(self, now_ms: int) -> float:
        """The age of the oldest segment; 0 if there is none, or if the clock was set back."""
        began = [each.began_ms for each in self if each.began_ms]
        return max(0.0, (now_ms - min(began)) / 1000) if began else 0.0

    # --- in -------------------------------------------------------------------------------------------

    def find(self, number: int, *, urgent: bool, size: int) -> Segment:
        """A segment that an earlier process has left."""
        segment = self._segments[number] = Segment(number, urgent, size, sealed=True)
        self._next = max(self._next, number + 1)
        return segment

    def place(self, kind: int, now_ms: int) -> Segment:
        """The segment into which a pack of this kind goes now."""
        urgent = kind != Kind.TOUCH
        segment = self._open.get(urgent)
        if segment is not None and not self._is_full(segment, now_ms):
            return segment
        if segment is not None:
            segment.sealed = True
        fresh = Segment(self._next, urgent, began_ms=now_ms)
        self._next += 1
        self._segments[fresh.number] = self._open[urgent] = fresh
        return fresh

    def _is_full(self, segment: Segment, now_ms: int) -> bool:
        kept_s = max(self.limits.changes_s, self.limits.misses_s) if segment.urgent else self.limits.touches_s
        return (
            segment.sealed
            or segment.size >= min(SEGMENT_BYTES, self.limits.size // PARTS)
            or abs(now_ms - segment.began_ms) >= 1000 * min(SEGMENT_S, kept_s / PARTS)
        )

    def add(self, segment: Segment, kind: int, spilled_ms: int, *, hints: int, size: int = 0) -> None:
        """The segment has this pack. Without a `size`, its bytes were known before."""
        segment.size += size
        segment.hints += hints
        segment.began_ms = min(segment.began_ms or spilled_ms, spilled_ms)
        segment.ends_ms = max(segment.ends_ms, spilled_ms + int(1000 * self.limits.kept_s(kind)))

    def seal(self) -> list[Segment]:
        """Nothing more goes into the segments that were open. Returns these."""
        sealed = list(self._open.values())
        for each in sealed:
            each.sealed = True
        self._open.clear()
        return sealed

    # --- out ------------------------------------------------------------------------------------------

    def remove(self, segment: Segment) -> None:
        """The segment is no more."""
        self._segments.pop(segment.number, None)
        if self._open.get(segment.urgent) is segment:
            del self._open[segment.urgent]

    def to_drop(self, now_ms: int, more: int = 0) -> list[tuple[Segment, Reason]]:
        """What must go before so many more bytes come: first all that has expired, then the oldest touches, then the rest."""
        drops: list[tuple[Segment, Reason]] = [
            (each, "expired") for each in self if 0 < each.ends_ms <= now_ms
        ]
        gone = {each.number for each, _ in drops}
        left = [each for each in self if each.number not in gone]
        size, number = sum(each.size for each in left) + more, len(left)
        if size <= self.limits.size and number < SEGMENTS_MAX:
            return drops
        for each in sorted(left, key=lambda one: (one.urgent, one.number)):
            if size <= self.limits.size and number < SEGMENTS_MAX:
                break
            drops.append((each, "full"))
            size -= each.size
            number -= 1
        return drops

    def lives(self, kind: int, spilled_ms: int, now_ms: int) -> bool:
        """Whether a pack is young enough to be replayed."""
        return now_ms - spilled_ms < 1000 * self.limits.kept_s(kind)

    def is_open(self, number: int) -> bool:
        """Whether packs may still be added to this segment."""
        segment = self._segments.get(number)
        return segment is not None and not segment.sealed

    def next_to_replay(self) -> Segment | None:
        """The oldest sealed segment with urgent hints; without such, the oldest one with touches."""
        ready = [each for each in self if each.sealed and each.ends_ms and not each.read]
        return min(ready, key=lambda one: (not one.urgent, one.number), default=None)


class Absence:
    """Whether the queue is away: no connection, or no acknowledgement although hints wait."""

    def __init__(self, now: float) -> None:
        self._moved_at = now
        self._delivered = 0
        self.away = False
        self.open = False  # the queue takes hints now

    def look(self, now: float, delivered: int, *, connected: bool, waiting: bool) -> None:
        """So many hints were ever delivered, and others wait or not."""
        moved = connected and (not waiting or delivered != self._delivered)
        self._delivered = delivered
        if moved:
            self._moved_at = now
        self.away = now - self._moved_at >= AWAY_S
        self.open = connected and not self.away


class Pace:
    """How many keys may be replayed now."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._at = now
        self._level = 0.0

    def level(self, now: float) -> float:
        """Keys; a pack may be replayed while this is above zero, and is paid for afterwards."""
        self._level = min(self._rate * PACE_BURST_S, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._level

    def pay(self, keys: int) -> None:
        """So many keys are replayed."""
        self._level -= keys
