"""Makes batches of the messages of one stream.

`feed` makes one `Batching` per connection, and puts every message in. A batch holds whole transactions, or a part of one that is
too large: then its position is the end of the last transaction before, so that only whole ones are confirmed. A transaction
that ends behind its last part gives one more batch without changes, for its position. Nothing here waits or does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_replication import slot
from cacheupdater.adapters.feed_replication.decode import Begin, Commit, Said, Truncated
from cacheupdater.feed_ports import Batch, Changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.adapters.feed_replication.decode import Decoder, Event
    from cacheupdater.adapters.feed_replication.progress import Progress

EVENTS_MAX = 200  # changes of a batch: 2 ms of the event loop, in which nothing else runs
TRUNCATED = "the table was truncated"


class Batching:
    """What was read and not given."""

    def __init__(
        self, decoder: Decoder, progress: Progress, *, slot_name: str, tables: Sequence[str]
    ) -> None:
        """`tables` are those of which any row may have changed once changes were lost."""
        self._decoder = decoder
        self._progress = progress
        self._slot = slot_name
        self._tables = tables
        self._changes: list[Changed] = []
        self._emptied: dict[str, str] = {}  # why, by table
        self._committed: float | None = None  # of the transaction that is being read
        self._last: float | None = None  # of the last change
        self._owed = False  # the transaction that is being read tells something
        self.inside = False  # a transaction has begun, and more of it follows
        self._due = False  # a transaction has ended of which something was told
        self.beat: float | None = None  # when our last heartbeat was said that came back

    @property
    def full(self) -> bool:
        """Whether the batch must be given before more is read."""
        return len(self._changes) >= EVENTS_MAX

    def take(self, begins: int, message: bytes) -> None:
        """Puts a message in. Raises Faulty if it cannot be read."""
        self._progress.came(begins)
        event = self._decoder.event(message)
        if event is None:
            return
        if isinstance(event, Changed):
            self._changes.append(event)
            self._owed, self._last = True, self._committed
        else:
            self._marked(event)

    def lost(self, why: str) -> None:
        """Changes before the next message were lost."""
        self._emptied |= dict.fromkeys(self._tables, why)
        self._due = True
        self._progress.ended(self._progress.read, owed=True)

    def given(self) -> Batch | None:
        """The batch that is to be given now, if there is one."""
        if not (self._changes or self._emptied or self._due):
            return None
        why = "; ".join(dict.fromkeys(self._emptied.values()))
        batch = Batch(self._changes, self._progress.read, self._last, tuple(self._emptied), why)
        self._changes, self._emptied, self._due = [], {}, False
        return batch

    def _marked(self, event: Event) -> None:
        if isinstance(event, Begin):
            self._committed, self._owed, self.inside = event.committed, False, True
        elif isinstance(event, Commit):
            self._progress.ended(event.end, owed=self._owed)
            self.inside = False
            self._due, self._owed = self._due or self._owed, False
        elif isinstance(event, Truncated):
            self._emptied |= dict.fromkeys(event.tables, TRUNCATED)
            self._owed, self._last = True, self._committed
        elif isinstance(event, Said):
            self._heard(event)

    def _heard(self, word: Said) -> None:
        why = slot.lost(word.content, self._slot) if word.prefix == slot.PREFIX else None
        self._progress.ended(word.end, owed=False)
        if why is not None:
            self.lost(why)
        elif word.prefix == slot.PREFIX:
            self.beat = slot.beaten(word.content, self._slot) or self.beat
