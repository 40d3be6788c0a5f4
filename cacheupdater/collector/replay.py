"""The replay: once the queue is back, the packs of a spill are sent again, beside fresh hints.

`Spill` makes one, and asks for a turn of it while the queue takes hints. Fresh hints go first: packs are put behind them into
the same outbox, at the rate of `Limits`, and never more than `UNDER_WAY_MAX` keys at a time. The oldest segment comes first,
and changes and misses come before touches. A segment is read pack by pack, and is finished once the queue has taken all its
packs. A collector that dies before that leaves the segment to the next one, so packs arrive at least once.

A replayed pack has a receipt, as the frame of a client has, and these receipts are kept apart (`core.receipts`).
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.collector.spilled_packs import Packs
from cacheupdater.core.hints import KIND_OF
from cacheupdater.core.peers import NOBODY
from cacheupdater.core.receipts import Receipt, Receipts
from cacheupdater.core.spilling import Pace
from cacheupdater.errors import Unavailable
from cacheupdater_client.outbox import KINDS

if TYPE_CHECKING:
    from cacheupdater.adapters.spill_files import SpillFiles
    from cacheupdater.collector.turn import Aside
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.spilling import Segment, Spilling
    from cacheupdater_client.outbox import Outbox
    from cacheupdater_client.protocol.wire import Pack

UNDER_WAY_MAX = 4_000  # replayed keys in the outbox; a fresh change waits behind so many at most
PACKS_MAX = 500  # read in a turn, expired ones included: some milliseconds of the thread


class _Sent(NamedTuple):
    segment: Segment
    kind: int
    hints: int


class Replay:
    """Reads segments and follows their packs to the queue."""

    def __init__(self, spilling: Spilling, files: SpillFiles, tally: Tally, *, now: float) -> None:
        self._spilling = spilling
        self._files = files
        self._tally = tally
        self._pace = Pace(spilling.limits.rate, now)
        self._receipts = {kind: Receipts() for kind in KINDS}
        self._sent: dict[Receipt, _Sent] = {}
        self._segment: Segment | None = None  # which is being read
        self._packs: Packs
        self._ended: list[Segment] = []  # read to their end in this turn
        self.finished: list[Segment] = []  # the queue has all packs of these
        self.fault = ""  # of the disk, since somebody looked

    async def turn(self, outbox: Outbox, aside: Aside, now: float, now_ms: int) -> None:
        """Puts so many packs into the outbox as the rate allows."""
        room = min(self._pace.level(now), UNDER_WAY_MAX - sum(each.keys for each in self._sent))
        for each in self._spilling.seal():
            self._files.seal(each.number)
        if room <= 0 or self._spilling.next_to_replay() is None:
            return
        found: list[tuple[Segment, Pack]] = []
        await aside(lambda: self._read(found, room, now_ms))
        for segment, pack in found:
            self._put(segment, pack, outbox)
        for segment in self._ended:  # now that its last packs have receipts
            segment.hints = 0
            self._finish(segment)
        self._ended.clear()

    def close(self) -> None:
        """Read no more. What was not finished stays for the next process."""
        if self._segment is not None:
            self.forget(self._segment)

    # --- in the thread --------------------------------------------------------------------------------

    def _read(self, found: list[tuple[Segment, Pack]], room: float, now_ms: int) -> bool:
        for _ in range(PACKS_MAX):
            segment = self._opened() if room > 0 else None
            if segment is None:
                break
            try:
                pack = next(self._packs)
            except StopIteration:
                self._end(segment, self._packs.damaged)
                continue
            except Unavailable as e:
                self._give_up(segment, str(e))
                continue
            if self._spilling.lives(pack.kind, pack.emitted_ms, now_ms):
                found.append((segment, pack))
                room -= len(pack.keys)
            else:
                hints = sum(pack.counts) or len(pack.keys)
                segment.hints -= hints
                self._tally.add("spill_dropped", hints, reason="expired")
        return True

    def _opened(self) -> Segment | None:
        """The segment to read from now."""
        while self._segment is None and (segment := self._spilling.next_to_replay()) is not None:
            try:
                self._packs = Packs(self._files.reader(segment.number))
                self._segment = segment
            except Unavailable as e:
                self._give_up(segment, str(e))
        return self._segment

    def _end(self, segment: Segment, damaged: int) -> None:
        """All packs of the segment that can be read were read."""
        self.forget(segment)
        self._tally.add("spill_dropped", damaged, reason="damaged")
        segment.read = True
        self._ended.append(segment)

    def _give_up(self, segment: Segment, why: str) -> None:
        """The rest of the segment cannot be read. The file stays, for a process that can read it."""
        self.forget(segment)
        self.fault = why
        self._tally.add("spill_dropped", max(1, segment.hints), reason="damaged")
        self._spilling.remove(segment)

    def forget(self, segment: Segment) -> None:
        """Read no more of this segment."""
        if self._segment is segment:
            self._packs.close()
            self._segment = None

    # --- in the loop ----------------------------------------------------------------------------------

    def _put(self, segment: Segment, pack: Pack, outbox: Outbox) -> None:
        counts = dict(zip(pack.keys, pack.counts or repeat(1)))  # noqa: B905  `repeat` has no end
        hints = sum(counts.values())
        receipt = Receipt(NOBODY, len(counts), sum(map(len, counts)))
        self._sent[receipt] = _Sent(segment, pack.kind, hints)
        self._receipts[pack.kind].add([receipt])
        self._pace.pay(len(counts))
        segment.hints -= hints
        outbox.add(pack.kind, counts, zip(pack.keys, pack.tokens, strict=False))

    def settle(self, kind: int, keys: int) -> None:
        """So many keys of this kind have left the outbox."""
        self._receipts[kind].settle(keys)

    def recall(self) -> None:
        """The outbox cuts anew what it had cut."""
        for receipts in self._receipts.values():
            receipts.recall()

    def look(self, outbox: Outbox) -> None:
        """Finishes the packs that the queue has taken."""
        for kind, receipts in self._receipts.items():
            for receipt in receipts.look(*outbox.standing(kind)) if receipts else ():
                segment, _, hints = self._sent.pop(receipt)
                self._tally.add("replayed", hints, KIND_OF[kind].name.lower())
                self._finish(segment)

    def _finish(self, segment: Segment) -> None:
        if segment.read and not any(each.segment is segment for each in self._sent.values()):
            self.finished.append(segment)
