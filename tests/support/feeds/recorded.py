"""The recorded topics of Debezium's connectors, in `debezium/` beside this file (its README says how they were made)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("debezium")
PREFIX = "shop"
CONNECTORS = ("postgresql", "mysql")
FORMS = ("plain", "schema")


class Recorded(NamedTuple):
    """One record of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None


def recording(connector, form, prefix=PREFIX):
    """All records in their order, in topics of this prefix."""
    lines = (FOLDER / f"{connector}-{form}.jsonl").read_text("utf-8").splitlines()
    return [_record(json.loads(line), prefix) for line in lines]


def _record(said, prefix):
    first, dot, rest = said["topic"].partition(".")
    topic = f"{prefix}{dot}{rest}" if first == PREFIX else said["topic"].replace(PREFIX, prefix)
    return Recorded(topic, *(each and each.encode() for each in (said["key"], said["value"])))


def table_topic(connector, table, prefix=PREFIX):
    """The topic of a recorded table: PostgreSQL names it by the schema, MySQL by the database."""
    return f"{prefix}.{'public' if connector == 'postgresql' else 'shop'}.{table}"
