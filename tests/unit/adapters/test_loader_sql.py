"""The statement for other databases. No such server runs here, so the tests check its text and binds."""

from __future__ import annotations

import sys
from uuid import UUID

import pytest
from sqlalchemy.dialects import mssql, mysql, postgresql, sqlite
from sqlalchemy.exc import DataError, InterfaceError, OperationalError, ProgrammingError

from cacheupdater.adapters.loader_sql import SqlSource
from cacheupdater.adapters.loader_sql.drivers import Driver, PostgreSql
from cacheupdater.adapters.loader_sql.statement import statement
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater_client.protocol.patterns import Pattern

PRODUCT = Pattern.compile("product:{id:int}")
BASKET = Pattern.compile("basket:{user:int}:{shop}")
SOME = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")


def _spelled(sql, pattern, keys, dialect, driver=None):
    """The SQL that a server gets for these keys, and the values beside it."""
    driver = driver or Driver()
    asked = statement(sql, pattern.names, pattern.types, driver)
    compiled = asked.bindparams(**driver.parameters(driver.bound(keys))).compile(
        dialect=dialect, compile_kwargs={"render_postcompile": True}
    )
    return str(compiled), list(compiled.params.values())


def test_mysql_gets_one_placeholder_per_key():
    sql = "SELECT id, name FROM products WHERE id IN :id AND name NOT LIKE '50%'"
    assert _spelled(sql, PRODUCT, [(1,), (2,), (3,)], mysql.dialect()) == (
        "SELECT id, name FROM products WHERE id IN (%s, %s, %s) AND name NOT LIKE '50%%'",
        [1, 2, 3],
    )


@pytest.mark.parametrize(
    ("dialect", "condition"),
    [
        (mysql.dialect(), "IN ((%s, %s), (%s, %s))"),
        (sqlite.dialect(), "IN (VALUES (?, ?), (?, ?))"),
    ],
)
def test_several_captures_are_tuples_where_there_are_no_arrays(dialect, condition):
    sql = "SELECT user, shop FROM baskets WHERE (user, shop) IN :keys"
    assert _spelled(sql, BASKET, [(1, "de"), (2, "fr")], dialect) == (
        f"SELECT user, shop FROM baskets WHERE (user, shop) {condition}",
        [1, "de", 2, "fr"],
    )


def test_uuid_is_its_canonical_text_where_the_database_is_unknown():
    sql = "SELECT id FROM t WHERE id IN :id"
    assert _spelled(sql, Pattern.compile("t:{id:uuid}"), [(SOME,)], mssql.dialect())[1] == [str(SOME)]


def test_postgres_gets_typed_arrays_and_a_text_that_never_varies():
    one, _ = _spelled(
        "SELECT id FROM t WHERE id IN :id", PRODUCT, [(1,), (2,)], postgresql.asyncpg.dialect(), PostgreSql()
    )
    assert one == "SELECT id FROM t WHERE id = ANY($1::BIGINT[])"
    several, values = _spelled(
        "SELECT 1 FROM b WHERE (user, shop) IN :keys",
        BASKET,
        [(1, "de"), (2, "fr")],
        postgresql.asyncpg.dialect(),
        PostgreSql(),
    )
    assert several == "SELECT 1 FROM b WHERE (user, shop) IN (SELECT * FROM unnest($1::BIGINT[], $2::TEXT[]))"
    assert values == [[1, 2], ["de", "fr"]]


