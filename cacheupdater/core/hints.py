"""What a client reports: one key was read, was missing, or was changed.

`intake` builds `Hints` from the packs of the queue. The engine consumes them. They live for one call.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.peers import NOBODY

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence


class Kind(IntEnum):
    """The strength of a hint; a merged head takes the strongest that it covers. Same numbers on the wire."""

    TOUCH = 0  # read, found
    MISS = 1  # read, absent
    CHANGE = 2  # the application changed, deleted or invalidated it


KIND_OF = (Kind.TOUCH, Kind.MISS, Kind.CHANGE, Kind.CHANGE)
"""By the kind of a pack. The last kind is `SET`, a change that is marked."""


READS_MAX = 30_000
"""The most reads of one pack, for each client of its sender: a client collects for 100 ms, and its process can read 300,000 keys a
second by long MGETs."""


def believable(counts: Sequence[int], clients: int = 1) -> Sequence[int]:
    """The counts as they came; or, if so many clients cannot read so often between two packs, reduced in proportion.

    A pack's sender says how often it has read. A sender that lies must not decide where the budget goes.
    """
    reads, most = sum(counts), READS_MAX * clients
    return counts if reads <= most else [max(1, count * most // reads) for count in counts]


class Hints(NamedTuple):
    """One decoded pack: hints of one kind, at one offset of one partition."""

    offset: int
    kind: Kind
    keys: Sequence[bytes]
    counts: Sequence[int]  # how often each key was hinted; empty means once each
    peer: int = NOBODY
    tokens: Sequence[
        int
    ] = ()  # of touches: by which load their reader has filled each key; of misses: when it looked, before it waits; of
    # changes that a feed told: when each was committed; or empty
    clients: int = 1  # for so many the peer stood when it sent this
    is_set: bool = False  # of changes: commands have just set these values
    counted: int = 0  # the sum of `counts`, if somebody knows it already: to add up a pack takes 4 ns a key

    @property
    def reads(self) -> int:
        """How often its keys were hinted, all together."""
        return self.counted or sum(self.counts) or len(self.keys)

    @property
    def asks(self) -> Mapping[bytes, int]:
        """How many readers have missed each key; a key that is not there was missed once."""
        counted = self.kind is Kind.MISS and self.counts
        return dict(zip(self.keys, self.counts, strict=True)) if counted else {}

    def without(self, keys: Container[bytes]) -> tuple[Hints, int]:
        """The pack without these keys, and how many hints have left it, repeated ones counted."""
        often = self.counts or [1] * len(self.keys)
        kept = [(key, count) for key, count in zip(self.keys, often, strict=True) if key not in keys]
        counts = tuple(count for _, count in kept)
        tokens = [token for key, token in zip(self.keys, self.tokens, strict=False) if key not in keys]
        left = self._replace(keys=[key for key, _ in kept], counts=counts, tokens=tokens, counted=0)
        return left, sum(often) - sum(counts)
