"""The sections about feeds: how a source tells its changes, and what each change says about the keys of a namespace.

`sources.NAME.changes` names the feed, and `namespaces.NAME.changes` the tables of which keys are made. `models` puts both in
their places, `feed_checks` checks them together. What each feed needs of its database is written in docs/how-to/feeds.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BeforeValidator, Field, StringConstraints

from cacheupdater.config.fields import Brokers, Duration, Interval, Rate, Text, short_feed
from cacheupdater.config.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
# PostgreSQL takes no other names for slots, and folds others of publications and tables that are not quoted
_LOWER = r"^[a-z_][a-z0-9_]{0,62}$"
# What Kafka allows in the names of topics and groups
_KAFKA = r"^[A-Za-z0-9._-]{1,200}$"
TABLE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$"

Word: TypeAlias = Annotated[Text, StringConstraints(pattern=_WORD)]
Lower: TypeAlias = Annotated[Text, StringConstraints(pattern=_LOWER)]
Table: TypeAlias = Annotated[Text, StringConstraints(pattern=TABLE)]
KafkaName: TypeAlias = Annotated[Text, StringConstraints(pattern=_KAFKA)]


class ReplicationSection(Section):
    """PostgreSQL's logical replication."""

    publication: Lower = "cacheupdater"
    slot: Lower = "cacheupdater"
    """One slot for each Redis that is kept fresh from this database."""


class NotifySection(Section):
    """Triggers of PostgreSQL that write an outbox, and NOTIFY."""

    outbox: Table = "public.cacheupdater_changes"
    """The table of the outbox, with its schema. Each Redis that is kept fresh from this database needs its own."""


class PollSection(Section):
    """Questions for rows that are newer than the last answer, on any database."""

    every: Annotated[Duration, Field(ge=0.1)] = 1.0
    """Seconds between two questions for each table: what a change is late at most, but for slow transactions."""
    overlap: Interval = 30.0
    """Seconds that a transaction may take from its change to its commit. A change that is committed later is never seen."""
    budget: Rate = 1000.0
    """Rows. The questions have a budget of their own, beside that of the loads."""


class DebeziumSection(Section):
    """Topics of Kafka that a connector of Debezium writes, as JSON."""

    url: Brokers = Field(
        description="the brokers, as in the URL of a queue but without a topic, such as kafka://kafka-1:9092"
    )
    prefix: KafkaName = Field(
        description="the connector's topic.prefix, with which the names of its topics begin"
    )
    group: KafkaName = "cacheupdater-feed"
    """The consumer group, which keeps the place. Each Redis that is kept fresh from these topics needs its own."""


class FeedSection(Section):
    """The feed of a source: exactly one of these."""

    replication: ReplicationSection | None = None
    notify: NotifySection | None = None
    poll: PollSection | None = None
    debezium: DebeziumSection | None = None

    @property
    def kind(self) -> str:
        """Its name in metrics and pages. `feed_checks` refuses a section that names none, or several."""
        return next((name for name in type(self).model_fields if getattr(self, name)), "")


class ChangeSection(Section):
    """A table whose changes concern the keys of a namespace."""

    table: Table = Field(description="the table whose rows tell, such as products or shop.products")
    key: Annotated[dict[str, Word], Field(min_length=1)] | None = None
    """By capture, the column that holds it. None: each column is called as its capture."""
    sql: Text | None = None
    """A statement that finds the keys of changed rows: it selects the captures, and says `IN :column` of the table's column."""
    column: Word | None = None
    """For poll: the time of the row's last change, or a number that grows with each change. It needs an index."""

    def columns(self, captures: Sequence[str]) -> tuple[str, ...]:
        """The columns that hold the captures, in their order, for a change without `sql`."""
        named = self.key or {}
        return tuple(named.get(capture, capture) for capture in captures)


SHORT = tuple(name for name in FeedSection.model_fields if name != "debezium")
"""Those that need no settings, so their name is enough."""

Feed: TypeAlias = Annotated[FeedSection, BeforeValidator(short_feed)]
