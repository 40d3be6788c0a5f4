"""Which frames of a client a collector may acknowledge: reads at once, changes and misses once the queue behind it has them.

The collector merges hints of all clients, and its outbox merges them again. So no frame of a client can be found again in a
frame that leaves. But the outbox settles the keys of one kind in the order in which it cuts them. A `Receipt` stands for
a taken frame that must wait. `Receipts` (one per kind) gathers receipts until nothing of their kind is left uncut, and then
knows how many keys must be settled before all of them are. That may be later than necessary, and never too early: a change
that was merged into a pending one waits for the frame that carries both.

`Owed` has the receipts of one connection, in the order of its frames. Acknowledgements are counts, so a frame of reads behind
a change waits too. Where the collector keeps hints on disk, a frame whose hints are there need not wait (`take_all`). Plain data: no clock, no socket.
"""

from __future__ import annotations

from collections import deque


class Receipt:
    """A taken frame that may not be acknowledged yet. Frames behind it that wait for it alone count here too."""

    __slots__ = ("done", "frames", "keys", "peer", "size")

    def __init__(self, peer: int, keys: int, size: int) -> None:
        self.peer = peer
        self.keys = keys
        self.size = size  # bytes of the keys
        self.frames = 1
        self.done = False


class Receipts:
    """The receipts of one kind of hints."""

    def __init__(self) -> None:
        self._uncut: list[Receipt] = []
        self._cut: deque[tuple[int, list[Receipt]]] = (
            deque()
        )  # each with the count of settled keys to wait for
        self._settled = 0

    def __bool__(self) -> bool:
        """Whether any frame waits."""
        return bool(self._uncut or self._cut)

    def add(self, receipts: list[Receipt]) -> None:
        """The hints of these frames are in the outbox now."""
        self._uncut += receipts

    def settle(self, keys: int) -> None:
        """So many more keys have left the outbox for good."""
        self._settled += keys

    def recall(self) -> None:
        """The outbox has taken back what it had cut, to cut it anew."""
        again = [each for _, receipts in self._cut for each in receipts]
        self._cut.clear()
        self._uncut = again + self._uncut

    def take_all(self) -> list[Receipt]:
        """All receipts are done: their hints lie on disk too, and are sent again from there."""
        found = [each for _, receipts in self._cut for each in receipts] + self._uncut
        self._cut.clear()
        self._uncut = []
        for each in found:
            each.done = True
        return found

    def look(self, uncut: int, cut: int) -> list[Receipt]:
        """The receipts that are done now, if the outbox holds so many keys of this kind."""
        if self._uncut and not uncut:
            self._cut.append((self._settled + cut, self._uncut))
            self._uncut = []
        found: list[Receipt] = []
        while self._cut and self._cut[0][0] <= self._settled:
            found += self._cut.popleft()[1]
        for each in found:
            each.done = True
        return found


class Owed:
    """The frames of one connection that were taken and may not be acknowledged yet."""

    def __init__(self) -> None:
        self._receipts: deque[Receipt] = deque()
        self._frames = 0

    def wait_for(self, receipt: Receipt) -> None:
        """The next frame of the connection must wait."""
        self._receipts.append(receipt)
        self._frames += 1

    def follow(self) -> None:
        """The next frame need not wait, except for those before it."""
        if self._receipts:
            self._receipts[-1].frames += 1
            self._frames += 1

    @property
    def frames(self) -> int:
        """How many frames, counted from the last, may not be acknowledged."""
        while self._receipts and self._receipts[0].done:
            self._frames -= self._receipts.popleft().frames
        return self._frames
