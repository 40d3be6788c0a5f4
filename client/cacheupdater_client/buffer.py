"""The hot path: hints wait here, as the application left them, until the sender takes them.

Each client holds one Buffer (clients of one target and encoding share it) and calls `touch` or `add` after a command.
Nothing in here waits, does I/O or raises; nothing takes a lock, so that signal handlers, finalizers and threads may
all add at any moment. The sender's thread calls `drain`.

The bounds cost next to nothing on the way in, because places are handed out in advance: `lease` is a C iterator with
one step for each free place, and each hint takes a step. (What a step yields is the function that appends a touch: one
look-up less.) A place is worth UNIT_BYTES, so that 100,000 places are 100,000 hints *and* 16 MB; a longer key takes
several. When the lease has run out, either the sender does not run yet (it is started) or the buffer is full (the
weakest, oldest hint gives way and is counted).
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cacheupdater_client.wire import CHANGE, KEY_BYTES_MAX, MISS, TOUCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLACES = 100_000  # hints that may wait; at 100 ms between drains that is a million reads per second
UNIT_BYTES = 160  # what one place may hold: 100,000 x 160 B stay below 16 MiB
SHORT_KEY = UNIT_BYTES // 4  # characters; UTF-8 needs at most four bytes for one

Append: TypeAlias = Callable[[str | bytes], None]
_EMPTY: Iterator[Append] = iter(())


class KeyEncoder(Protocol):
    """redis-py's Encoder, as far as it matters here."""

    encoding: str
    encoding_errors: str

    def encode(self, value: object, /) -> bytes | memoryview:
        """Bytes for whatever redis-py takes as a key; raises for anything else."""


class Attendant(Protocol):
    """The sender, as a buffer sees it. Both calls return at once, whatever the state of things."""

    def attend(self) -> bool:
        """A lease has run out: see to it that somebody drains. False if nobody will for now."""

    def hurry(self) -> None:
        """A change waits."""