@pytest.mark.parametrize("text", ["x::text", r"'\:id'", r"' \:a\:b'", "'{\"a\":1}'", "'12:30'", r"'\\:x'"])
def test_colons_of_the_text_reach_the_server_as_they_are_meant(text):
    spelled, values = _spelled(
        f"SELECT {text} AS id FROM t WHERE id IN :id", PRODUCT, [(1,)], sqlite.dialect()
    )
    assert spelled == f"SELECT {text} AS id FROM t WHERE id IN (?)".replace(r"\:", ":")
    assert values == [1]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM t WHERE id IN :id LIMIT 100",
        "SELECT id FROM t WHERE id IN :id ORDER BY (SELECT 1)\nlimit 1",
        "SELECT id FROM t WHERE id IN :id LIMIT (5)",
        "SELECT id FROM t WHERE id IN :id OFFSET 5",
        "SELECT id FROM t WHERE id IN :id FETCH FIRST 5 ROWS ONLY",
        "SELECT id FROM t WHERE id IN :id FETCH NEXT ROW ONLY",
        "SELECT DISTINCT TOP 5 id FROM t WHERE id IN :id",
        "SELECT TOP (5) id FROM t WHERE id IN :id",
        "SELECT id, ')' AS a FROM (SELECT id FROM t) t WHERE id IN :id LIMIT 5",
    ],
)
def test_limit_of_the_whole_statement_is_refused_for_absence_deletes(sql):
    with pytest.raises(Misconfigured, match=r"has (LIMIT|OFFSET|FETCH|TOP): .*subquery"):
        statement(sql, PRODUCT.names, PRODUCT.types, Driver())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT u.id, o.total FROM users u, LATERAL (SELECT total FROM orders o WHERE o.user_id = u.id LIMIT 5) o WHERE u.id IN :id",
        "WITH last AS (SELECT id FROM t ORDER BY at DESC FETCH FIRST 9 ROWS ONLY) SELECT id FROM last WHERE id IN :id",
        "SELECT id, 'LIMIT 5' AS a, \"TOP 5\" FROM t WHERE id IN :id -- LIMIT 5",
        "SELECT id, rate_limit, top, daily_limit /* OFFSET 5 */ FROM t WHERE id IN :id",
    ],
)
def test_limit_inside_parentheses_and_words_that_are_none_are_accepted(sql):
    statement(sql, PRODUCT.names, PRODUCT.types, Driver())


class DriverError(Exception):
    """What an unknown driver raises."""


@pytest.mark.parametrize(
    ("kind", "lost", "told"),
    [
        (OperationalError, False, Unavailable),
        (InterfaceError, False, Unavailable),
        (DataError, True, Unavailable),
        (DataError, False, Faulty),
        (ProgrammingError, False, Faulty),
    ],
)
def test_unknown_database_fails_as_sqlalchemy_says_and_its_text_is_kept_back(kind, lost, told):
    error = kind("SELECT 1", {}, DriverError(1146, "canary"), connection_invalidated=lost)
    translated = Driver().translated(error)
    assert type(translated) is told
    assert f"{kind.__name__} 1146" in str(translated)
    assert "canary" not in str(translated)
    assert type(Driver().translated(ConnectionResetError("canary"))) is Unavailable
    assert type(Driver().translated(RuntimeError("canary"))) is Faulty


@pytest.mark.parametrize(
    ("url", "package", "bound"),
    [
        ("mysql+aiomysql://db/shop", "aiomysql", ""),
        ("mariadb+asyncmy://db/shop", "asyncmy", ""),
        ("postgresql://db/shop", "asyncpg", ">=0.30"),
        ("sqlite+aiosqlite:///shop.db", "aiosqlite", ">=0.20"),
    ],
)
def test_source_without_its_driver_names_the_package_to_install(monkeypatch, url, package, bound):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    wanted = f"'{package}{bound}'" if bound else package
    with pytest.raises(Misconfigured, match=rf"pip install {wanted}$"):
        SqlSource(url)


@pytest.mark.parametrize(("query", "cached"), [("", 300), ("?prepared_statement_cache_size=0", 0)])
def test_a_url_says_how_many_statements_a_connection_keeps_prepared(query, cached):
    """It was accepted and had no effect."""
    pytest.importorskip("asyncpg")
    source = SqlSource(f"postgresql+asyncpg://db/shop{query}")
    _, said = source._engine.dialect.create_connect_args(source._engine.url)
    assert said["prepared_statement_cache_size"] == cached
