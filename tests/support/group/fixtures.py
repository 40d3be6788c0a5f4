"""Fixtures of the group's stories: a queue of each kind for this test alone, and groups on them.

`depot_group` is on streams, SQLite and PostgreSQL in turn.
"""

from __future__ import annotations

import pytest

PARTITIONS = 12


@pytest.fixture
def kafka_queue(request):
    from group.topic import Topic

    request.getfixturevalue("needs_apache")
    topic = request.getfixturevalue("new_topic")(partitions=PARTITIONS)
    return Topic(request.getfixturevalue("kafka").bootstrap, topic)


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
def group_of(tmp_path, pg_url, redis_url, updaters):
    """A group on this queue. The cache is another Redis than the queue's, and the rows are in another database."""
    from group.rows import Rows
    from group.story import Group

    return lambda queue: Group(tmp_path, updaters, queue=queue, rows=Rows(pg_url), redis_url=redis_url)


@pytest.fixture
def group_on(request, group_of):
    """A group on a queue of this kind."""
    return lambda kind: group_of(request.getfixturevalue(f"{kind}_queue"))


@pytest.fixture
def depot_group(depot_kind, group_on):
    return group_on(depot_kind)
