"""Which keys a flush changes: those of the rows before it, and those of the rows after it.

`hooks` calls `asked` before the flush, gathers the objects that were flushed, and calls `learned` after it. Where the primary
key names the keys, no row is read. Otherwise the rows are read, locked before an update or a delete: an object in memory may
be older than its row, and then it would name a key that the row has no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect

from cacheupdater_client.sqlalchemy.pending import Flush
from cacheupdater_client.sqlalchemy.rows import Unread, of_identities, remembered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.orm import Session

    from cacheupdater_client.sqlalchemy.pending import Identity
    from cacheupdater_client.sqlalchemy.rows import Mapped
    from cacheupdater_client.watching.announcing import Watch


def asked(session: Session, mapped: Sequence[Mapped], watch: Watch) -> Flush:
    """The keys of the rows that this flush is about to change or to delete, as far as they need a question."""
    flush = Flush()
    for each in mapped:
        if each.by_identity:
            continue
        objects = [
            obj
            for obj in [*session.dirty, *session.deleted]
            if isinstance(obj, each.rule.model) and (obj in session.deleted or session.is_modified(obj))
        ]
        identities = [identity for obj in objects if (identity := inspect(obj, raiseerr=True).identity)]
        try:
            for row in of_identities(session, each, identities, lock=True):
                flush.before += watch.keys_of(each.rule, row)
            flush.asked.update(inspect(obj, raiseerr=True) for obj in objects)
        except Unread:  # what the objects remember is taken instead, and may be too old
            watch.unseen(f"rows of {each.rule.model.__name__} before their change", len(identities))
    return flush


def learned(session: Session, mapped: Sequence[Mapped], flush: Flush, watch: Watch) -> list[bytes]:
    """The keys of all rows that this flush has changed."""
    names = flush.before
    for each in mapped:
        saved = [obj for obj in flush.saved if isinstance(obj, each.rule.model)]
        gone = [obj for obj in flush.deleted if isinstance(obj, each.rule.model)]
        for row in (*_before(each, flush, [*saved, *gone], watch), *_after(session, each, saved, watch)):
            names += watch.keys_of(each.rule, row)
    return names


def _before(
    mapped: Mapped, flush: Flush, objects: Sequence[object], watch: Watch
) -> Iterator[dict[str, object]]:
    """The rows as they were, of objects that were not asked for. A new object had no row."""
    for obj in objects:
        state = inspect(obj, raiseerr=True)
        if state.identity is None or state in flush.asked:
            continue
        if mapped.by_identity:
            yield dict(mapped.row_of(state.identity))
        elif (row := remembered(mapped, obj)) is not None:
            yield dict(row)
        else:
            watch.unseen(f"the keys of a row of {mapped.rule.model.__name__} before its change")


def _after(
    session: Session, mapped: Mapped, saved: Sequence[object], watch: Watch
) -> Iterator[dict[str, object]]:
    """The rows as they are."""
    identities = [_identity_of(obj) for obj in saved]
    if mapped.by_identity:
        yield from (dict(mapped.row_of(identity)) for identity in identities)
        return
    try:
        yield from (dict(row) for row in of_identities(session, mapped, identities))
    except Unread:
        watch.unseen(f"the keys of rows of {mapped.rule.model.__name__} after their change", len(identities))


def _identity_of(obj: object) -> Identity:
    """The primary key that the object's row has now."""
    return tuple(inspect(obj, raiseerr=True).mapper.primary_key_from_instance(obj))
