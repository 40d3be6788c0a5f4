"""A canary goes through every error that the drivers can raise: only error texts that can hold no value are shown."""

from __future__ import annotations

import socket
import sqlite3

import asyncpg
import pytest
from sqlalchemy import exc as sqlalchemy_errors
from sqlalchemy.exc import DBAPIError

from cacheupdater.adapters.loader_sql import SqlSource
from cacheupdater.adapters.loader_sql.drivers import Driver, PostgreSql, Sqlite
from cacheupdater.errors import Unavailable, Unreached

CANARY = "c4n4ry"
STATEMENT = "SELECT id, nonesuch FROM products WHERE id = ANY($1)"

# every class that asyncpg can raise, the server's by their codes
CODES = sorted(
    {
        kind.sqlstate
        for kind in vars(asyncpg).values()
        if isinstance(kind, type) and getattr(kind, "sqlstate", 0)
    }
    | {"P0001", "XX000", "ZZ999"}
)
CLIENT = [
    kind
    for kind in vars(asyncpg).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and not getattr(kind, "sqlstate", None)
]
SQLITE_CODES = sorted(
    {number for name, number in vars(sqlite3).items() if name.startswith("SQLITE_") and 0 < number < 10_000}
)
SQLITE = [kind for kind in vars(sqlite3).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def wrapped(own):
    """As SQLAlchemy hands it on: the driver's own error under its adapter's."""
    adapted = Exception(str(own))
    adapted.__cause__ = own
    return DBAPIError(STATEMENT, {}, adapted)


def of_server(code, *, message=CANARY, **fields):
    said = {
        "S": "ERROR",
        "C": code,
        "M": message,
        "D": CANARY,
        "H": CANARY,
        "t": CANARY,
        "c": CANARY,
    } | fields
    return wrapped(asyncpg.PostgresError.new(said))


def sqlite_error(text, code=sqlite3.SQLITE_ERROR, kind=sqlite3.OperationalError):
    own = kind(text)
    own.sqlite_errorcode, own.sqlite_errorname = code, "SQLITE_ERROR"
    return wrapped(own)


def test_there_are_as_many_errors_as_one_would_think():
    assert (len(CODES) > 200, len(CLIENT) > 5, len(SQLITE_CODES) > 80, len(SQLITE) > 8) == (True,) * 4


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"W": "PL/pgSQL function secret(text) line 1 at RAISE", "R": "exec_stmt_raise"},
        {"W": "PL/pgSQL function secret(text) line 1 at EXECUTE", "p": "3", "q": "SELECT"},
        {"P": "3", "W": 'invalid type name "c4n4ry"'},
        {"p": "3", "q": "SELECT"},
    ],
    ids=["while it runs", "RAISE", "EXECUTE", "a type's name", "inside"],
)
def test_no_error_of_postgres_quotes_what_a_statement_met_while_it_ran(fields):
    for code in CODES:
        told = str(PostgreSql().translated(of_server(code, **fields)))
        assert CANARY not in told
        assert code in told


def test_no_error_of_asyncpg_itself_quotes_anything():
    for kind in CLIENT:
        try:
            own = kind(CANARY)
        except TypeError:  # an error with fields of its own
            continue
        assert CANARY not in str(PostgreSql().translated(wrapped(own)))
        assert kind.__name__ in str(PostgreSql().translated(own, connecting=True))
        assert CANARY not in str(PostgreSql().translated(own, connecting=True))


@pytest.mark.parametrize(
    "own",
    [
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("got result for unknown protocol state 3"),
        ConnectionResetError(),
    ],
    ids=lambda own: type(own).__name__,
)
def test_keys_are_not_to_blame_for_a_server_that_goes_away(own):
    assert type(PostgreSql().translated(wrapped(own))) is Unavailable


@pytest.mark.parametrize(
    ("code", "message", "fields"),
    [
        ("42601", 'syntax error at or near "SELEKT"', {"P": "1"}),
        ("42703", 'column "nonesuch" does not exist', {"P": "12"}),
        ("42P01", 'relation "products" does not exist', {"P": "26"}),
        ("42883", "operator does not exist: integer = text", {"P": "40"}),
        ("57014", "canceling statement due to statement timeout", {"W": "PL/pgSQL function f() line 1"}),
        ("42501", "permission denied for table products", {"R": "aclcheck_error", "F": "aclchk.c"}),
    ],
)
def test_what_postgres_says_of_the_statement_itself_is_told(code, message, fields):
    assert message in str(PostgreSql().translated(of_server(code, message=message, **fields)))


