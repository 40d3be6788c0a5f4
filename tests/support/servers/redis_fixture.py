"""Redis for tests: real servers that the run starts itself.

`redis_url` is the usual one (REDIS_URL overrides it; it is flushed before each test). `redis_server` is a server that one test
may stop and freeze. `every_redis_url` runs a test once for each version of Redis on this machine.
"""

from __future__ import annotations

import os

import pytest
import redis

from cacheupdater.local.redis_server import RedisServer, executables, version


@pytest.fixture(scope="session")
def session_redis_url():
    given = os.environ.get("REDIS_URL")  # noqa: TID251  the documented way to bring one's own server
    if given:
        yield given
        return
    with RedisServer() as server:
        yield server.url


BUSY_S = 5.0  # the longest that a machine which runs all tests at once delays a call
# The longest that a write to a queue takes: each write waits for the disk, and SQLite serves writers in no order.
WRITTEN_S = 30.0


@pytest.fixture
def patient(monkeypatch):
    """Lets calls to Redis, and to a queue, take longer than the service would: for tests of answers, not of times."""
    from cacheupdater import redis_record
    from cacheupdater.adapters.depot_redis import servers
    from cacheupdater.adapters.depot_sql import postgres_server, sqlite_file
    from cacheupdater.adapters.queue_depot import queue
    from cacheupdater.adapters.writer_redis import sentinel, sessions, slots
    from cacheupdater.kafka_group import settings as kafka_group

    for module in (sessions, slots, redis_record, servers):
        monkeypatch.setattr(module, "CALL_TIMEOUT_S", BUSY_S)
    for module in (sessions, redis_record, servers):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", BUSY_S)
    monkeypatch.setattr(sentinel, "ASK_S", BUSY_S)
    monkeypatch.setattr(sqlite_file, "BUSY_S", WRITTEN_S)
    monkeypatch.setattr(postgres_server, "IDLE_S", WRITTEN_S)
    for module in (queue, kafka_group):
        monkeypatch.setattr(module, "COMMIT_WITHIN", WRITTEN_S)


@pytest.fixture
def patient_client(monkeypatch):
    """Lets a client wait longer for the answer of its streams. After a late answer it sends its hints again, and they count twice."""
    from cacheupdater_client.transports import redis_nodes

    monkeypatch.setattr(redis_nodes, "ANSWER_S", BUSY_S)


def flushed(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        client.flushdb(asynchronous=True)  # a million keys of the test before take seconds otherwise
        client.script_flush()
    return url


@pytest.fixture
def redis_url(session_redis_url):
    return flushed(session_redis_url)


@pytest.fixture
def redis_server():
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session", params=executables(), ids=version)
def every_redis_server(request):
    """One server of each version for the session: for reading and writing, not for stopping."""
    with RedisServer(request.param) as server:
        yield server


@pytest.fixture
def every_redis_url(every_redis_server):
    return flushed(every_redis_server.url)
