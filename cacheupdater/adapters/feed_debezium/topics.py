"""Which topic tells a table. Pure.

Debezium names a topic by its prefix and the table: `prefix.schema.table` (PostgreSQL), `prefix.database.table` (MySQL, MariaDB) or
`prefix.database.schema.table` (SQL Server). `feed` and `checks` ask with the names of all topics that they may see. Topics that a
transform has renamed are not found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cacheupdater.feed_ports import Watched

SHOWN = 5  # names in an error


class Table(NamedTuple):
    """A table that is watched."""

    told: str  # the name under which its changes are told: its schema or database, and its own
    columns: tuple[str, ...]


def tables_of(watched: Iterable[Watched], topics: Collection[str], prefix: str) -> Mapping[str, Table]:
    """By topic, the table that it tells. Raises Misconfigured for a table without a topic, or with several."""
    found: dict[str, Table] = {}
    for each in watched:
        topic = topic_of(each.table, topics, prefix)
        columns = found[topic].columns if topic in found else ()
        told = ".".join(topic.split(".")[-2:])
        found[topic] = Table(told, tuple(dict.fromkeys((*columns, *each.columns))))
    return found


def topic_of(table: str, topics: Collection[str], prefix: str) -> str:
    """The topic of one table. Raises Misconfigured."""
    named = sorted(each for each in topics if _tells(each.removeprefix(f"{prefix}."), each, table))
    exact = f"{prefix}.{table}"
    if exact in named:
        return exact
    if len(named) == 1:
        return named[0]
    if named:
        raise Misconfigured(
            f"several topics tell a table {table}: {_shown(named)}. Write the table with its schema, or with its database"
        )
    ours = sorted(each for each in topics if each.startswith(f"{prefix}."))
    there = f"those of the prefix are {_shown(ours)}" if ours else f"no topic at all begins with {prefix}."
    raise Misconfigured(
        f"no topic tells the table {table}; {there}. Debezium makes a topic with the first event of a table: let the connector"
        f" include the table and change a row, or make the topic by hand. Prefix must be the connector's topic.prefix."
        f" If the topic is there, this user may not see it: allow Read on it"
    )


def _tells(rest: str, topic: str, table: str) -> bool:
    """Whether the name has the prefix, something that the table lies in, and the table."""
    return rest != topic and "." in rest and (rest == table or rest.endswith(f".{table}"))


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
