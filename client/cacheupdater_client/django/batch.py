"""The keys that one transaction of Django has changed, until Django calls back after the commit.

`hooks` adds keys as rows change. Django keeps the callbacks of each savepoint and drops those of a savepoint that was rolled
back, so each savepoint has a batch of its own. A batch lives in Django's list of callbacks and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections, transaction

from cacheupdater_client.watching.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater_client.watching.announcing import Watch

LOOKED_AT_MAX = (
    100  # callbacks among which the batch is looked for; an application that adds more gets more batches
)


class Batch:
    """The changes of one savepoint, or of the transaction outside of savepoints."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._keys = Keys()

    def add(self, names: Sequence[bytes]) -> None:
        """These keys have changed."""
        self._keys.add(names)

    def __call__(self) -> None:
        """Django has committed."""
        try:
            self.watch.announce(self._keys)
        finally:
            self._keys.close()


def changed(watch: Watch, using: str, names: Sequence[bytes]) -> None:
    """These keys have changed in the present transaction of a database. Without a transaction they are announced at once."""
    batch = _present(watch, using)
    added = batch or Batch(watch)
    added.add(names)
    if batch is None:
        transaction.on_commit(added, using=using, robust=True)


def _present(watch: Watch, using: str) -> Batch | None:
    """The batch of the innermost savepoint of the present transaction."""
    connection = connections[using]
    if not connection.in_atomic_block:
        return None
    savepoints = set(connection.savepoint_ids)
    for within, callback, *_ in connection.run_on_commit[-LOOKED_AT_MAX:]:
        if isinstance(callback, Batch) and callback.watch is watch and within == savepoints:
            return callback
    return None
