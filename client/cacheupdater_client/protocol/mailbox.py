"""`memory://name`: where a client and an updater of one process meet.

The client's link puts frames in, and `listener_memory` takes them out. A mailbox is made by whoever names it first, and lives as
long as the process. A forked child begins anew.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cacheupdater_client.protocol.wire import decode_pack, encode_pack, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater_client.protocol.wire import Hello, Pack

MAILBOX_FRAMES = 1000  # that a sender may put before the updater takes any


class Mailbox:
    """Where a client and an updater of the same process meet. Any thread may call anything at any time.

    A frame that was put counts as accepted: it is lost only with the process, as the updater's memory would be.
    """

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self.hello: Hello | None = None
        self.accepted = 0

    def open(self, hello: Hello) -> None:
        """The updater takes frames from now on. Frames that an earlier one has left are cut for the new partitions."""
        left, self._frames = self._frames, deque()
        self.hello = hello
        for _, payload in left:
            self._frames.extend(_cut_anew(decode_pack(payload), hello.partitions))

    def close(self) -> None:
        """The updater takes nothing more."""
        self.hello = None

    def begin_after_fork(self) -> None:
        """In a forked child: an updater that takes frames is the parent's."""
        self.hello, self._frames = None, deque()

    def put(self, partition: int, pack: bytes) -> bool:
        """False if the mailbox is full or closed: try again later."""
        if self.hello is None or len(self._frames) >= MAILBOX_FRAMES:
            return False
        self._frames.append((partition, pack))
        self.accepted += 1
        return True

    def take(self, limit: int = MAILBOX_FRAMES) -> list[tuple[int, bytes]]:
        """The oldest frames."""
        frames: list[tuple[int, bytes]] = []
        while self._frames and len(frames) < limit:
            frames.append(self._frames.popleft())
        return frames


def _cut_anew(pack: Pack, partitions: int) -> Iterator[tuple[int, bytes]]:
    shares: dict[int, list[int]] = {}
    for at, key in enumerate(pack.keys):
        shares.setdefault(partition_of(key, partitions), []).append(at)
    for partition, places in shares.items():
        keys = [pack.keys[at] for at in places]
        counts = [pack.counts[at] for at in places] if pack.counts else []
        tokens = [pack.tokens[at] for at in places] if pack.tokens else []
        yield partition, encode_pack(pack.kind, pack.emitted_ms, keys, counts, tokens=tokens)


_mailboxes: dict[str, Mailbox] = {}


def mailbox(name: str) -> Mailbox:
    """The mailbox of this name. A process names few of them, in its configuration."""
    return _mailboxes.setdefault(name, Mailbox())


def mailboxes_begin_after_fork() -> None:
    """In a forked child: no mailbox has a reader."""
    for box in _mailboxes.values():
        box.begin_after_fork()
