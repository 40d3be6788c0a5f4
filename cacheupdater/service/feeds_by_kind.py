"""Which adapter reads the feed of a source, by the kind that the configuration names.

`feeding` asks for the feed that a process reads, `installing` and `feed_check` for what must exist before. Adapters are imported only
where they are used, for their drivers are extras. Nothing is connected before it is used.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cacheupdater.encryption import Tls
from cacheupdater.service.feed_rules import rules_of, watched
from cacheupdater_client.protocol.broker import parse_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cacheupdater.adapters import feed_debezium, feed_notify, feed_poll, feed_replication
    from cacheupdater.adapters.loader_sql import SqlSource
    from cacheupdater.config.feeds import DebeziumSection, NotifySection, PollSection, ReplicationSection
    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Feed, Installable


LOOK_TIMEOUT_S = 5.0  # seconds: no reader of the cache waits for a look, nor for a question about a table


def feed_of(config: Config, source: SourceSection) -> Feed:
    """The feed of this source, which has one."""
    said = source.changes
    assert said is not None
    if said.replication:
        from cacheupdater.adapters.feed_replication import ReplicationFeed  # noqa: PLC0415

        return ReplicationFeed(_replication(config, source, said.replication))
    if said.notify:
        from cacheupdater.adapters.feed_notify import NotifyFeed  # noqa: PLC0415

        return NotifyFeed(_notify(config, source, said.notify))
    if said.debezium:
        from cacheupdater.adapters.feed_debezium import DebeziumFeed  # noqa: PLC0415

        return DebeziumFeed(_debezium(config, source, said.debezium))
    assert said.poll is not None
    from cacheupdater.adapters.feed_marks_redis import RedisMarks  # noqa: PLC0415
    from cacheupdater.adapters.feed_poll import PollFeed  # noqa: PLC0415

    marks = RedisMarks(config.cache.reveal(), source.name)
    return PollFeed(_database(source), marks, _poll(config, source, said.poll))


@asynccontextmanager
async def opened(config: Config, source: SourceSection) -> AsyncIterator[Installable]:
    """What must exist in the database of this source, which has a feed."""
    installable = _installable(config, source)
    try:
        yield installable
    finally:
        await installable.close()


def _installable(config: Config, source: SourceSection) -> Installable:
    said = source.changes
    assert said is not None
    if said.replication:
        from cacheupdater.adapters.feed_replication import ReplicationInstallation  # noqa: PLC0415

        return ReplicationInstallation(_replication(config, source, said.replication))
    if said.notify:
        from cacheupdater.adapters.feed_notify import NotifyInstallation  # noqa: PLC0415

        return NotifyInstallation(_notify(config, source, said.notify))
    if said.debezium:
        from cacheupdater.adapters.feed_debezium import DebeziumChecks  # noqa: PLC0415
        from cacheupdater.adapters.topic_kafka import unreadable  # noqa: PLC0415

        return DebeziumChecks(_debezium(config, source, said.debezium), unreadable)
    assert said.poll is not None
    from cacheupdater.adapters.feed_poll import PollChecks  # noqa: PLC0415

    return PollChecks(_database(source), _poll(config, source, said.poll))


def _replication(
    config: Config, source: SourceSection, said: ReplicationSection
) -> feed_replication.Settings:
    from cacheupdater.adapters.feed_replication import Settings  # noqa: PLC0415

    return Settings(
        _url(source),
        said.publication,
        said.slot,
        watched(config, source.name),
        tls=Tls(*source.encryption),
    )


def _notify(config: Config, source: SourceSection, said: NotifySection) -> feed_notify.NotifySettings:
    from cacheupdater.adapters.feed_notify import NotifySettings  # noqa: PLC0415

    return NotifySettings(
        _url(source), watched(config, source.name), outbox=said.outbox, tls=Tls(*source.encryption)
    )


def _poll(config: Config, source: SourceSection, said: PollSection) -> feed_poll.PollSettings:
    from cacheupdater.adapters.feed_poll import PollSettings, PollTable  # noqa: PLC0415

    columns = {rule.table: change.column or "" for rule, change in rules_of(config, source.name)}
    tables = [PollTable(each, columns[each.table], said.every) for each in watched(config, source.name)]
    return PollSettings(tables, overlap=said.overlap, rows_per_second=said.budget)


def _debezium(config: Config, source: SourceSection, said: DebeziumSection) -> feed_debezium.DebeziumSettings:
    from cacheupdater.adapters.feed_debezium import DebeziumSettings  # noqa: PLC0415

    return DebeziumSettings(parse_cluster(said.url), said.prefix, said.group, watched(config, source.name))


def _database(source: SourceSection) -> SqlSource:
    """One connection beside those of the loads, so that neither waits for the other."""
    from cacheupdater.adapters.loader_sql import SqlSource  # noqa: PLC0415

    timeout = max(source.statement_timeout, LOOK_TIMEOUT_S)
    return SqlSource(_url(source), pool_size=1, statement_timeout=timeout, tls=Tls(*source.encryption))


def _url(source: SourceSection) -> str:
    """A source with a feed has a URL: the configuration has been checked."""
    return source.url.reveal() if source.url else ""
