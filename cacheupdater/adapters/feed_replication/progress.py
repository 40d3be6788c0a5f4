"""Which place in the WAL may be confirmed, and when the stream may be read: pure decisions over places (LSNs).

`feed` makes one `Progress` per connection, tells it what comes, and asks before each message that it reads. A transaction is
confirmed as a whole, so what is confirmed is always the end of one. Where nothing waits for its confirmation, the server's own
place counts as confirmed too: else the slot of a database in which nobody changes a watched table would hold WAL for ever.

`may_read` is there for a trap of psycopg2. If the server sends a keepalive, `read_message` confirms the server's place by
itself, if the last message began no later than what we have told. But the rows of a transaction that was open for long begin
early (and descriptions of tables at 0), although they come after transactions that nobody has confirmed. So none is read then.
"""

from __future__ import annotations


class Progress:
    """One connection's places."""

    def __init__(self, place: int = 0) -> None:
        self.read = place  # the end of the last transaction that was read whole; first, where the slot stands
        self._owed = 0  # the end of the last one of which the consumer was told, or will be
        self._confirmed = 0  # what the consumer has confirmed
        self._inside = False  # the next message belongs to a transaction that has begun
        self._begins = 0  # where the last message says that it begins
        self._told = 0  # what the server knows

    def came(self, begins: int) -> None:
        """A message was read."""
        self._begins = begins

    def began(self) -> None:
        """A transaction begins; the rest of it follows."""
        self._inside = True

    def ended(self, end: int, *, owed: bool) -> None:
        """A transaction, or a message outside of any, was read whole. `owed`: the consumer must confirm it."""
        self._inside = False
        self.read = max(self.read, end)
        if owed:
            self._owed = self.read

    def confirmed(self, place: int) -> None:
        """The consumer has all up to here."""
        self._confirmed = max(self._confirmed, place)

    def heard(self, end_of_wal: int) -> None:
        """All messages of the server were read, and it has nothing for us up to here."""
        if self.settled and not self._inside:
            self.read = max(self.read, end_of_wal)

    @property
    def settled(self) -> bool:
        """Whether no whole transaction waits for its confirmation."""
        return self._confirmed >= self._owed

    @property
    def untold(self) -> bool:
        """Whether the server should be told of more than it knows."""
        return self._safe > self._told

    def tell(self) -> int:
        """The place to tell the server now."""
        self._told = max(self._told, self._safe)
        return self._told

    def may_read(self) -> bool:
        """Whether a keepalive that came now would confirm no more than we have."""
        return self.settled or self._begins > self._told

    @property
    def _safe(self) -> int:
        return self.read if self.settled else self._confirmed