@pytest.mark.parametrize(
    ("unlike", "advice"),
    [
        (
            "integer = text",
            "; if that is a capture, give it the type `int` in `key`, else cast one of both in the statement",
        ),
        ("character varying = bigint", "; if that is a capture, give it the type `str` in `key`, else cast"),
        ("uuid = text", "; if that is a capture, give it the type `uuid` in `key`, else cast"),
        ("date = text", "; cast one of both in the statement"),
        ("order_state = text", "; cast one of both in the statement"),
        ("integer + text", None),
    ],
)
def test_a_capture_of_another_type_than_its_column_is_told_with_what_to_do(unlike, advice):
    message = f"operator does not exist: {unlike}"
    told = str(PostgreSql().translated(of_server("42883", message=message, P="40")))
    assert told.partition(message)[2].startswith(advice or "")
    assert bool(told.partition(message)[2]) == (advice is not None)


@pytest.mark.parametrize(
    ("code", "means"),
    [
        ("28P01", "the user or the password is not right"),
        ("28000", "does not let this user in from here (its role, or a rule of pg_hba.conf), no encryption"),
        ("3D000", "there is no database of this name"),
        ("53300", "no connection left"),
        ("57P03", "starting up or shutting down"),
        ("42501", "may not connect to this database"),
    ],
)
def test_what_postgres_says_of_a_login_is_told_in_our_words_for_it_names_the_user(code, means):
    refused = of_server(code, message=f'no entry for user "{CANARY}", no encryption')
    said = str(PostgreSql().translated(refused, connecting=True))
    assert CANARY not in said
    assert means in said
    assert CANARY not in str(PostgreSql().translated(refused))
    assert means not in str(PostgreSql().translated(refused))
    trigger = of_server(code, W="PL/pgSQL function at_login() line 1 at RAISE")
    assert CANARY not in str(PostgreSql().translated(trigger, connecting=True))


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"no such column: {CANARY}",
        f'no such column: "{CANARY}" - should this be a string literal in single-quotes?',
        f"no such table: {CANARY}",
        f'fts5: syntax error near "{CANARY}"',
        f'near "{CANARY}": syntax error',
        f'unrecognized token: "{CANARY}"',
        f"bad JSON path: '{CANARY}'",
        f"Could not decode to UTF-8 column 'name' with text '{CANARY}'",
        f"database is locked: {CANARY}",
        f"ambiguous column name: {CANARY}",
    ],
)
def test_no_error_of_sqlite_quotes_what_is_not_in_the_statement(text):
    for code in SQLITE_CODES:
        assert CANARY not in str(Sqlite().translated(sqlite_error(text, code)))
    for kind in SQLITE:
        assert CANARY not in str(Sqlite().translated(sqlite_error(text, kind=kind)))
        assert CANARY not in str(Sqlite().translated(kind(text), connecting=True))


@pytest.mark.parametrize(
    "text",
    [
        "no such table: products",
        "no such column: nonesuch",
        'near "FROM": syntax error',
        "database is locked",
        "unable to open database file",
        "file is not a database",
    ],
)
def test_what_sqlite_says_of_the_statement_or_of_the_file_is_told(text):
    assert text in str(Sqlite().translated(sqlite_error(text)))


def test_a_column_that_is_not_utf_8_is_named():
    told = str(
        Sqlite().translated(sqlite_error(f"Could not decode to UTF-8 column 'name' with text '{CANARY}'"))
    )
    assert "column 'name' holds text that is not UTF-8" in told


def test_no_error_of_sqlalchemy_or_of_an_unknown_driver_quotes_anything():
    kinds = [k for k in vars(sqlalchemy_errors).values() if isinstance(k, type) and issubclass(k, DBAPIError)]
    assert len(kinds) > 8
    for driver in (Driver(), PostgreSql(), Sqlite()):
        for kind in kinds:
            assert CANARY not in str(driver.translated(kind(STATEMENT, {}, ValueError(1146, CANARY))))
        for plain in (ValueError, TypeError, OverflowError, UnicodeError, RuntimeError, OSError, EOFError):
            assert CANARY not in str(driver.translated(plain(CANARY)))


async def _refusal(monkeypatch, error):
    """What a load says where connecting ends so."""

    async def failing(*_args, **_named):
        raise error

    monkeypatch.setattr(asyncpg, "connect", failing)
    source = SqlSource(f"postgresql+asyncpg://shop:{CANARY}@db.internal:6543/shop")
    asked = source.statement("SELECT 1 AS id WHERE 1 IN :id", ("id",), (int,))
    try:
        with pytest.raises(Unreached) as told:
            await source.fetch(asked, [(1,)])
    finally:
        await source.close()
    return str(told.value)


async def test_a_host_that_nobody_knows_is_named_with_what_to_do(monkeypatch):
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    told = await _refusal(monkeypatch, unknown)
    assert "host 'db.internal' has no address: compare it with the source's url" in told
    assert CANARY not in told


async def test_a_server_that_does_not_listen_is_named(monkeypatch):
    told = await _refusal(monkeypatch, ConnectionRefusedError(111, "Connect call failed"))
    assert told.startswith("cannot connect to db.internal:6543: ")
    assert "ConnectionRefusedError" in told
    assert CANARY not in told
