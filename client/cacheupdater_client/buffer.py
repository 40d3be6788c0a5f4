"""The hot path: hints wait here, as the application left them, until the sender takes them.

Each client holds one Buffer (clients of one target and encoding share it) and calls `touch` or `add` after a command.
Nothing in here waits, does I/O or raises; nothing takes a lock, so that signal handlers, finalizers and threads may
all add at any moment. The sender's thread calls `drain`.

The bounds cost nothing on the way in, because places are handed out in advance: `lease` is a C iterator that yields as
often as there are free places, and each hint takes one step of it. A place is worth UNIT_BYTES, so that 100,000 places
are 100,000 hints *and* 16 MB; a longer key takes several. When the lease has run out, either the sender does not run
yet (it is started) or the buffer is full (the weakest, oldest hint gives way and is counted).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, repeat
from typing import Protocol

from cacheupdater_client.wire import CHANGE, KEY_BYTES_MAX, MISS, TOUCH

PLACES = 100_000  # hints that may wait; at 100 ms between drains that is a million reads per second
UNIT_BYTES = 160  # what one place may hold: 100,000 x 160 B stay below 16 MiB
SHORT_KEY = UNIT_BYTES // 4  # characters; UTF-8 needs at most four bytes for one

_EMPTY = repeat(None, 0)


class Attendant(Protocol):
    """The sender, as a buffer sees it. Both calls return at once, whatever the state of things."""

    def attend(self) -> None:
        """A lease has run out: see to it that somebody drains."""

    def hurry(self) -> None:
        """A change waits."""


class Buffer:
    """Bounded, thread-safe and re-entrant; 1 step of a C iterator and 1 append for a common key."""

    __slots__ = (
        "_attendant",
        "_changes",
        "_encode",
        "_misses",
        "_surplus",
        "_touches",
        "drained",
        "dropped",
        "lease",
        "touch",
    )

    touch: Callable[[object], None]

    def __init__(self, encode: Callable[[object], bytes | memoryview], attendant: Attendant) -> None:
        self._encode = encode
        self._attendant = attendant
        self._touches: deque[str | bytes] = deque(maxlen=PLACES)
        self._misses: deque[str | bytes] = deque(maxlen=PLACES)
        self._changes: deque[str | bytes] = deque(maxlen=PLACES)
        self._surplus = 0  # places that long keys take beyond their first
        self.drained = 0
        # Plain numbers and dict entries are changed without a lock: CPython switches threads only at calls and jumps.
        self.dropped: Counter[str] = Counter()
        self.lease = _EMPTY
        self.touch = self._make_touch()

    def _make_touch(self) -> Callable[[object], None]:
        """A closure: 40 ns cheaper than a method that looks its parts up."""
        append = self._touches.append

        def touch(key: object) -> None:
            """The key was read and found."""
            if type(key) is str and len(key) <= SHORT_KEY:
                for _ in self.lease:
                    append(key)
                    return
            self.add(TOUCH, key)

        return touch

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
        if kind == TOUCH:
            for key in keys:
                self.touch(key)
        else:
            for key in keys:
                self.add(kind, key)

    def _take(self, kind: int, places: int) -> bool:
        """Takes places for one hint, from the lease or from weaker hints. False if it must be dropped itself."""
        missing = places - sum(1 for _ in islice(self.lease, places))
        if missing:
            self._attendant.attend()
            self.renew()
            missing = places - sum(1 for _ in islice(self.lease, places))
        if missing and not self._evict(kind, missing):
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

    def renew(self) -> None:
        """Hands out as many places as are free."""
        self.lease = repeat(None, max(0, PLACES - len(self) - self._surplus))

    def chill(self) -> None:
        """Nobody drains from now on: the next hint will say so to the attendant."""
        self.lease = _EMPTY

    def reborn(self) -> None:
        """After a fork: what waited is the parent's."""
        for queue in (self._touches, self._misses, self._changes):
            queue.clear()
        self._surplus = self.drained = 0
        self.dropped = Counter()
        self.chill()

    def __len__(self) -> int:
        return len(self._touches) + len(self._misses) + len(self._changes)

    def drain(self) -> list[tuple[int, Mapping[bytes, int]]]:
        """All that waits, strongest first, as bytes with their counts."""
        batches = []
        for kind, queue in ((CHANGE, self._changes), (MISS, self._misses), (TOUCH, self._touches)):
            if queue:
                batches.append((kind, self._count(queue)))
        self.renew()
        return batches

    def _count(self, queue: deque[str | bytes]) -> dict[bytes, int]:
        taken = Counter(_pop(queue, len(queue)))
        counts: dict[bytes, int] = {}
        for key, count in taken.items():
            self.drained += count
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


def _pop(queue: deque[str | bytes], size: int) -> Iterable[str | bytes]:
    try:
        for _ in range(size):
            yield queue.popleft()
    except IndexError:  # an eviction in another thread was faster
        return
