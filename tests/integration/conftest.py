"""Fixtures of the live tests: updater processes, and the tests' own connections to databases and Redis."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import redis
from group.fixtures import (
    depot_group,
    depot_kind,
    group_of,
    group_on,
    kafka_queue,
    postgresql_queue,
    sqlite_queue,
    streams_queue,
)
from watched.fixtures import audit, cache, product, shelf, watched_database, watching, written_shelf

# pytest finds fixtures among a conftest's names
__all__ = [
    "audit",
    "cache",
    "depot_group",
    "depot_kind",
    "group_of",
    "group_on",
    "kafka_queue",
    "postgresql_queue",
    "product",
    "shelf",
    "sqlite_queue",
    "streams_queue",
    "watched_database",
    "watching",
    "written_shelf",
]


@pytest.fixture
def sockets():
    """A folder for unix sockets; not tmp_path, for a socket's whole path may have a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        yield Path(folder)


@pytest.fixture
def updaters(sockets):
    """Starts updater processes; all of them end with the test, their logs are shown where it failed."""
    from live.updater_process import Updaters

    started = Updaters(sockets)
    yield started
    started.close()


@pytest.fixture
def collectors(sockets):
    """Starts collectors; all of them end with the test, their logs are shown where it failed."""
    from live.collector_process import CollectorProcess

    made = []

    def make(queue, *arguments, **options):
        made.append(CollectorProcess(sockets / f"c{len(made)}", queue, *arguments, **options))
        return made[-1]

    yield make
    for number, each in enumerate(made):
        each.kill()
        print(f"--- log of collector {number} ---\n{each.log[-8000:]}")


@pytest.fixture
def database(pg_url):
    """The tests' own connection to an empty database."""
    from live.database import Database

    with Database(pg_url) as own:
        yield own


@pytest.fixture
def plain(redis_url):
    """Any client of Redis: it leaves no hints."""
    with redis.Redis.from_url(redis_url) as client:
        yield client
