"""Fixtures of the stories that run on each queue without Kafka: `depot_group` on streams, SQLite and PostgreSQL in turn."""

from __future__ import annotations

import pytest

PARTITIONS = 12


@pytest.fixture
def streams_queue(request, tmp_path):
    from group.streams import StreamsQueue

    server = request.getfixturevalue("redis_server")
    queue = StreamsQueue(server.url, port=server.port, partitions=PARTITIONS, folder=tmp_path)
    yield queue
    queue.close()


@pytest.fixture
def sqlite_queue(tmp_path, collectors):
    from group.depots import SqliteQueue

    return SqliteQueue(f"sqlite:///{tmp_path}/hints.db", partitions=PARTITIONS, collectors=collectors)


@pytest.fixture
def postgresql_queue(postgres_server, collectors):
    """In a server of its own: the one of the rows is slow enough."""
    from group.depots import PostgresQueue

    return PostgresQueue(postgres_server.url(), partitions=PARTITIONS, collectors=collectors)


@pytest.fixture(params=["streams", "sqlite", "postgresql"])
def depot_kind(request):
    return request.param


@pytest.fixture
def depot_group(depot_kind, request, tmp_path, pg_url, redis_url, updaters):
    """A group on a depot of this test's own. The cache is another Redis, and the rows are in another database."""
    from group.rows import Rows
    from group.story import Group

    queue = request.getfixturevalue(f"{depot_kind}_queue").start()
    return Group(tmp_path, updaters, queue=queue, rows=Rows(pg_url), redis_url=redis_url)
