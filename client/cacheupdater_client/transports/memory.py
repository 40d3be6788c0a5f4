"""memory://name: an updater in this very process takes the frames out of a mailbox.

For demonstrations, tests and programs that run both sides. Lives as long as its target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater_client.protocol.mailbox import mailbox

if TYPE_CHECKING:
    from cacheupdater_client.outbox import Frame, Outbox
    from cacheupdater_client.protocol.wire import Hello


class MemoryLink:
    """Puts frames into a mailbox. A frame that is put counts as accepted."""

    def __init__(self, name: str) -> None:
        self._box = mailbox(name)
        self._hello: Hello | None = None
        self._unput: Frame | None = None
        self._put = 0
        self.connected = False
        self.trouble = ""

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:  # noqa: ARG002  as every link: no time needed here
        """Puts as many frames as there is room for."""
        hello = self._box.hello
        self.connected = hello is not None
        self.trouble = "" if self.connected else "no updater runs in this process"
        if hello is None:
            return False
        if hello is not self._hello:
            self._hello, self._unput, self._put = hello, None, 0
            outbox.greet(hello)
        before = self._put
        while frame := self._unput or outbox.next_frame(now_ms):
            self._unput = frame
            if not self._box.put(frame.partition, frame.pack):
                return self._put > before
            self._unput = None
            self._put += 1
            outbox.acknowledge(self._put)
        return False

    def close(self) -> None:
        """Begins anew with the next turn."""
        self._hello = None
        self.connected = False
