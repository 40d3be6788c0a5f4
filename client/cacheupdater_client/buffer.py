"""The hot path: hints wait here, as the application left them, until the sender drains them.

Each client holds one Buffer (clients of one target and encoding share it) and calls `touch` or `add` after a command.
Nothing in here waits, does I/O or raises. Nothing takes a lock, so signal handlers, finalizers and threads may all add at
any moment. The sender's thread calls `drain`.

The bounds cost a hint next to nothing, because places are handed out in advance. `lease` is a C iterator with one step for
each free place, and each hint takes one step. (A step yields the function that appends a touch, which saves a look-up.) A
place holds UNIT_BYTES, so 100,000 places bound the hints to 100,000 *and* their memory to 16 MB. A longer key is followed
by blanks, one for each further place. So the lengths of the queues are the places taken, and no separate sum can drift.
When the lease has run out, either the sender does not run yet, and is started; or the buffer is full, and the weakest and
oldest hint is dropped and counted.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from operator import concat, countOf, length_hint
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from cacheupdater_client import quiet
from cacheupdater_client.protocol.wire import CHANGE, CHANGES, KEY_BYTES_MAX, MISS, SET, TOUCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACES = 100_000  # hints that may wait; at 100 ms between drains that is a million reads per second
UNIT_BYTES = 160  # what one place may hold: 100,000 x 160 B stay below 16 MiB
SHORT_KEY = UNIT_BYTES // 4  # characters; UTF-8 needs at most four bytes for one
PIECE_BYTES = 768  # of keys that are checked together: below KEY_BYTES_MAX, as some are longer than the first

# two kinds of this module alone
FILL = 4  # a touch with the token of the load by which its reader has filled the key
AWAITED = 5  # a miss whose reader waits for an updater, with the token of its look
TOKEN_BYTES = 8
_EVICTED = (
    (TOUCH,),
    (TOUCH, FILL, MISS),
    (TOUCH, FILL, MISS, AWAITED, SET, CHANGE),
    (TOUCH, FILL, MISS, AWAITED, SET),
    (TOUCH, FILL),
    (TOUCH, FILL, MISS, AWAITED),
)  # by kind: whose oldest make room for it, the weakest first
_URGENT = CHANGES | {AWAITED}

RENEWALS_MAX = 3  # attempts to count what is free while other threads add; one suffices nearly always

Item: TypeAlias = str | bytes | None  # a key, or a blank
Append: TypeAlias = Callable[[str | bytes], None]
_BLANKS = [
    (None,) * ((size - 1) // UNIT_BYTES if size else 0) for size in range(TOKEN_BYTES + KEY_BYTES_MAX + 1)
]  # by a key's bytes, which may have a token before them
_EMPTY: Iterator[Append] = iter(())


class KeyEncoder(Protocol):
    """The part of redis-py's Encoder that matters here."""

    encoding: str
    encoding_errors: str

    def encode(self, value: object, /) -> bytes | memoryview:
        """The bytes of a key that redis-py accepts; raises for anything else."""


class Attendant(Protocol):
    """The sender, as a buffer sees it. Both calls always return at once."""

    def attend(self, buffer: Buffer) -> bool:
        """A lease has run out: makes sure that a thread drains the buffer. False if none will for now."""

    def hurry(self) -> None:
        """A change waits, or a reader."""


