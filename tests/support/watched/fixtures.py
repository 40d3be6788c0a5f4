"""PostgreSQL with the tables of `watched.audit`, and a Redis that is looked at from outside."""

from __future__ import annotations

import psycopg
import pytest
import redis as redis_py

import cacheupdater_client
from watched.audit import TABLES, Audit
from watched.shelf import Shelf


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
