"""A real PostgreSQL for every test that asks for one: a server per test process, an empty database per test.

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


@pytest.fixture(scope="session")
def _kept_database(_pg_base):
    with _new_database(_pg_base) as url:
        yield url


@pytest.fixture
def pg_url(_kept_database):
    """The address of an empty database. It is emptied after each test, which is quicker than to make a new one."""
    yield _kept_database
    _empty(_kept_database)


@pytest.fixture(scope="session")
def _logical_base():
    server = started_postgres(LOGICAL)
    yield server.url()
    server.remove()


@pytest.fixture
def logical_pg_url(_logical_base):
    """The address of a new database of a server that can replicate logically. Feeds leave more in it than tables."""
    with _new_database(_logical_base) as url:
        yield url


@pytest.fixture(scope="module")
def module_pg_url(_pg_base):
    """The address of a database for all tests of a module, if their set-up is slow and each has rows of its own."""
    with _new_database(_pg_base) as url:
        yield url


@contextmanager
def _new_database(server):
    from live.updater_process import eventually

    name = f"cacheupdater_test_{os.getpid()}_{next(_numbers)}"
    _created(server, name)
    base, _, rest = server.rpartition("/")
    query = rest.partition("?")[2]
    yield f"{base}/{name}" + (f"?{query}" if query else "")
    eventually(lambda: _dropped(server, name))


_EMPTY = """
DO $$
DECLARE each record;
BEGIN
  FOR each IN SELECT evtname FROM pg_event_trigger LOOP
    EXECUTE format('DROP EVENT TRIGGER %I CASCADE', each.evtname);
  END LOOP;
  FOR each IN SELECT pubname FROM pg_publication LOOP
    EXECUTE format('DROP PUBLICATION %I', each.pubname);
  END LOOP;
  FOR each IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', each.nspname);
  END LOOP;
  EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$
"""


def _empty(url):
    """Ends all other connections, as the end of a database would. The schema `public` gets the privileges that PostgreSQL 15 gives it."""
    from cacheupdater.local.postgres_server import run_sql

    run_sql(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        _EMPTY,
        "CREATE SCHEMA public",
        "GRANT USAGE ON SCHEMA public TO PUBLIC",
    )


def _created(server, name):
    """By default PostgreSQL 15 writes the whole new database into its log, which takes longer than a copy of the files."""
    import asyncpg

    from cacheupdater.local.postgres_server import run_sql

    create = f"CREATE DATABASE {name} TEMPLATE template0"
    try:
        run_sql(server, f"{create} STRATEGY file_copy")
    except asyncpg.PostgresSyntaxError:  # before 15 there was no other way
        run_sql(server, create)


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
