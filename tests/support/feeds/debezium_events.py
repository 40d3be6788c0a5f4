"""Writes events as a connector of Debezium does for the table of the tests, `items (id, shelf)`, as our recordings show them."""

from __future__ import annotations

import json

COMMITTED_US = 1_795_677_327_777_000


def event(op, before=None, after=None, *, connector="postgresql", table="items", committed_us=COMMITTED_US):
    """The value of a record, without its schema."""
    source = {
        "connector": connector,
        "schema": "public",
        "table": table,
        "ts_ms": committed_us // 1000,
        "ts_us": committed_us,
    }
    return json.dumps({"before": before, "after": after, "source": source, "op": op}).encode()


def key(each):
    """The key of a record."""
    return json.dumps({"id": each}).encode()
