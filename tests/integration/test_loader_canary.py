"""No error reveals a row's value: a canary is in rows and keys, and every fault that makes a database quote it is tried."""

from __future__ import annotations

import logging
import re
import sqlite3

import pytest
from suite.pace import PATIENCE_S

from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.errors import CacheUpdaterError
from cacheupdater_client.protocol.patterns import Pattern

CANARY = "c4n4ry"
NOTE = Pattern.compile("note:{id:int}")

# PL/pgSQL may raise every code with any words, and a function may run a text that it was given
CODES = "01000 08006 22P02 23505 28P01 3D000 40001 42501 42601 42703 42704 42883 42P01 53300 55P03 57014 57P01 58000 P0001 XX000"
_PLPGSQL = "CREATE FUNCTION {} LANGUAGE plpgsql AS $$ {} END $$"
_MESSAGE = (
    "RAISE EXCEPTION '%', said USING ERRCODE = code, DETAIL = said, HINT = said, COLUMN = said, TABLE = said;"
)
POSTGRES_TABLES = (
    "CREATE TABLE notes (id int, word text, body text)",
    f"INSERT INTO notes VALUES (1, '{CANARY}', '{CANARY} x''(')",
    _PLPGSQL.format("secret(code text, said text) RETURNS int", f"BEGIN {_MESSAGE}"),
    _PLPGSQL.format("warned(said text) RETURNS int", "BEGIN RAISE WARNING '%', said; RETURN 1 / 0;"),
    _PLPGSQL.format(
        "ran(said text) RETURNS text", "DECLARE r text; BEGIN EXECUTE 'SELECT ' || said INTO r; RETURN r;"
    ),
    "CREATE DOMAIN short AS text CHECK (length(VALUE) < 3)",
    "CREATE TYPE mood AS ENUM ('glad')",
)
TYPES = """
    bigint uuid date time timestamptz interval numeric float8 boolean bytea bit(3) varbit inet cidr macaddr money json
    jsonb jsonpath xml point box tsquery int4range tstzrange int4multirange int[] mood short regclass regtype regproc
    regprocedure regoper regoperator regrole regnamespace regconfig regdictionary regcollation oid pg_lsn xid8
    pg_snapshot tid "char"
"""
CALLS = """
    to_tsquery(body)|to_tsquery(body::regconfig,'a')|to_date(body,'YYYY')|to_number(body,'999')|to_timestamp(body,'HH')
    set_config(body,body,true)|current_setting(body)|timezone(body,now())|make_interval(days=>body::int)
    regexp_match(body,body)|'a'~body|decode(body,'hex')|decode('a',body)|convert_to('é',body)|encode('a',body)
    xpath(body,'<a/>')|jsonb_path_query('{}',body::jsonpath)|format(body||'%d',1)|nextval(body)|setval(body,1)
    has_table_privilege(body,'select')|has_table_privilege('notes',body)|pg_get_serial_sequence(body,body)
    query_to_xml(body,true,true,'')|ran(body)|ran('now() AT TIME ZONE '||quote_literal(body))|warned(body)
    date_trunc(body,now())|extract('day' from body::timestamptz)|array_fill(1,body::int[])|body::jsonb->>body
    pg_read_file(body)|pg_ls_dir(body)|lo_import(body)|convert_from(body::bytea,'UTF8')|like_escape(body,body)
    1/(length(body)-length(body))|power(10,length(body)*999)|repeat(body,2147483647)|body LIKE body||'\\'|websearch_to_tsquery(body::regconfig,'a')
    txid_status(length(body)::bigint*99999999)|pg_terminate_backend(body::int)|normalize(body,NFC)||chr(0)|dblink(body)
"""
SQLITE_TABLES = (
    "CREATE TABLE notes (id INTEGER, body TEXT, rotten TEXT)",
    f"INSERT INTO notes VALUES (1, '{CANARY} (\"', CAST(x'ff{CANARY.encode().hex()}' AS TEXT))",
    "CREATE VIRTUAL TABLE words USING fts5(body)",
    f"INSERT INTO words VALUES ('{CANARY}')",
)
SQLITE_CALLS = """
    rotten|json(body)|json_extract('{}',body)|json_extract(body,'$.a')|body->'$'|'{}'->>('$'||body)|abs(-9223372036854775808)
    (SELECT 1 FROM words WHERE words MATCH notes.body)|(SELECT 1 FROM words WHERE words MATCH notes.body||char(58)||'x')
    (SELECT 1 FROM words WHERE words MATCH '{'||notes.body)|load_extension(body)|zeroblob(length(body)*99999999999)
    json_group_array(body->body)|printf('%*d',2147483647,1)||body|body REGEXP body|likely(json_each(body))|unicode(body)->body
    strftime(body,body)->'$'|fts5(body)|highlight(body,0,'a','b')|(SELECT value FROM json_each(notes.body))
"""