class Buffer:
    """Bounded, thread-safe and re-entrant; one step of a C iterator and one append for a common key."""

    __slots__ = (
        "_attendant",
        "_changes",
        "_encode",
        "_misses",
        "_plain",
        "_surplus",
        "_touches",
        "dropped",
        "lease",
    )

    def __init__(self, encoder: KeyEncoder, attendant: Attendant) -> None:
        self._encode = encoder.encode
        self._plain = (encoder.encoding.lower(), encoder.encoding_errors) == ("utf-8", "strict")
        self._attendant = attendant
        # No maxlen: it would drop without counting. A thread that is interrupted between its place and its hint while
        # the sender drains can exceed the places by that one hint.
        self._touches: deque[str | bytes] = deque()
        self._misses: deque[str | bytes] = deque()
        self._changes: deque[str | bytes] = deque()
        self._surplus = 0  # places that long keys take beyond their first
        # Plain numbers and dict entries are changed without a lock: CPython switches threads only at calls and jumps.
        self.dropped: Counter[str] = Counter()
        self.lease: Iterator[Append] = _EMPTY

    def touch(self, key: object) -> None:
        """The key was read and found. The clients' `get` has these lines written out: keep them alike."""
        if type(key) is str and len(key) <= SHORT_KEY:
            for append in self.lease:
                append(key)
                return
        self.add(TOUCH, key)

    def miss(self, key: object) -> None:
        """The key was read and was not there."""
        if type(key) is str and len(key) <= SHORT_KEY:
            for _ in self.lease:
                self._misses.append(key)
                return
        self.add(MISS, key)

    def add(self, kind: int, key: object) -> None:
        """One hint of any kind, for any key that redis-py takes. Bytes that could still change are copied."""
        try:
            data = bytes(self._encode(key))
        except Exception:  # noqa: BLE001  a foreign encoder may raise anything, and the caller must not notice
            self.dropped["unencodable"] += 1
            return
        if not 0 < len(data) <= KEY_BYTES_MAX:
            self.dropped["oversized" if data else "unencodable"] += 1
            return
        if self._take(kind, _places(data)):
            (self._touches, self._misses, self._changes)[kind].append(data)
            if kind == CHANGE:
                self._attendant.hurry()

    def add_all(self, kind: int, keys: Iterable[object]) -> None:
        """One hint for each key."""
        for key in keys:
            if kind == TOUCH:
                self.touch(key)
            elif kind == MISS:
                self.miss(key)
            else:
                self.add(kind, key)

    def _take(self, kind: int, places: int) -> bool:
        """Takes places for one hint, from the lease or from weaker hints. False if it must be dropped itself."""
        missing = places - sum(1 for _ in islice(self.lease, places))
        if missing and self._attendant.attend():
            self.renew()
            missing = places - sum(1 for _ in islice(self.lease, places))
        elif missing:  # nobody drains: a place without a lease, so that the next hint asks again
            missing = places - self._free
        if missing > 0 and not self._evict(kind, missing):
            self.dropped["full"] += 1
            return False
        self._surplus += places - 1
        return True

    def _evict(self, kind: int, places: int) -> bool:
        """Drops the oldest touch, then miss, then change, but nothing stronger than `kind`."""
        for queue in (self._touches, self._misses, self._changes)[: kind + 1]:
            while places > 0 and queue:
                try:
                    gone = _places(queue.popleft())
                except IndexError:  # the sender was faster
                    break
                places -= gone
                self._surplus -= gone - 1
                self.dropped["full"] += 1
        return places <= 0

    @property
    def _free(self) -> int:
        return max(0, PLACES - len(self) - self._surplus)

    def renew(self) -> None:
        """Hands out as many places as are free."""
        self.lease = repeat(self._touches.append, self._free)

    def chill(self) -> None:
        """Nobody drains from now on: the next hint will say so to the attendant."""
        self.lease = _EMPTY

    def reborn(self) -> None:
        """After a fork: what waited is the parent's."""
        for queue in (self._touches, self._misses, self._changes):
            queue.clear()
        self._surplus = 0
        self.dropped = Counter()
        self.chill()

    def __len__(self) -> int:
        return len(self._touches) + len(self._misses) + len(self._changes)

    def drain(self) -> list[tuple[int, Mapping[bytes, int]]]:
        """All that waits, strongest first, as bytes with their counts."""
        batches: list[tuple[int, Mapping[bytes, int]]] = []
        for kind, queue in ((CHANGE, self._changes), (MISS, self._misses), (TOUCH, self._touches)):
            if queue:
                batches.append((kind, self._count(queue)))
        self.renew()
        return batches

    def _count(self, queue: deque[str | bytes]) -> dict[bytes, int]:
        taken = Counter(_pop(queue, len(queue)))
        if self._plain and "" not in taken:
            # What redis-py's encoder does with text, without its calls: a fifth of the time. One by one below where
            # there are bytes among them, or text that is none.
            with contextlib.suppress(TypeError, UnicodeEncodeError):
                return dict(zip(map(str.encode, taken), taken.values(), strict=True))  # type: ignore[arg-type]  # see above
        counts: dict[bytes, int] = {}
        for key, count in taken.items():
            try:
                data = key if isinstance(key, bytes) else bytes(self._encode(key))
            except Exception:  # noqa: BLE001  as in add
                data = b""
            if not data:
                self.dropped["unencodable"] += count
                continue
            if len(data) > UNIT_BYTES:
                self._surplus -= (_places(data) - 1) * count
            counts[data] = counts.get(data, 0) + count
        return counts


def _places(key: str | bytes) -> int:
    return 1 if isinstance(key, str) else -(-len(key) // UNIT_BYTES)


def _pop(queue: deque[str | bytes], size: int) -> list[str | bytes]:
    popped: list[str | bytes] = []
    with contextlib.suppress(IndexError):  # an eviction in another thread was faster
        for _ in range(size):
            popped.append(queue.popleft())  # noqa: PERF401  what has been popped must not be lost with the exception
    return popped
