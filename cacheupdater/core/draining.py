"""What a drain sends next, what it may commit on the old queue, and when nothing is left there.

A drain carries the packs of an old queue to a new one. It sends one `Wave` at a time: hints of about the same age, merged by key,
whatever partitions they come from. The wave has the time of its oldest hint, and so its packs on the new queue tell an updater how
old the hints are. Only once the new queue has all of a wave are its packs finished here, and only then may the old queue
forget them. Packs are committed in their order, though waves may finish them in another.

`collector.carrying` makes one `Draining`. Plain data: no clock, no socket, no `await`.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import believable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater_client.protocol.wire import Pack

WAVE_MS = (
    1000  # ages within a wave differ by less; reads are worth a minute, so a second more does not matter
)
WAVE_KEYS = (
    20_000  # the last pack may exceed it. A fifth of what the outbox holds, so that it never drops any
)
WAVE_BYTES = 4 * 1024 * 1024  # of keys; the last pack may exceed it
HELD_KEYS = 60_000  # three waves, so that reading goes on while one is sent; what was under way may exceed it
HELD_BYTES = 12 * 1024 * 1024
HELD_PACKS = 4_000  # each wave looks at all of them
# Seconds without a pack, until the old queue counts as drained. A busy client sends hints far more often, and one that is being
# restarted is back by then. One that sends once an hour is not seen: the page on moving says to look again
QUIET_S = 60.0


class _Held:
    """A pack of the old queue that was read and is not finished. One that nobody can read is finished at once."""

    __slots__ = ("offset", "pack")

    def __init__(self, offset: int, pack: Pack | None) -> None:
        self.offset = offset
        self.pack = pack  # None once it is finished


class Done(NamedTuple):
    """What may be committed on the old queue."""

    partition: int
    epoch: int
    done: int  # everything before it is on the new queue


class Batch(NamedTuple):
    """The hints of one kind in a wave."""

    counts: dict[bytes, int]
    tokens: dict[bytes, int]


class Wave(NamedTuple):
    """What is sent together."""

    emitted_ms: int  # of its oldest hint
    batches: dict[int, Batch]  # by the kind of their packs
    packs: list[_Held]


class _Shelf:
    """A partition of the old queue that is ours."""

    def __init__(self, epoch: int, offset: int) -> None:
        self.epoch = epoch
        self.next = self.committed = offset
        self.held: deque[_Held] = deque()

    @property
    def done(self) -> int:
        return self.held[0].offset if self.held else self.next

    def tidy(self) -> None:
        while self.held and self.held[0].pack is None:
            self.held.popleft()


class Draining:
    """The packs that one process is carrying."""

    def __init__(self, now: float, *, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._shelves: dict[int, _Shelf] = {}
        self._stirred_at = now
        self._keys = self._bytes = self._packs = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be read from the old queue."""
        return self._keys < HELD_KEYS and self._bytes < HELD_BYTES and self._packs < HELD_PACKS

    @property
    def waiting(self) -> int:
        """Hints that were read and are not on the new queue, repeated ones included."""
        return sum(sum(each.pack.counts) or len(each.pack.keys) for each in self._held() if each.pack)

    @property
    def owned(self) -> int:
        """Partitions that are ours."""
        return len(self._shelves)

    # --- the old queue ----------------------------------------------------------------------------------

    def gain(self, partition: int, epoch: int, offset: int, *, now: float) -> None:
        """This partition is ours, from this offset on."""
        self._shelves[partition] = _Shelf(epoch, offset)
        self.stir(now)

    def lose(self, partition: int, *, now: float) -> None:
        """The next owner reads again what is not committed."""
        shelf = self._shelves.pop(partition, None)
        for each in shelf.held if shelf else ():
            self._let_go(each)
        self.stir(now)

    def read(self, done: Done, pack: Pack | None, *, now: float) -> None:
        """A pack of this partition and epoch, at the offset `done`. None: nobody can read it."""
        shelf = self._shelves.get(done.partition)
        if shelf is None or shelf.epoch != done.epoch:
            return
        held = _Held(done.done, pack)
        shelf.held.append(held)
        shelf.next = done.done + 1
        if pack is not None:
            self._keys += len(pack.keys)
            self._bytes += sum(map(len, pack.keys))
            self._packs += 1
        shelf.tidy()
        self.stir(now)

    def to_commit(self) -> list[Done]:
        """What the old queue may forget, and has not been told."""
        return [
            Done(partition, shelf.epoch, shelf.done)
            for partition, shelf in self._shelves.items()
            if shelf.done > shelf.committed
        ]

    def committed(self, done: Done) -> None:
        """The old queue has taken this commit."""
        shelf = self._shelves.get(done.partition)
        if shelf is not None and shelf.epoch == done.epoch:
            shelf.committed = max(shelf.committed, done.done)

    # --- the new queue ----------------------------------------------------------------------------------

    def next_wave(self) -> Wave | None:
        """The oldest hints, for the new queue. Called once the wave before it is finished."""
        oldest = min((each.pack.emitted_ms for each in self._held() if each.pack), default=None)
        if oldest is None:
            return None
        wave = Wave(oldest, {}, [])
        keys = size = 0
        for each in self._held():
            pack = each.pack
            if pack is None or pack.emitted_ms - oldest >= WAVE_MS:
                continue
            wave.packs.append(each)
            _merge(wave.batches.setdefault(pack.kind, Batch({}, {})), pack)
            keys += len(pack.keys)
            size += sum(map(len, pack.keys))
            if keys >= WAVE_KEYS or size >= WAVE_BYTES:
                break
        return wave

    def finish(self, wave: Wave) -> None:
        """The new queue has all of this wave."""
        for each in wave.packs:
            self._let_go(each)
        for shelf in self._shelves.values():
            shelf.tidy()

    # --- the end ----------------------------------------------------------------------------------------

    def stir(self, now: float) -> None:
        """The old queue is not known to be empty: a pack has come, another owner may have packs, or the queue is away."""
        self._stirred_at = now

    def quiet(self, now: float) -> bool:
        """Whether nothing has come for so long that nothing will, and nothing is left here."""
        return not self._packs and not self.to_commit() and now - self._stirred_at >= self._quiet_s

    # ----------------------------------------------------------------------------------------------------

    def _held(self) -> Iterator[_Held]:
        for shelf in self._shelves.values():
            yield from shelf.held

    def _let_go(self, held: _Held) -> None:
        """Idempotent: a partition may be lost while its packs are in a wave."""
        pack, held.pack = held.pack, None
        if pack is not None:
            self._keys -= len(pack.keys)
            self._bytes -= sum(map(len, pack.keys))
            self._packs -= 1


def _merge(batch: Batch, pack: Pack) -> None:
    """Counts are made believable here: once they are merged, the updater cannot know any more who has lied."""
    counts, tokens = batch.counts, batch.tokens
    for key, count in zip(pack.keys, believable(pack.counts) or repeat(1)):  # noqa: B905  `repeat` has no end
        counts[key] = counts.get(key, 0) + count
    for key, token in zip(pack.keys, pack.tokens, strict=False):
        tokens[key] = max(token, tokens.get(key, 0))