def parts(text):
    """Expressions with single bars between them."""
    return [part.strip() for line in text.strip().splitlines() for part in re.split(r"(?<!\|)\|(?!\|)", line)]


@pytest.fixture
async def told(caplog):
    """Loads by each of these expressions, and returns what was told of those that failed."""
    caplog.set_level(logging.DEBUG)
    sources = []

    async def told(url, expressions):
        source = SqlSource(url, statement_timeout=PATIENCE_S)
        sources.append(source)
        said = {}
        for expression in expressions:
            loader = SqlLoader(source, f"SELECT id, {expression} AS x FROM notes WHERE id IN :id", NOTE)
            try:
                await loader.load([(1,)])
            except CacheUpdaterError as e:
                logging.getLogger("test").exception("as the pipeline would log it")
                said[expression] = str(e)
        assert [e for e, text in said.items() if CANARY in text] == []
        assert CANARY not in caplog.text
        print(*said.items(), sep="\n")  # shown where the test fails
        return said

    yield told
    for source in sources:
        await source.close()


async def test_no_error_of_a_running_statement_quotes_a_value_of_postgres(pg_url, told):
    from cacheupdater.local.postgres_server import run_sql

    run_sql(pg_url, *POSTGRES_TABLES)
    casts = [f"{column}::{kind}" for kind in TYPES.split() for column in ("word", "body")]
    raised = [f"secret('{code}', body)" for code in CODES.split()]
    said = await told(pg_url, [*casts, *parts(CALLS), *raised])
    assert len(said) > 130, "nearly all of these fail"
    assert all(code in said[f"secret('{code}', body)"] for code in CODES.split())


async def test_no_error_of_a_running_statement_quotes_a_value_of_sqlite(tmp_path, told):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        for statement in SQLITE_TABLES:
            database.execute(statement)
    database.close()
    said = await told(f"sqlite+aiosqlite:///{path}", parts(SQLITE_CALLS))
    assert len(said) >= 10
    assert "column 'x' holds text that is not UTF-8" in said["rotten"]


async def test_rights_that_are_missing_are_named_and_a_message_of_a_function_is_not(pg_url, told):
    from cacheupdater.local.postgres_server import run_sql

    run_sql(
        pg_url,
        *POSTGRES_TABLES,
        "CREATE TABLE safe (id int)",
        "CREATE VIEW through AS SELECT * FROM safe",
        "DROP ROLE IF EXISTS poor",
        "CREATE ROLE poor",
        "ALTER VIEW through OWNER TO poor",
    )
    try:
        said = await told(pg_url, ["(SELECT count(*) FROM through)", f"secret('42501', '{CANARY}'||body)"])
    finally:
        run_sql(pg_url, "DROP VIEW through", "DROP ROLE poor")
    [rights, raised] = said.values()
    assert "InsufficientPrivilegeError 42501: permission denied for table safe" in rights
    assert raised.endswith("InsufficientPrivilegeError 42501")
