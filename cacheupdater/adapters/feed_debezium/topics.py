"""Which topic tells a table, and what to do for a table without one. Pure.

Debezium names a topic by its prefix and the table: `prefix.schema.table` (PostgreSQL), `prefix.database.table` (MySQL, MariaDB) or
`prefix.database.schema.table` (SQL Server). `feed` and `checks` ask with the names of all topics that they may see. Topics that a
transform has renamed are not found. A topic may come later than the feed: Debezium makes it with the first event of its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.words import counted
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cacheupdater.feed_ports import Watched

SHOWN = 5  # names, or sentences, in one text


class Table(NamedTuple):
    """A table that is watched."""

    told: str  # the name under which its changes are told: its schema or database, and its own
    columns: tuple[str, ...]


class Found(NamedTuple):
    """What is known of the tables that are watched."""

    tables: Mapping[str, Table]  # by topic
    untold: Mapping[str, str]  # what to do, by table without a topic

    @property
    def lacks(self) -> Sequence[str]:
        """What to do, in a few sentences."""
        said = list(self.untold.values())
        left = len(said) - SHOWN
        more = [f"no topic tells {counted(left, 'more table')}"] if left > 0 else []
        return (*said[:SHOWN], *more)


def tables_of(watched: Iterable[Watched], topics: Collection[str], prefix: str) -> Found:
    """Which table each topic tells. Raises Misconfigured for a table with several topics."""
    tables: dict[str, Table] = {}
    untold: dict[str, str] = {}
    for each in watched:
        topic = topic_of(each.table, topics, prefix)
        if topic is None:
            untold[each.table] = _to_do(each.table, topics, prefix)
            continue
        columns = tables[topic].columns if topic in tables else ()
        told = ".".join(topic.split(".")[-2:])
        tables[topic] = Table(told, tuple(dict.fromkeys((*columns, *each.columns))))
    return Found(tables, untold)


def topic_of(table: str, topics: Collection[str], prefix: str) -> str | None:
    """The topic of one table, if it has one. Raises Misconfigured if it has several."""
    named = sorted(each for each in topics if _tells(each.removeprefix(f"{prefix}."), each, table))
    exact = f"{prefix}.{table}"
    if exact in named:
        return exact
    if len(named) > 1:
        raise Misconfigured(
            f"several topics tell a table {table}: {_shown(named)}. Write the table with its schema, or with its database"
        )
    return named[0] if named else None


def _to_do(table: str, topics: Iterable[str], prefix: str) -> str:
    ours = sorted(each for each in topics if each.startswith(f"{prefix}."))
    there = f"those of the prefix are {_shown(ours)}" if ours else f"no topic at all begins with {prefix}."
    return (
        f"no topic tells the table {table}; {there}. Debezium makes a topic with the first event of a table, and the feed reads it"
        f" soon after. Check the table's name, and let the connector include the table. Prefix must be the connector's topic.prefix."
        f" If the topic is there, this user may not see it: allow Read on it"
    )


def _tells(rest: str, topic: str, table: str) -> bool:
    """Whether the name has the prefix, something that the table lies in, and the table."""
    return rest != topic and "." in rest and (rest == table or rest.endswith(f".{table}"))


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