class Buffer:
    """Bounded, thread-safe and re-entrant; one step of a C iterator and one append for a common key."""

    __slots__ = (
        "__weakref__",
        "_asleep",
        "_attendant",
        "_encode",
        "_may_renew",
        "_misses",
        "_plain",
        "_queues",
        "_touches",
        "dropped",
        "lease",
    )

    def __init__(self, encoder: KeyEncoder, attendant: Attendant) -> None:
        self._encode = encoder.encode
        self._plain = (encoder.encoding.lower(), encoder.encoding_errors) == ("utf-8", "strict")
        self._attendant = attendant
        self._may_renew = deque([True])  # the thread that has taken it out renews; no other waits for it
        # Plain numbers and dict entries are changed without a lock: CPython switches threads only at calls and jumps.
        self.dropped: defaultdict[str, int] = defaultdict(int)
        self.wake()

    def wake(self) -> None:
        """Keeps hints from now on."""
        # No maxlen: it would drop without counting. A thread that is interrupted between its place and its hint while
        # the sender drains can exceed the places by that one hint.
        self._queue_up(*(deque() for _ in _EVICTED))
        self._asleep = False
        self.lease: Iterator[Append] = _EMPTY

    def sleep(self) -> None:
        """Hints have no target: each is discarded, as fast as a touch, until `wake`."""
        nothing: deque[Item] = deque(maxlen=0)
        self._asleep = True
        self._queue_up(*(nothing for _ in _EVICTED))
        self.lease = repeat(nothing.append)

    def _queue_up(self, *queues: deque[Item]) -> None:
        self._touches, self._misses = queues[TOUCH], queues[MISS]
        self._queues = queues  # by kind

    def touch(self, key: object) -> None:
        """The key was read and found. The clients' `get` has these lines written out for text: keep them alike."""
        if (type(key) is str and len(key) <= SHORT_KEY) or (type(key) is bytes and len(key) <= UNIT_BYTES):
            for append in self.lease:
                append(key)
                return
        self.add(TOUCH, key)

    def touch_all(self, keys: Sequence[bytes]) -> None:
        """The keys were read and found. Their bytes each fit into one place, as their maker knows without a look at them."""
        if not (quiet.inside and quiet.is_quiet()):
            self._put(TOUCH, keys)

    def miss(self, key: object) -> None:
        """The key was read and was not there."""
        if type(key) is str and len(key) <= SHORT_KEY:
            for _ in self.lease:
                self._misses.append(key)
                return
        self.add(MISS, key)

    def fill(self, key: object, token: int) -> None:
        """The key was read and was not there, and its reader has filled it by a load of this token."""
        self._tell(FILL, key, token)

    def awaited(self, key: object, token: int) -> None:
        """The key's reader has looked at the time of this token, and waits until an updater has filled the key.

        Leaves within `no_emit` too, for nobody else loads the key.
        """
        self._tell(AWAITED, key, token)

    def _tell(self, kind: int, key: object, token: int) -> None:
        data = self._data_of(key)
        if data is not None:
            told = token.to_bytes(TOKEN_BYTES) + data
            self._put(kind, (told, *_BLANKS[len(told)]))

    def add(self, kind: int, key: object) -> None:
        """One hint of any kind, for any key that redis-py takes. Bytes that could still change are copied."""
        if quiet.inside and kind not in CHANGES and quiet.is_quiet():
            return
        data = self._data_of(key)
        if data is not None:
            self._put(kind, (data, *_BLANKS[len(data)]))

    def add_all(self, kind: int, keys: Sequence[object]) -> None:
        """One hint for each key. Keys of one type take their places together, without a loop in Python."""
        if quiet.inside and kind not in CHANGES and quiet.is_quiet():
            return
        if len(keys) == 1:
            self._add_one(kind, keys[0])
        elif keys:
            items = self._alike(keys)
            self._put(kind, self._one_by_one(keys) if items is None else items)

    def _add_one(self, kind: int, key: object) -> None:
        if kind == TOUCH:
            self.touch(key)
        elif kind == MISS:
            self.miss(key)
        else:
            self.add(kind, key)

    def _alike(self, keys: Sequence[object]) -> Sequence[Item] | None:
        """The keys with their blanks, where all are text or all are bytes and none is too long."""
        first = keys[0]
        is_text = type(first) is str and self._plain
        if not is_text and countOf(map(type, keys), bytes) < len(keys):  # other types could still change
            return None
        data: Sequence[str | bytes] = keys  # type: ignore[assignment]  # all bytes; or text, as is found out below
        try:
            if len(first) <= UNIT_BYTES and _short_together(data, "".join if is_text else b"".join):  # type: ignore[arg-type]  # one kind
                return data
            if is_text:
                data = _as_long_as_bytes(data)  # type: ignore[arg-type]  # TypeError, if not
        except (TypeError, UnicodeEncodeError):  # a key of another type, or text that UTF-8 cannot encode
            return None
        longest = len(max(data, key=len))
        if longest <= UNIT_BYTES:
            return data
        if longest > KEY_BYTES_MAX:
            return None
        return list(chain.from_iterable(map(concat, zip(data), map(_BLANKS.__getitem__, map(len, data)))))

    def _one_by_one(self, keys: Sequence[object]) -> list[Item]:
        items: list[Item] = []
        for data in map(self._data_of, keys):
            if data is not None:
                items.append(data)
                items += _BLANKS[len(data)]
        return items

    def _data_of(self, key: object) -> bytes | None:
        """The key as redis-py sends it. An invalid one is counted, and None is returned."""
        try:
            if type(key) is bytes:
                data = key
            elif type(key) is str and self._plain:
                data = key.encode()  # what redis-py's encoder does, without its calls
            else:
                data = bytes(self._encode(key))
        except Exception:  # noqa: BLE001  a foreign encoder may raise anything, and the caller must not notice
            data = b""
        if 0 < len(data) <= KEY_BYTES_MAX:
            return data
        self.dropped["oversized" if data else "unencodable"] += 1
        return None

    def _put(self, kind: int, items: Sequence[Item]) -> None:
        """Appends hints and blanks before it takes their places: a thread that renews the lease in between counts them."""
        self._queues[kind].extend(items)
        if items and next(islice(self.lease, len(items) - 1, None), None) is None:  # takes a step for each
            if self._attendant.attend(self):
                self.renew()
            excess = min(len(items), self._places - PLACES)
            if excess > 0:
                self._evict(kind, excess)
        if kind in _URGENT:
            self._attendant.hurry()

    def _evict(self, kind: int, places: int) -> None:
        """Drops the oldest touches, then fills, misses and changes, but nothing stronger than `kind`."""
        gone: list[Item] = []
        for weak in _EVICTED[kind]:
            gone += _pop(self._queues[weak], places - len(gone))
        self.dropped["full"] += len(gone) - gone.count(None)

    @property
    def waits(self) -> bool:
        """Whether anything is to be drained."""
        return any(self._queues)

    @property
    def _places(self) -> int:
        return sum(map(len, self._queues))

    def renew(self) -> None:
        """Hands out all free places. The sum shows whether hints came during the count; if so, it counts again."""
        try:
            self._may_renew.pop()
        except IndexError:  # another thread, or the code that we interrupt, is renewing
            return
        try:
            if self._asleep:
                self.lease = repeat(self._touches.append)
                return
            for _ in range(RENEWALS_MAX):
                self.lease = _EMPTY
                if quiet.inside:  # each hint must ask who leaves it
                    return
                self.lease = repeat(self._touches.append, max(0, PLACES - self._places))
                if length_hint(self.lease) + self._places <= max(PLACES, self._places) and not quiet.inside:
                    return
            self.lease = _EMPTY  # the next hint tries again
        finally:
            self._may_renew.append(True)

    def chill(self) -> None:
        """No thread drains from now on: the next hint will call the attendant."""
        self.lease = _EMPTY

    def begin_after_fork(self) -> None:
        """In a forked child: waiting hints are the parent's, and so is a thread that was renewing."""
        self._may_renew = deque([True])
        self.dropped = defaultdict(int)
        self.wake()

    def __len__(self) -> int:
        """Hints that wait."""
        return sum(len(queue) - queue.count(None) for queue in self._queues)

    def drain_told(self, kind: int) -> list[tuple[bytes, int]]:
        """All waiting hints of FILL or AWAITED: keys and tokens. Their places are free again after the next `drain`."""
        queue = self._queues[kind]
        told = [each for each in _pop(queue, len(queue)) if isinstance(each, bytes)]
        return [(each[TOKEN_BYTES:], int.from_bytes(each[:TOKEN_BYTES])) for each in told]

    def drain(self) -> list[tuple[int, Mapping[bytes, int]]]:
        """All waiting hints without tokens, strongest kind first: keys as bytes, with their counts."""
        batches: list[tuple[int, Mapping[bytes, int]]] = []
        for kind in (CHANGE, SET, MISS, TOUCH):
            queue = self._queues[kind]
            if queue:
                batches.append((kind, self._count(queue)))
        self.renew()
        return batches

    def _count(self, queue: deque[Item]) -> dict[bytes, int]:
        taken: dict[Item, int] = Counter(_pop(queue, len(queue)))
        taken.pop(None, None)
        if self._plain and "" not in taken:
            # This does what redis-py's encoder does with text, without its calls, in a fifth of the time. If there are
            # bytes among the keys, or text that UTF-8 cannot encode, they are encoded one by one below.
            with contextlib.suppress(TypeError, UnicodeEncodeError):
                return dict(zip(map(str.encode, taken), taken.values(), strict=True))  # type: ignore[arg-type]  # see above
        if set(map(type, taken)) == {bytes} and b"" not in taken:
            return cast("dict[bytes, int]", taken)
        counts: dict[bytes, int] = {}
        for key, count in taken.items():
            try:
                data = key if isinstance(key, bytes) else bytes(self._encode(key))
            except Exception:  # noqa: BLE001  as in _data_of
                data = b""
            if data:
                counts[data] = counts.get(data, 0) + count
            else:
                self.dropped["unencodable"] += count
        return counts


