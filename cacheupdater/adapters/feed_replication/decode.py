"""What the messages of PostgreSQL's plugin pgoutput say (protocol version 1): bytes in, events out.

`batching` makes one `Decoder` per stream, because the server describes each table once, before its first row. Rows of tables
that nobody watches are recognised by five bytes, and of the others only the watched columns are read: the rest is passed over
by its length. Nothing here waits, and every loop is bounded by the length of the message. Text that is not UTF-8 (a database
in SQL_ASCII) is read with replacement characters: it makes no key, and stops no other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias
from uuid import UUID

from cacheupdater.errors import Faulty
from cacheupdater.feed_ports import Cell, Changed

_SINCE_1970 = 946_684_800.0  # seconds from 1970 to 2000, where PostgreSQL's clock begins
_NULL, _UNCHANGED, _TEXT = b"nut"
_OLD_KEY, _OLD_ROW, _NEW = b"KON"
_PART_OF_KEY = 1  # a column's flag: it belongs to the replica identity
_U16, _U32 = Struct(">H"), Struct(">I")
_BEGIN, _COMMIT, _SAID = Struct(">QqI"), Struct(">BQQq"), Struct(">BQ")
_COLUMN = Struct(">Ii")

Read: TypeAlias = Callable[[bytes], Cell]
Named: TypeAlias = tuple[str, str]  # a table: schema and name


class Begin(NamedTuple):
    """A transaction begins; all of its rows follow, for it is committed already."""

    committed: float


class Commit(NamedTuple):
    """The transaction is complete."""

    end: int  # to confirm the transaction, confirm this place in the WAL


class Truncated(NamedTuple):
    """These tables were emptied."""

    tables: Sequence[str]


class Said(NamedTuple):
    """A message of an application, outside of any transaction: our own heartbeats, or another's."""

    prefix: str
    content: bytes
    end: int


Event: TypeAlias = Begin | Commit | Changed | Truncated | Said


class Table(NamedTuple):
    """A table that is watched."""

    told: str  # the name under which its changes are told
    columns: Sequence[str]


class _Relation(NamedTuple):
    """What the server has said of a watched table."""

    told: str
    wanted: Sequence[tuple[str, Read] | None]  # by column, up to the last that is watched
    key: Sequence[tuple[str, Read] | None]  # the same, of the replica identity only


def _uuid(value: bytes) -> UUID:
    return UUID(value.decode("ascii"))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_READS: Mapping[int, Read] = {
    20: int,
    21: int,
    23: int,
    2950: _uuid,
}  # by the type's OID, which is the same everywhere


class Decoder:
    """Reads the messages of one stream, in their order."""

    def __init__(self, watched: Mapping[Named, Table], bases: Mapping[int, int] | None = None) -> None:
        """`bases` has the types beneath the domains of the watched columns, by OID."""
        self._watched = watched
        self._bases = bases or {}
        self._relations: dict[int, _Relation] = {}  # watched ones alone; bounded by the watched tables
        self._kinds: Mapping[int, Callable[[bytes], Event | None]] = {
            ord("I"): self._inserted,
            ord("U"): self._updated,
            ord("D"): self._deleted,
            ord("B"): _begun,
            ord("C"): _committed,
            ord("R"): self._described,
            ord("T"): self._truncated,
            ord("M"): _said,
            ord("O"): _skipped,  # which server a transaction comes from
            ord("Y"): _skipped,  # the name of a type
        }

    def event(self, message: bytes) -> Event | None:
        """What the message says, or None if it says nothing for us. Raises Faulty for what is no message of pgoutput."""
        try:
            return self._kinds[message[0]](message)
        except (IndexError, KeyError, ValueError, struct.error) as e:
            # the driver's text could quote the row
            raise Faulty(f"a message of the replication stream cannot be read ({type(e).__name__})") from None

    def _described(self, message: bytes) -> None:
        (oid,) = _U32.unpack_from(message, 1)
        schema, at = _name(message, 5)
        name, at = _name(message, at)
        (count,) = _U16.unpack_from(message, at + 1)  # the byte before is the kind of the replica identity
        at += 3
        table = self._watched.get((schema, name))
        self._relations.pop(oid, None)
        if table is None:
            return
        wanted: list[tuple[str, Read] | None] = []
        key: list[tuple[str, Read] | None] = []
        for _ in range(count):
            flags = message[at]
            column, at = _name(message, at + 1)
            kind, _modifier = _COLUMN.unpack_from(message, at)
            at += _COLUMN.size
            read = (column, self._read(kind)) if column in table.columns else None
            wanted.append(read)
            key.append(read if flags & _PART_OF_KEY else None)
        self._relations[oid] = _Relation(table.told, _cut(wanted), _cut(key))

    def _read(self, kind: int) -> Read:
        return _READS.get(self._bases.get(kind, kind), _text)

    def _inserted(self, message: bytes) -> Changed | None:
        relation = self._relations.get(_U32.unpack_from(message, 1)[0])
        if relation is None:
            return None
        if message[5] != _NEW:
            raise ValueError
        return Changed(relation.told, (_cells(message, 6, relation.wanted),))

    def _updated(self, message: bytes) -> Changed | None:
        relation = self._relations.get(_U32.unpack_from(message, 1)[0])
        if relation is None:
            return None
        kind, at = message[5], 6
        if kind == _NEW:  # the identity is as it was, so the server does not tell the old row
            return Changed(relation.told, (_cells(message, at, relation.wanted),))
        old = _cells(message, at, _old(relation, kind))
        at = _end(message, at)
        if message[at] != _NEW:
            raise ValueError
        new = _cells(message, at + 1, relation.wanted)
        if kind == _OLD_ROW:
            new = {**old, **new}  # a large value that has not changed is told in the old row alone
            if new == old:
                return Changed(relation.told, (new,))
        return Changed(relation.told, (old, new))

    def _deleted(self, message: bytes) -> Changed | None:
        relation = self._relations.get(_U32.unpack_from(message, 1)[0])
        if relation is None:
            return None
        return Changed(relation.told, (_cells(message, 6, _old(relation, message[5])),))

    def _truncated(self, message: bytes) -> Truncated | None:
        (count,) = _U32.unpack_from(message, 1)
        if len(message) < 6 + 4 * count:
            raise ValueError
        oids = (_U32.unpack_from(message, 6 + 4 * each)[0] for each in range(count))
        tables = tuple(self._relations[oid].told for oid in oids if oid in self._relations)
        return Truncated(tables) if tables else None


