"""The fresh values of changed objects, for `write`: made just before the commit, set in Redis after it.

`hooks` calls `values_of` once for each transaction that has changed such objects. The changed rows are read again in the
transaction, which holds their locks, so what is read is what is committed. The application's own objects are not asked: they
may be older than the row. The application's callable gets an object of a session that lives for this call only.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from cacheupdater_client.sqlalchemy.rows import ASKED_MAX, Mapped, apart
from cacheupdater_client.watching.announcing import WRITES_BYTES_MAX, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cacheupdater_client.sqlalchemy.pending import Identity
    from cacheupdater_client.sqlalchemy.rows import Question
    from cacheupdater_client.watching.announcing import Watch
    from cacheupdater_client.watching.rules import Write


class Asked(NamedTuple):
    """For which session and model values are made, and how."""

    session: Session
    mapped: Mapped
    write: Write
    token: int


def values_of(asked: Asked, identities: Sequence[Identity], watch: Watch) -> Iterator[tuple[bytes, Value]]:
    """The keys of these rows of one model, each with its value. Whatever fails here is only invalidated."""
    mapped, (value_of, ttl) = asked.mapped, asked.write
    connection = asked.session.connection(bind_arguments={"mapper": mapped.mapper})
    with apart(connection), Session(bind=connection, join_transaction_mode="rollback_only") as reader:
        for at in range(0, len(identities), ASKED_MAX):
            found: Question = select(mapped.rule.model).where(mapped.among(identities[at : at + ASKED_MAX]))
            for obj in reader.scalars(found).unique():
                value = value_of(obj)
                if value is None:
                    continue
                row = {name: getattr(obj, name) for name in mapped.columns}
                for name in watch.keys_of(mapped.rule, row):
                    yield name, Value(value.encode() if isinstance(value, str) else value, ttl, asked.token)


def within_cap(values: Iterable[tuple[bytes, Value]]) -> Iterator[tuple[bytes, Value]]:
    """As many values as may wait for the commit in memory."""
    held = 0
    for name, value in values:
        held += len(value.value)
        if held > WRITES_BYTES_MAX:
            return
        yield name, value


def by_model(fresh: Iterable[tuple[type, Identity]]) -> Iterator[tuple[type, list[Identity]]]:
    """The rows of each model."""
    in_order = sorted(fresh, key=lambda each: each[0].__qualname__)
    for model, rows in groupby(in_order, key=lambda each: each[0]):
        yield model, [identity for _, identity in rows]
