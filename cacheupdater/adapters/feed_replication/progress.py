"""Which place in the WAL may be confirmed, and when the stream may be read: pure decisions over places (LSNs).

`feed` makes one `Progress` per connection, tells it what comes, and asks before each message that it reads. A transaction is
confirmed as a whole, so what is confirmed is always the end of one.

Where nobody changes a watched table, the slot must not hold WAL for ever. psycopg2 sees to that: if the server sends a keepalive,
`read_message` confirms the server's own place, if the last message began no later than what we have told. `may_read` keeps that
from confirming too much. For rows of a transaction that was open for long begin early, although they come after transactions
that nobody has confirmed. So none is read while such a transaction waits.

The description of a table has no place at all. To wait there would hold up the feed for as long as a confirmation takes: half a
minute after a TRUNCATE, or as long as a source is away. The server sends the described row right behind the description. Between
the two it sends a keepalive only if it was asked for an answer, or if it has heard nothing for ten seconds. So `feed` asks for no
answer while something waits for its confirmation, and descriptions are read.
"""

from __future__ import annotations


class Progress:
    """One connection's places."""

    def __init__(self, place: int = 0) -> None:
        self.read = place  # the end of the last transaction that was read whole; first, where the slot stands
        self._owed = 0  # the end of the last one of which the consumer was told, or will be
        self._confirmed = 0  # what the consumer has confirmed
        self._begins = 0  # where the last message says that it begins, descriptions apart
        self._told = 0  # what the server knows

    def came(self, begins: int) -> None:
        """A message was read; 0: the description of a table."""
        self._begins = begins or self._begins

    def ended(self, end: int, *, owed: bool) -> None:
        """A transaction, or a message outside of any, was read whole. `owed`: the consumer must confirm it."""
        self.read = max(self.read, end)
        if owed:
            self._owed = self.read

    def confirmed(self, place: int) -> None:
        """The consumer has all up to here."""
        self._confirmed = max(self._confirmed, place)

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
