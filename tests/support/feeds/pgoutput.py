"""Writes the messages of pgoutput, as PostgreSQL's documentation describes them (protocol version 1)."""

from __future__ import annotations

from struct import pack

BIGINT, INTEGER, UUID, TEXT = 20, 23, 2950, 25
UNCHANGED = object()  # a large value that the server does not send again


def _name(text):
    return text.encode() + b"\0"


def relation(oid, schema, name, *columns, identity=b"d"):
    """`columns` are (name, type's OID, whether it belongs to the replica identity)."""
    told = b"".join(bytes([key]) + _name(column) + pack(">Ii", kind, -1) for column, kind, key in columns)
    return b"R" + pack(">I", oid) + _name(schema) + _name(name) + identity + pack(">H", len(columns)) + told


def row(*values):
    cells = []
    for value in values:
        if value is None:
            cells.append(b"n")
        elif value is UNCHANGED:
            cells.append(b"u")
        else:
            data = value if isinstance(value, bytes) else str(value).encode()
            cells.append(b"t" + pack(">I", len(data)) + data)
    return pack(">H", len(values)) + b"".join(cells)


def insert(oid, new):
    return b"I" + pack(">I", oid) + b"N" + new


def update(oid, new, *, key=None, old=None):
    before = b"K" + key if key else b"O" + old if old else b""
    return b"U" + pack(">I", oid) + before + b"N" + new


def delete(oid, *, key=None, old=None):
    return b"D" + pack(">I", oid) + (b"K" + key if key else b"O" + old)


def truncate(*oids):
    return b"T" + pack(">IB", len(oids), 0) + b"".join(pack(">I", oid) for oid in oids)


def begin(end=100, committed=0):
    """`committed` in microseconds since 2000."""
    return b"B" + pack(">QqI", end, committed, 7)


def commit(end, committed=0):
    return b"C" + pack(">BQQq", 0, end - 1, end, committed)


def said(end, prefix, content, *, transactional=False):
    return b"M" + pack(">BQ", transactional, end) + _name(prefix) + pack(">I", len(content)) + content
