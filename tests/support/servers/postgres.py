"""A real PostgreSQL for every test that asks for one: a server per test process, a fresh database per test.

PG_URL (`postgresql+asyncpg://user@host/database`) names a server to use instead; it must let us create databases. Tests that
stop the server get one of their own. Without any PostgreSQL these tests are skipped, with the reason. A test that leaves a
connection behind fails itself: else the garbage collector would find the connection during another test, some day.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from itertools import count

import pytest

_numbers = count(1)
_SERVED = {"_pg_base", "_logical_base", "postgres_server", "logical_server"}
# a commit that is not flushed yet is told 200 ms later
LOGICAL = {"wal_level": "logical", "max_slot_wal_keep_size": "1GB", "synchronous_commit": "on"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    yield
    if not _SERVED.isdisjoint(item.fixturenames):
        gc.collect()


@pytest.fixture(scope="session")
def _pg_base():
    url = os.environ.get("PG_URL")  # noqa: TID251  the test run's own setting
    if url:
        yield url
        return
    server = started_postgres()
    yield server.url()
    server.remove()


@pytest.fixture
def pg_url(_pg_base):
    """The address of an empty database."""
    with _empty_database(_pg_base) as url:
        yield url


@pytest.fixture(scope="session")
def _logical_base():
    server = started_postgres(LOGICAL)
    yield server.url()
    server.remove()


@pytest.fixture
def logical_pg_url(_logical_base):
    """The address of an empty database of a server that can replicate logically."""
    with _empty_database(_logical_base) as url:
        yield url


@pytest.fixture(scope="module")
def module_pg_url(_pg_base):
    """The address of a database for all tests of a module, if their set-up is slow and each has rows of its own."""
    with _empty_database(_pg_base) as url:
        yield url


@contextmanager
def _empty_database(server):
    from live.updater_process import eventually

    from cacheupdater.local.postgres_server import run_sql

    name = f"cacheupdater_test_{os.getpid()}_{next(_numbers)}"
    run_sql(server, f"CREATE DATABASE {name} TEMPLATE template0")
    base, _, rest = server.rpartition("/")
    query = rest.partition("?")[2]
    yield f"{base}/{name}" + (f"?{query}" if query else "")
    eventually(lambda: _dropped(server, name))


def _dropped(server, name):
    """False if the server has not heard yet that a reader of the database's changes has gone."""
    import asyncpg

    from cacheupdater.local.postgres_server import run_sql

    try:
        run_sql(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    except asyncpg.ObjectInUseError:
        return False
    return True


@pytest.fixture
def postgres_server():
    """A server of this test's own, to stop and start."""
    server = started_postgres()
    yield server
    server.remove()


@pytest.fixture
def logical_server():
    """A server of this test's own that can replicate logically."""
    server = started_postgres(LOGICAL)
    yield server
    server.remove()


def started_postgres(settings=None):
    """A running server. The caller ends it with `remove`."""
    try:
        from cacheupdater.local.postgres_server import PostgresServer

        return PostgresServer(settings=settings).start()
    except (ImportError, OSError, RuntimeError) as e:
        pytest.skip(f"no PostgreSQL: {e}")
