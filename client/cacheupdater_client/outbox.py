"""Hints that are not delivered yet: by key, then in packs, then in frames that the updater has not acknowledged.

Each target has one Outbox, which lives as long as the target. The sender puts drained hints in (`add`). A link passes on the
updater's hello and acknowledgements and takes frames out (`next_frame`). The outbox knows no thread, no socket and no clock:
the simulation runs it as it is.

A key waits once for each kind, with the number of its hints. A touched key may wait with a token: its reader has filled it.
So may a missed key: its reader waits for an updater. Keys with tokens get packs of their own. Only keys with a declared prefix
are kept. Before the first hello the prefixes are unknown, so nothing leaves. All that waits is bounded, frames under way
included: the oldest hint of the weakest kind is dropped first, and counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from cacheupdater_client.prefixes import matcher, those
from cacheupdater_client.protocol.wire import (
    CHANGE,
    KEY_BYTES_MAX,
    MISS,
    PACK_BYTES_MAX,
    PACK_HINTS_MAX,
    SET,
    TOUCH,
    Hello,
    Malformed,
    decode_pack,
    encode_pack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

KEYS_MAX = 100_000  # keys that wait, frames under way included
BYTES_MAX = 16 * 1024 * 1024  # of those keys
WINDOW_FRAMES = 64  # unacknowledged frames: a full one per partition and turn, for a dozen partitions
WINDOW_BYTES = 4 * 1024 * 1024
KINDS = (TOUCH, MISS, SET, CHANGE)  # the weakest first
# by the weakest kind that may leave: the kinds that do, the strongest first
_LEAVING = {TOUCH: (CHANGE, SET, MISS, TOUCH), MISS: (CHANGE, SET, MISS), CHANGE: (CHANGE, SET)}
SLICE_KEYS = 10_000  # cut into packs at a time; they no longer merge with later hints
_KEY_OVERHEAD = 14  # msgpack's head of a key (5) and its count (9), at most
_TOKEN_OVERHEAD = 9  # of a token
_PACK_BODY_BYTES = PACK_BYTES_MAX - 64  # without the pack's own head


class Piece(NamedTuple):
    """The keys of one future pack."""

    partition: int
    keys: list[bytes]
    counts: list[int]
    tokens: Sequence[int] = ()


class Frame(NamedTuple):
    """A pack on its way to a partition. It may have to be sent again. The link adds what its wire needs around it."""

    partition: int
    pack: bytes
    kind: int
    keys: int
    key_bytes: int
    hints: int


class Outbox:
    """Bounded store of hints for one target, and the window of frames under way."""

    def __init__(
        self,
        only: Sequence[bytes] = (),
        *,
        curious: bool = False,
        settled: Callable[[Frame, bool], None] | None = None,
    ) -> None:
        """A `curious` outbox wants to know the updater's hello before anything waits. `settled` hears of each frame that has
        left the window, and whether it was taken. A collector needs both."""
        self._only = matcher(only)
        self._curious = curious
        self._settled = settled
        self._declared: Callable[[bytes], bool] | None = None
        self._hello: Hello | None = None
        self._pending: list[dict[bytes, int]] = [{} for _ in KINDS]
        # by kind: of pending touches whose readers have filled the key, and of misses whose readers wait
        self._tokens: list[dict[bytes, int]] = [{} for _ in KINDS]
        self._staged: list[deque[Piece]] = [deque() for _ in KINDS]
        self._window: deque[Frame] = deque()
        self._window_bytes = 0
        self._sent = 0  # frames of the window that went down the present connection
        self._acked = 0  # frames that the updater has accepted on the present connection
        self._keys = 0
        self._bytes = 0
        self.waiting = 0  # hints, duplicates counted, that are neither delivered nor dropped
        self.delivered = 0  # hints, duplicates counted, that the updater has acknowledged
        self.dropped: Counter[str] = Counter()
        self.doubtful = False  # hints were dropped that the last hello does not declare; the next updater may declare them
        self.clients = 1  # for so many the process stands: a collector's clients come and go
        self.last_call = False  # the sender is being closed: nothing may wait for company

    def __bool__(self) -> bool:
        """Whether anything waits, frames under way included."""
        return self._keys > 0

    @property
    def under_way(self) -> bool:
        """Whether frames of this connection wait for their acknowledgement."""
        return self._sent > 0

    @property
    def blocked(self) -> bool:
        """Whether hints wait for room in the window, which only acknowledgements can make."""
        return self._keys > sum(frame.keys for frame in self._window) and not self._window_has_room()

    @property
    def calls(self) -> bool:
        """Whether a link that has no connection should open one."""
        return self._keys > 0 or self.doubtful or self._curious

    def restrict(self, only: Sequence[bytes]) -> None:
        """From now on only keys that begin so come in. What waits already stays, until another hello."""
        self._only = matcher(only)

    @property
    def hello(self) -> Hello | None:
        """What the updater has said last; None before its first hello. The same object until it says something else."""
        return self._hello

    @property
    def size(self) -> tuple[int, int]:
        """Keys that wait, and their bytes, frames under way included."""
        return self._keys, self._bytes

    def standing(self, kind: int) -> tuple[int, int]:
        """Keys of this kind that merge with later hints, and keys that are cut and not settled."""
        cut = sum(len(piece.keys) for piece in self._staged[kind])
        return len(self._pending[kind]), cut + sum(each.keys for each in self._window if each.kind == kind)

    @property
    def touches(self) -> int:
        """Touched keys that are not in frames yet. Each piece that has been cut counts as one."""
        return len(self._pending[TOUCH]) + len(self._staged[TOUCH])

    # --- in -------------------------------------------------------------------------------------------

    def add(self, kind: int, counts: Mapping[bytes, int], told: Iterable[tuple[bytes, int]] = ()) -> None:
        """Hints of one kind, as drained. `told` has the tokens of those keys that have one."""
        self.waiting += sum(counts.values())
        self._merge(kind, self._wanted(counts))
        self._shed()
        self._tag(kind, told)

    def add_told(self, kind: int, told: Sequence[tuple[bytes, int]]) -> None:
        """Touches or misses, each with its token."""
        if told:
            self.add(kind, Counter(key for key, _ in told), told)

    def _tag(self, kind: int, told: Iterable[tuple[bytes, int]]) -> None:
        """Of two tokens of one key the younger counts. A key that was dropped has no token."""
        pending, tokens = self._pending[kind], self._tokens[kind]
        for key, token in told:
            if key in pending:
                tokens[key] = max(token, tokens.get(key, 0))

    def _wanted(self, counts: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """The counts without undeclared keys."""
        ours = counts if self._only is None else those(counts, self._only)
        wanted = ours if self._declared is None else those(ours, self._declared)
        self.doubtful = self.doubtful or len(wanted) < len(ours)
        if len(wanted) < len(counts):
            self._forget("undeclared", sum(counts.values()) - sum(wanted.values()))
        return wanted

    def _merge(self, kind: int, counts: Mapping[bytes, int]) -> None:
        pending = self._pending[kind]
        if not pending:  # usual where each turn cuts all, and a tenth of the loop's time
            self._pending[kind] = dict(counts)
            self._keys += len(counts)
            self._bytes += sum(map(len, counts))
            return
        for key, count in counts.items():
            held = pending.get(key)
            if held is None:
                pending[key] = count
                self._keys += 1
                self._bytes += len(key)
            else:
                pending[key] = held + count

    def _shed(self) -> None:
        """Drops what exceeds the bounds, weakest and oldest first. Frames under way stay: they may have arrived."""
        for kind in KINDS:
            if self._keys <= KEYS_MAX and self._bytes <= BYTES_MAX:
                return
            self._unstage(kind)
            self._drop_oldest(kind)

    def _drop_oldest(self, kind: int) -> None:
        pending = self._pending[kind]
        keys, size, victims = self._keys, self._bytes, []
        for key in pending:
            if keys <= KEYS_MAX and size <= BYTES_MAX:
                break
            keys -= 1
            size -= len(key)
            victims.append(key)
        self._forget("full", sum(map(pending.pop, victims)))
        self._untag(kind, victims)
        self._keys, self._bytes = keys, size

    def _untag(self, kind: int, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Takes the tokens of these hints out."""
        tokens = self._tokens[kind]
        return {key: tokens.pop(key) for key in keys if key in tokens} if tokens else {}

    def _forget(self, reason: str, hints: int) -> None:
        if hints:
            self.dropped[reason] += hints
            self.waiting -= hints

    def discard(self, reason: str) -> None:
        """Gives up all that waits."""
        self._forget(reason, self.waiting)
        self._pending, self._tokens = [{} for _ in KINDS], [{} for _ in KINDS]
        self._staged = [deque() for _ in KINDS]
        self._window.clear()
        self._window_bytes = self._sent = self._acked = self._keys = self._bytes = 0

    # --- what the updater says ------------------------------------------------------------------------

    def greet(self, hello: Hello) -> None:
        """A new connection. Unacknowledged frames are sent again; if the hello differs from the last, they are cut anew."""
        self._sent = self._acked = 0
        self.doubtful = False
        if hello == self._hello:
            return
        self._hello = hello
        self._declared = matcher(hello.prefixes)
        self._recall()
        for kind in KINDS:
            self._unstage(kind)
            waiting, self._pending[kind] = self._pending[kind], {}
            self._uncount(waiting)
            self._merge(kind, self._wanted(waiting))
            self._untag(kind, self._tokens[kind].keys() - self._pending[kind].keys())

    def acknowledge(self, accepted: int) -> None:
        """`accepted` frames of this connection are on the updater's queue."""
        arrived = accepted - self._acked
        if not 0 <= arrived <= self._sent:
            raise Malformed("impossible_ack", f"{accepted} accepted, {self._acked + self._sent} sent")
        for _ in range(arrived):
            self.delivered += self._settle(taken=True)

    def refuse(self) -> None:
        """The target will never take the oldest frame of this connection. It is dropped, for it would block the others."""
        if not self._sent:
            raise Malformed("impossible_refusal", "no frame is under way")
        self.dropped["refused"] += self._settle(taken=False)

    def _settle(self, *, taken: bool) -> int:
        """Takes the oldest frame out of the window and returns the number of its hints."""
        frame = self._window.popleft()
        self._window_bytes -= len(frame.pack)
        self._keys -= frame.keys
        self._bytes -= frame.key_bytes
        self.waiting -= frame.hints
        self._sent -= 1
        self._acked += 1
        if self._settled is not None:
            self._settled(frame, taken)
        return frame.hints

    # --- out ------------------------------------------------------------------------------------------

    def next_frame(self, now_ms: int, *, weakest: int = TOUCH) -> Frame | None:
        """The next frame for this connection; None if nothing waits, or the window is full.

        Hints weaker than `weakest` are not cut into frames yet. Frames in the window are sent in any case.
        """
        if self._hello is None:
            return None
        resending = self._sent < len(self._window)
        if not resending and not (self._window_has_room() and self._fill_window(now_ms, weakest)):
            return None
        self._sent += 1
        return self._window[self._sent - 1]

    def _window_has_room(self) -> bool:
        return len(self._window) < WINDOW_FRAMES and self._window_bytes + PACK_BYTES_MAX <= WINDOW_BYTES

    def _fill_window(self, now_ms: int, weakest: int) -> bool:
        for kind in _LEAVING[weakest]:
            if not self._staged[kind]:
                self._stage(kind)
            if self._staged[kind]:
                partition, keys, counts, tokens = self._staged[kind].popleft()
                hints = sum(counts)
                pack = encode_pack(kind, now_ms, keys, counts if hints > len(keys) else (), tokens=tokens)
                frame = Frame(partition, pack, kind, len(keys), sum(map(len, keys)), hints)
                self._window.append(frame)
                self._window_bytes += len(frame.pack)
                return True
        return False

    def _stage(self, kind: int) -> None:
        """Cuts the oldest hints of a kind into pieces, one partition each."""
        assert self._hello is not None
        pending = self._pending[kind]
        if len(pending) <= SLICE_KEYS:
            taken, self._pending[kind] = pending, {}
        else:
            taken = {key: pending.pop(key) for key in list(islice(pending, SLICE_KEYS))}
        tokens = self._untag(kind, taken)
        if tokens:
            self._cut_pieces(kind, {key: taken.pop(key) for key in tokens}, tokens)
        self._cut_pieces(kind, taken, {})

    def _cut_pieces(self, kind: int, taken: Mapping[bytes, int], tokens: Mapping[bytes, int]) -> None:
        """Cuts these hints; `tokens` has one for each key, or is empty."""
        assert self._hello is not None
        partitions = self._hello.partitions
        shares: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in taken:
            shares[crc32(key) % partitions].append(key)  # `partition_of` written out: half the time of a cut
        overhead = _KEY_OVERHEAD + (_TOKEN_OVERHEAD if tokens else 0)
        for partition, keys in shares.items():
            for part in _cut(keys, overhead):
                counts = list(map(taken.__getitem__, part))
                said = list(map(tokens.__getitem__, part)) if tokens else ()
                self._staged[kind].append(Piece(partition, part, counts, said))

    # --- back: nothing is lost when the plan changes ----------------------------------------------------

    def _recall(self) -> None:
        """Takes frames under way back, to be cut anew: they are the oldest of their kind."""
        while self._window:
            frame = self._window.pop()
            pack = decode_pack(frame.pack)
            counts = pack.counts or [1] * len(pack.keys)
            self._staged[frame.kind].appendleft(Piece(0, pack.keys, counts, pack.tokens))
        self._window_bytes = 0

    def _unstage(self, kind: int) -> None:
        """Merges pieces back into the pending hints, before those that came later."""
        pieces, self._staged[kind] = self._staged[kind], deque()
        if not pieces:
            return
        later, self._pending[kind] = self._pending[kind], {}
        for piece in pieces:
            self._uncount(piece.keys)
            self._merge(kind, dict(zip(piece.keys, piece.counts, strict=True)))
        self._uncount(later)
        self._merge(kind, later)
        for piece in pieces:
            self._tag(kind, zip(piece.keys, piece.tokens, strict=False))

    def _uncount(self, keys: Collection[bytes]) -> None:
        self._keys -= len(keys)
        self._bytes -= sum(map(len, keys))


def _cut(keys: list[bytes], overhead: int) -> Iterator[list[bytes]]:
    """Parts that fit into a pack, by number and by bytes; each key takes `overhead` bytes beside its own."""
    for start in range(0, len(keys), PACK_HINTS_MAX):
        part = keys[start : start + PACK_HINTS_MAX]
        pieces = -(-(sum(map(len, part)) + len(part) * overhead) // _PACK_BODY_BYTES)
        if pieces == 1:
            yield part
            continue
        size = max(1, _PACK_BODY_BYTES // (KEY_BYTES_MAX + overhead))  # fits whatever the keys are
        yield from (part[at : at + size] for at in range(0, len(part), size))