def _begun(message: bytes) -> Begin:
    _end_of_transaction, committed, _xid = _BEGIN.unpack_from(message, 1)
    return Begin(_SINCE_1970 + committed / 1e6)


def _committed(message: bytes) -> Commit:
    _flags, _begin_of_commit, end, _time = _COMMIT.unpack_from(message, 1)
    return Commit(end)


def _said(message: bytes) -> Said | None:
    transactional, end = _SAID.unpack_from(message, 1)
    prefix, at = _name(message, 1 + _SAID.size)
    (length,) = _U32.unpack_from(message, at)
    content = message[at + 4 : at + 4 + length]
    if len(content) != length:
        raise ValueError
    return None if transactional else Said(prefix, content, end)


def _skipped(message: bytes) -> None:  # noqa: ARG001  as the others
    return None


def _old(relation: _Relation, kind: int) -> Sequence[tuple[str, Read] | None]:
    """Of an old key, the server sends NULL for all other columns."""
    if kind == _OLD_KEY:
        return relation.key
    if kind != _OLD_ROW:
        raise ValueError
    return relation.wanted


def _cells(message: bytes, at: int, wanted: Sequence[tuple[str, Read] | None]) -> dict[str, Cell]:
    """The wanted columns of the row that begins here. It ends with the last of them."""
    if _U16.unpack_from(message, at)[0] < len(wanted):
        raise ValueError
    at += 2
    cells: dict[str, Cell] = {}
    for column in wanted:
        kind = message[at]
        at += 1
        if kind == _TEXT:
            (length,) = _U32.unpack_from(message, at)
            at += 4
            end = at + length
            if end > len(message):
                raise ValueError
            if column is not None:
                cells[column[0]] = column[1](message[at:end])
            at = end
        elif kind == _NULL:
            if column is not None:
                cells[column[0]] = None
        elif kind != _UNCHANGED:
            raise ValueError
    return cells


def _end(message: bytes, at: int) -> int:
    """Where the row that begins here ends."""
    (count,) = _U16.unpack_from(message, at)
    at += 2
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == _TEXT:
            (length,) = _U32.unpack_from(message, at)
            at += 4 + length
        elif kind not in {_NULL, _UNCHANGED}:
            raise ValueError
    return at


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A name that ends with a zero byte, and where the next field begins. No schema at all means pg_catalog."""
    end = message.index(b"\0", at)
    return _text(message[at:end]), end + 1


def _cut(columns: Sequence[tuple[str, Read] | None]) -> Sequence[tuple[str, Read] | None]:
    """The columns up to the last that is wanted."""
    last = max((at for at, column in enumerate(columns) if column is not None), default=-1)
    return tuple(columns[: last + 1])
