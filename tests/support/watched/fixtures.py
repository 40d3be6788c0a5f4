"""PostgreSQL with the tables of `watched.audit`, and a Redis that is looked at from outside."""

from __future__ import annotations

import psycopg
import pytest
import redis as redis_py
from psycopg.rows import dict_row

import cacheupdater_client
from watched.audit import TABLES, Audit
from watched.shelf import Shelf, WrittenShelf

SELECT = "SELECT name, price FROM products WHERE id = %s"


@pytest.fixture(scope="module")
def watched_database(module_pg_url):
    """The plain URL of a database with the tables."""
    url = module_pg_url.replace("postgresql+asyncpg", "postgresql")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    return url


@pytest.fixture
def audit(watched_database):
    """Of empty tables."""
    with psycopg.connect(watched_database, autocommit=True) as connection:
        audit = Audit(connection)
        audit.clear()
        yield audit


@pytest.fixture
def cache(redis_url):
    with cacheupdater_client.Redis.from_url(redis_url, emit="none") as client:
        yield client


@pytest.fixture
def shelf(redis_url):
    with redis_py.Redis.from_url(redis_url, decode_responses=True) as plain:
        yield Shelf(plain)


@pytest.fixture
def written_shelf(redis_url, audit):
    """Instead of `shelf`, where products are written through."""
    with redis_py.Redis.from_url(redis_url, decode_responses=True) as plain:
        yield WrittenShelf(plain, audit.products)


@pytest.fixture
def product(cache, watched_database):
    """A declared value whose loader has a connection of its own."""
    with psycopg.connect(watched_database, autocommit=True, row_factory=dict_row) as connection:

        @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
        def product(id: int) -> dict | None:
            return connection.execute(SELECT, [id]).fetchone()

        yield product


@pytest.fixture
def watching(request):
    """`watch` of the test's module, until the end of the test."""
    made = []

    def begin(*args, **options):
        made.append(request.module.watch(*args, **options))
        return made[-1]

    yield begin
    for each in made:
        each.stop()