def _short_together(
    keys: Sequence[str | bytes], join: Callable[[Sequence[str | bytes]], str | bytes]
) -> bool:
    """Whether the keys can be sent as they stand and together fill no more than one place each.

    The keys are joined in pieces: that is twice as fast as a look at the length of each. A piece has at most
    KEY_BYTES_MAX, so no key is too long. If the oldest keys of a piece are dropped, the others exceed their places by
    less than that. Raises TypeError if not all are text.
    """
    step = PIECE_BYTES // (len(keys[0]) + 1) or 1
    for at in range(0, len(keys), step):
        piece = keys[at : at + step]
        joined = join(piece)
        if len(joined) > KEY_BYTES_MAX or len(joined) > UNIT_BYTES * len(piece):
            return False
        if type(joined) is str and not joined.isascii():
            return False
    return True


def _as_long_as_bytes(text: Sequence[str]) -> Sequence[str | bytes]:
    """The keys as objects whose length is that of their bytes. Raises TypeError if not all are text."""
    # joining is twice as fast, unless it moves megabytes
    ascii_ = "".join(text).isascii() if len(text[0]) <= SHORT_KEY else all(map(str.isascii, text))
    return text if ascii_ else list(map(str.encode, text))


def _pop(queue: deque[Item], size: int) -> list[Item]:
    popped: list[Item] = []
    with contextlib.suppress(IndexError):  # an eviction in another thread was faster
        for _ in range(size):
            popped.append(queue.popleft())  # noqa: PERF401  what has been popped must not be lost with the exception
    return popped
