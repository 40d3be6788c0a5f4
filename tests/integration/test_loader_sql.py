"""The SQL loader on real databases: types, wrong statements, hostile values, slow and vanishing servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from sqlalchemy.engine import make_url
from suite.pace import PATIENCE_S, TRIES, soonest_of

from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.adapters.loader_sql import loader as loader_sql
from cacheupdater.errors import Faulty, Misconfigured, TimedOut, Unavailable, Unreached
from cacheupdater_client.protocol.patterns import Pattern

SOME, OTHER = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff"), UUID(int=7)
PRODUCT = Pattern.compile("product:{id:int}")
SKU = Pattern.compile("sku:{sku}")
TABLES = (
    "CREATE TABLE products (id INTEGER PRIMARY KEY, big BIGINT, sku VARCHAR(60), uid CHAR(36), name TEXT)",
    f"INSERT INTO products VALUES (1, 9000000000000000001, 'a-1', '{SOME}', 'one'), (2, 2, 'b''; --', '{OTHER}', 'two')",
    "CREATE TABLE orders (id INTEGER, user_id INTEGER, total INTEGER)",
    "INSERT INTO orders VALUES (3, 7, 30), (1, 7, 10), (2, 7, 20), (4, 8, 40)",
)
HOSTILE = [
    "b'; --",
    "'; DROP TABLE products; --",
    "' OR '1'='1",
    "%",
    "_-1",
    "\\'",
    ":sku",
    "$1",
    "?",
    "{0}",
    "NULL",
    '"',
]


@pytest.fixture
def sqlite_url(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        for statement in TABLES:
            database.execute(statement)
    database.close()
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture
def postgres_url(pg_url):
    from cacheupdater.local.postgres_server import run_sql

    run_sql(pg_url, *TABLES, "ALTER TABLE products ALTER COLUMN uid TYPE uuid USING uid::uuid")
    return pg_url


async def _until(true):
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  threads and peers set no event
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
async def _no_thread_stays():
    """However its statement ended, a connection's thread ends with its source."""
    yield
    await _until(lambda: not any("_connection_worker" in thread.name for thread in threading.enumerate()))


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def source(url):
    source = SqlSource(url, statement_timeout=PATIENCE_S)
    yield source
    await source.close()


@pytest.fixture
async def postgres(postgres_url):
    source = SqlSource(postgres_url, statement_timeout=PATIENCE_S)
    yield source
    await source.close()


@pytest.mark.parametrize(
    ("key", "column", "present", "absent"),
    [
        ("p:{id:int}", "id", 1, 2**62),  # beyond what the column can hold: no row, no error
        ("p:{big:int}", "big", 9000000000000000001, -(2**63)),
        ("p:{sku}", "sku", "a-1", "A-1"),
        ("p:{uid:uuid}", "uid", SOME, UUID(int=8)),
    ],
)
async def test_load_finds_rows_by_columns_of_every_capture_type(source, key, column, present, absent):
    loader = SqlLoader(
        source, f"SELECT {column}, name FROM products WHERE {column} IN :{column}", Pattern.compile(key)
    )
    found = await loader.load([(present,), (absent,)])
    assert [(key, dict(row)["name"]) for key, row in found.items()] == [((present,), "one")]


async def test_load_finds_tuples_of_all_capture_types(source):
    pattern = Pattern.compile("p:{id:int}:{uid:uuid}:{sku}")
    sql = "SELECT id, uid, sku, name FROM products WHERE (id, uid, sku) IN :keys"
    found = await SqlLoader(source, sql, pattern, columns=["name"]).load([(1, SOME, "a-1"), (2, SOME, "a-1")])
    assert found == {(1, SOME, "a-1"): {"name": "one"}}


async def test_columns_choose_what_the_value_holds(source):
    sql = "SELECT id, sku, name FROM products WHERE id IN :id"
    for columns in (["name"], ["name", "sku"], ["id"], None):
        row = {"id": 1, "sku": "a-1", "name": "one"}
        found = await SqlLoader(source, sql, PRODUCT, columns=columns).load([(1,)])
        assert found == {(1,): {name: row[name] for name in columns or row}}


async def test_rows_many_groups_the_rows_of_a_key_in_the_order_of_the_result(source):
    sql = "SELECT user_id AS usr, id, total FROM orders WHERE user_id IN :usr ORDER BY id"
    loader = SqlLoader(source, sql, Pattern.compile("orders:{usr:int}"), columns=["id"], rows="many")
    assert await loader.load([(7,), (8,), (9,)]) == {
        (7,): [{"id": 1}, {"id": 2}, {"id": 3}],
        (8,): [{"id": 4}],
    }


async def test_table_is_short_for_a_statement(source):
    assert (
        await SqlLoader(
            source,
            source.select("orders", ["id", "user_id"], ["total"]),
            Pattern.compile("o:{id:int}:{user_id:int}"),
        ).load([(1, 7), (1, 8)])
    ) == {(1, 7): {"id": 1, "user_id": 7, "total": 10}}
    loader = SqlLoader(source, source.select("products", ["id"]), PRODUCT, columns=["name"])
    assert await loader.load([(2,)]) == {(2,): {"name": "two"}}


async def test_table_reads_the_stamp_column_once_whatever_the_value_holds(source):
    stamp = ("total", "version")
    for columns, said in (
        (["user_id"], "id, user_id, total"),
        (["total"], "id, total"),
        (None, "*"),
    ):
        sql = source.select("orders", ["id"], columns, stamp=stamp)
        assert sql == f"SELECT {said} FROM orders WHERE id IN :keys"
        row = {"id": 2, "user_id": 7, "total": 20}
        found = await SqlLoader(source, sql, PRODUCT, columns=columns, stamp=stamp).load([(2,)])
        assert found == {(2,): {name: row[name] for name in columns or row}}
        assert found.stamps == {(2,): 20.0}
    assert source.select("orders", ["id"], ["total"], stamp=("id", "version")).startswith("SELECT id, total ")


async def test_versions_are_numbers_of_any_kind_and_everything_else_is_no_stamp(source):
    sql = (
        "SELECT id, CASE id WHEN 1 THEN 1.5 ELSE NULL END AS a, CAST(id AS NUMERIC) AS b, 'x' AS c, sku AS d"
        " FROM products WHERE id IN :id"
    )
    told = {}
    for column in "abcd":
        loader = SqlLoader(source, sql, PRODUCT, columns=["c"], stamp=(column, "version"))
        found = await loader.load([(1,), (2,)])
        assert found == {(1,): {"c": "x"}, (2,): {"c": "x"}}
        told[column] = found.stamps
    assert told == {"a": {(1,): 1.5}, "b": {(1,): 1.0, (2,): 2.0}, "c": {}, "d": {}}


async def test_age_of_a_row_is_the_time_since_its_last_change_in_utc(source, url):
    """A quarter of an hour, in every form in which a database may hold it; the last row is of tomorrow."""
    now = datetime.now(UTC)
    then = now - timedelta(minutes=15)
    east = then.astimezone(timezone(timedelta(hours=9)))
    forms = {"naive": then.replace(tzinfo=None), "aware": east, "epoch": then.timestamp()}
    texts = {"naive": "TIMESTAMP", "aware": "TIMESTAMPTZ", "epoch": "DOUBLE PRECISION"}
    columns = ", ".join(f"{name} {kind}" for name, kind in texts.items())
    rows = [
        f"(1, '{forms['naive']}', '{forms['aware']}', {forms['epoch']!r})",
        "(2, NULL, NULL, NULL)",
        f"(3, '{forms['naive'] + timedelta(days=1)}', '{now + timedelta(days=1)}', {forms['epoch'] + 86400!r})",
    ]
    _run(url, f"CREATE TABLE dated (id INTEGER, {columns})", f"INSERT INTO dated VALUES {', '.join(rows)}")
    for column in forms:
        sql = f"SELECT id, {column} FROM dated WHERE id IN :id"
        loader = SqlLoader(source, sql, PRODUCT, columns=["id"], stamp=(column, "age"))
        found = await loader.load([(1,), (2,), (3,)])
        assert found == {(n,): {"id": n} for n in (1, 2, 3)}
        assert found.stamps == {(1,): pytest.approx(900, abs=60), (3,): 0.0}


async def test_missing_stamp_column_is_named(source):
    sql = "SELECT id, name FROM products WHERE id IN :id"
    with pytest.raises(Faulty, match="does not return the column 'rev'; it returns id, name"):
        await SqlLoader(source, sql, PRODUCT, stamp=("rev", "version")).load([(1,)])


async def test_stamp_of_many_rows_is_refused(source):
    sql = "SELECT id, total FROM orders WHERE id IN :id"
    with pytest.raises(Misconfigured, match="'total' can tell of one row per key, not of rows: many"):
        SqlLoader(source, sql, PRODUCT, rows="many", stamp=("total", "version"))


def _run(url, *statements):
    if url.startswith("postgresql"):
        from cacheupdater.local.postgres_server import run_sql

        run_sql(url, *statements)
        return
    with sqlite3.connect(make_url(url).database) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


async def test_statement_may_name_the_keys_twice_and_hold_casts_and_colons(source):
    sql = r"SELECT id, '\:x' AS name FROM products WHERE id IN (:id) UNION SELECT id, 'b' FROM orders WHERE id in :keys AND 1 = 2"
    assert await SqlLoader(source, sql, PRODUCT).load([(1,), (3,)]) == {(1,): {"id": 1, "name": ":x"}}


QUOTED = [
    ("'IN :id'", "IN :id"),
    ("'it''s IN :id'", "it's IN :id"),
    ("'a' -- IN :id\n", "a"),
    ("/* IN :id */ 'b'", "b"),
]
QUOTED_BY_POSTGRES = [
    (r"E'\' IN :id'", "' IN :id"),
    ("$$IN :id '$$", "IN :id '"),
    ("$a$IN :id $$$a$", "IN :id $$"),
    ("/* /* IN :id */ IN :id */ 'c'", "c"),
]


async def _selected(source, text):
    sql = f"SELECT id, {text} AS x FROM products WHERE id IN :id"
    return (await SqlLoader(source, sql, PRODUCT, columns=["x"]).load([(1,)]))[1,]


@pytest.mark.parametrize(("text", "means"), QUOTED)
async def test_keys_in_a_string_or_comment_are_text(source, text, means):
    assert await _selected(source, text) == {"x": means}


@pytest.mark.parametrize(("text", "means"), QUOTED_BY_POSTGRES)
async def test_keys_in_quotes_of_postgres_are_text(postgres, text, means):
    assert await _selected(postgres, text) == {"x": means}


async def test_keys_in_a_quoted_name_are_its_name(source):
    sql = 'SELECT id, name AS "IN :id" FROM products WHERE id IN :id'
    assert await SqlLoader(source, sql, PRODUCT).load([(1,)]) == {(1,): {"id": 1, "IN :id": "one"}}


async def test_hostile_values_stay_values(source):
    loader = SqlLoader(source, "SELECT sku, name FROM products WHERE sku IN :sku", SKU, columns=["name"])
    assert await loader.load([(value,) for value in HOSTILE]) == {("b'; --",): {"name": "two"}}
    assert await loader.load([("a-1",)]) == {("a-1",): {"name": "one"}}


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (
            "SELECT name FROM products WHERE id IN :id",
            "does not return the column 'id'; it returns name; each capture",
        ),
        ("SELECT id, id FROM products WHERE id IN :id", "returns twice the column 'id'"),
        ("SELECT id + 1 AS id, name FROM products WHERE id IN :id", "1 of 1 rows are of no key"),
        ("SELECT id, name FROM products WHERE id IN :id OR 1 = 1", "1 of 2 rows are of no key"),
        ("SELECT 1 AS id, name FROM products WHERE id IN :id OR 1 = 1", "2 rows for 1 key;"),
        (
            "SELECT CAST(id AS VARCHAR(9)) AS id, name FROM products WHERE id IN :id",
            "holds str where the key holds int",
        ),
        ("SELECT nonesuch AS id FROM products WHERE id IN :id", "nonesuch"),
        ("SELECT id, name FROM nonesuch WHERE id IN :id", "nonesuch"),
        ("SELEKT id FROM products WHERE id IN :id", "syntax error"),
        ("SELECT id, name FROM products WHERE id IN :id; SELECT 1", "refuses this statement"),
    ],
)
async def test_wrong_statement_fails_with_the_reason_and_never_says_absent(source, sql, why):
    with pytest.raises(Faulty, match=why):
        await SqlLoader(source, sql, PRODUCT).load([(1,)])


async def test_missing_value_column_is_named(source):
    with pytest.raises(Faulty, match=r"does not return the column 'price'; it returns id, name$"):
        await SqlLoader(
            source, "SELECT id, name FROM products WHERE id IN :id", PRODUCT, columns=["price"]
        ).load([(1,)])


async def test_column_of_another_type_than_the_capture_is_refused(source):
    with pytest.raises(
        Faulty, match=r"operator does not exist.* the type `int` in `key`|holds int where the key holds str"
    ):
        await SqlLoader(source, "SELECT id AS sku, name FROM products WHERE id IN :sku", SKU).load([("1",)])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (
            "SELECT id FROM products",
            "binds no capture, so it would load the same rows for every batch; add WHERE … IN :id",
        ),
        (
            "SELECT id FROM products WHERE id = :id",
            ":id is a list of values and needs IN before it; write IN :id",
        ),
        ("SELECT id FROM products WHERE id NOT IN :id", "NOT IN :id would load the rows of every other key"),
        ("SELECT id FROM products WHERE id IN :id AND shop = :shop", ":shop names no capture of the key"),
    ],
)
def test_statement_that_does_not_select_by_key_is_refused(tmp_path, sql, why):
    source = SqlSource(f"sqlite+aiosqlite:///{tmp_path}/any.db")
    with pytest.raises(Misconfigured, match=why):
        SqlLoader(source, sql, PRODUCT)
    with pytest.raises(Misconfigured, match=r"IN :user binds one of 2 captures.*\(user, shop\) IN :keys"):
        SqlLoader(source, "SELECT 1 FROM b WHERE user IN :user", Pattern.compile("b:{user:int}:{shop}"))


@pytest.mark.parametrize("table", ["", "a b", "a;b", 'a"b', "a.b.c", "a:b", "a--"])
def test_table_name_that_is_none_is_refused(tmp_path, table):
    with pytest.raises(Misconfigured, match="is no table name"):
        SqlSource(f"sqlite+aiosqlite:///{tmp_path}/any.db").select(table, ["id"])


@pytest.mark.parametrize(
    "address",
    ["mysql://user:canary@host/db", "nonsense canary", "sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"],
)
def test_address_that_cannot_be_a_source_is_refused_without_showing_it(address):
    with pytest.raises(Misconfigured) as refused:
        SqlSource(address)
    assert "canary" not in str(refused.value)


async def test_source_reads_only(source):
    with pytest.raises(Faulty, match=r"read-?only|refuses this statement"):
        await SqlLoader(source, "DELETE FROM products WHERE id IN :id", PRODUCT).load([(1,)])
    assert await SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT).load([(1,)])


async def test_missing_sqlite_file_is_unavailable_and_not_created(tmp_path):
    source = SqlSource(f"sqlite+aiosqlite:///{tmp_path}/none.db", statement_timeout=PATIENCE_S)
    with pytest.raises(Unavailable, match="unable to open database file"):
        await SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT).load([(1,)])
    assert not list(tmp_path.iterdir())
    await source.close()


async def test_locked_sqlite_is_unavailable_until_it_is_free(sqlite_url, monkeypatch):
    monkeypatch.setattr(loader_sql, "GRACE_S", 5.0)  # SQLite says so itself, however late we are told
    source = SqlSource(sqlite_url, statement_timeout=0.1)
    loader = SqlLoader(source, "SELECT id, name FROM products WHERE id IN :id", PRODUCT)
    writer = sqlite3.connect(sqlite_url.partition(":///")[2], isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="database is locked"):
        await loader.load([(1,)])
    writer.execute("COMMIT")
    writer.close()
    assert await loader.load([(1,)])
    await source.close()


ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT -i AS id FROM n WHERE -i IN :id"
)


async def test_slow_sqlite_statement_is_interrupted_and_the_source_goes_on(sqlite_url):
    source = SqlSource(sqlite_url, statement_timeout=0.1, pool_size=1)
    good = SqlLoader(source, "SELECT id, name FROM products WHERE id IN :id", PRODUCT)
    assert await at_last(good)  # it has its connection: the deadline is for the statement alone
    for _ in range(3):
        with pytest.raises(TimedOut, match=r"no answer from the database within 0\.3 s"):
            await SqlLoader(source, ENDLESS, PRODUCT).load([(1,)])
        assert await at_last(good)
    await source.close()


async def at_last(loader):
    """The rows, once they come in time: a busy machine may need a whole deadline for a new connection."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(Unavailable):
                return await loader.load([(1,)])


@pytest.mark.parametrize("kind", ["sqlite_url", "postgres_url"])
async def test_cancelled_load_leaves_no_statement_and_no_connection_behind(request, kind):
    source = SqlSource(request.getfixturevalue(kind), statement_timeout=20, pool_size=1)
    loading = asyncio.ensure_future(SqlLoader(source, ENDLESS, PRODUCT).load([(1,)]))
    done, _ = await asyncio.wait({loading}, timeout=0.3)
    assert not done, "the statement runs"
    loading.cancel()
    await asyncio.wait({loading}, timeout=5)
    assert loading.cancelled()
    async with asyncio.timeout(PATIENCE_S):
        assert await SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT).load([(1,)])
    await source.close()


async def test_slow_postgres_statement_is_ended_by_the_server_and_keeps_its_connection(
    postgres_url, monkeypatch
):
    monkeypatch.setattr(loader_sql, "GRACE_S", PATIENCE_S)  # the server says so, however late we are told
    postgres = SqlSource(postgres_url, statement_timeout=1.5)
    who = SqlLoader(
        postgres, "SELECT id, pg_backend_pid() AS pid FROM products WHERE id IN :id", PRODUCT, columns=["pid"]
    )
    before = await who.load([(1,)])
    with pytest.raises(TimedOut, match="57014"):
        await SqlLoader(postgres, "SELECT id, pg_sleep(20) FROM products WHERE id IN :id", PRODUCT).load(
            [(1,)]
        )
    assert await who.load([(1,)]) == before
    await postgres.close()


async def test_a_statement_leaves_when_its_connection_is_made_and_not_before(postgres_url):
    """The budget counts from there: a name server, a handshake or a full database may take a second."""
    address = make_url(postgres_url)
    come, through, left = asyncio.Event(), asyncio.Event(), []

    async def pass_on(reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def answer(reader, writer):
        come.set()
        await through.wait()
        there = await asyncio.open_connection(address.host, address.port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        url = address.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        source = SqlSource(url, statement_timeout=PATIENCE_S, pool_size=1)
        loader = SqlLoader(source, "SELECT id, name FROM products WHERE id IN :id", PRODUCT)
        loading = asyncio.ensure_future(loader.load([(1,)], lambda: left.append(through.is_set())))
        await asyncio.wait_for(come.wait(), PATIENCE_S)
        assert not left
        through.set()
        assert await loading
        assert left == [True]
        await source.close()


async def test_busy_pool_is_unavailable(postgres_url):
    source = SqlSource(postgres_url, statement_timeout=1.5, pool_size=1)
    slow = SqlLoader(source, "SELECT id, pg_sleep(0.6) FROM products WHERE id IN :id", PRODUCT)
    for _ in range(TRIES):  # who stands still may be too late for the second of them
        results = await asyncio.gather(*(slow.load([(1,)]) for _ in range(6)), return_exceptions=True)
        told = {type(result) for result in results}
        assert told <= {dict, Unreached, Unavailable, TimedOut}, results
        if told - {Unavailable} == {dict, Unreached}:
            break
    assert told - {Unavailable} == {dict, Unreached}, results
    assert await at_last(slow)
    await source.close()


async def test_deadlock_and_lock_timeouts_are_unavailable(postgres, postgres_url):
    raising = "SELECT id, fail('{}') FROM products WHERE id IN :id"
    await _make_failing_function(postgres_url)
    for code in ("40P01", "40001", "55P03", "53300", "57P01"):
        with pytest.raises(Unavailable, match=code):
            await SqlLoader(postgres, raising.format(code), PRODUCT).load([(1,)])
    for code in ("22012", "42501", "P0001", "XX000"):
        with pytest.raises(Faulty, match=code):
            await SqlLoader(postgres, raising.format(code), PRODUCT).load([(1,)])


async def _make_failing_function(url):
    from cacheupdater.local.postgres_server import run_sql

    run_sql(
        url,
        "CREATE FUNCTION fail(code text) RETURNS int AS "
        "$$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = code; END $$ LANGUAGE plpgsql",
    )


async def test_server_that_goes_away_is_unavailable_and_comes_back_by_itself(postgres_server):
    postgres_server.execute(*TABLES)
    source = SqlSource(postgres_server.url(), statement_timeout=PATIENCE_S)
    loader = SqlLoader(source, "SELECT id, name FROM products WHERE id IN :id", PRODUCT)
    assert all(await asyncio.gather(*(loader.load([(1,)]) for _ in range(5)))), "the pool is full"
    postgres_server.stop()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await loader.load([(1,)])
    postgres_server.start()
    for _ in range(10):
        assert await loader.load([(1,)]), "no connection of before is tried again"
    await asyncio.to_thread(postgres_server.stop)
    await asyncio.to_thread(postgres_server.start)
    assert await loader.load([(1,)]), "a connection that was closed meanwhile fails nobody"
    await source.close()


async def test_statement_that_runs_when_the_server_stops_is_unavailable(postgres_server):
    postgres_server.execute(*TABLES)
    source = SqlSource(postgres_server.url(), statement_timeout=20)
    loading = asyncio.ensure_future(SqlLoader(source, ENDLESS, PRODUCT).load([(1,)]))
    done, _ = await asyncio.wait({loading}, timeout=0.5)
    assert not done
    await asyncio.to_thread(postgres_server.stop)
    with pytest.raises(Unavailable):
        await loading
    await source.close()


async def test_server_that_accepts_and_never_answers_is_given_up_at_the_deadline():
    gone = []

    async def silent(reader, writer):
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.append(writer)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source = SqlSource(f"postgresql+asyncpg://u@127.0.0.1:{port}/db?ssl=disable", statement_timeout=0.1)
    for _ in range(3):
        with pytest.raises(Unreached, match=r"no answer from the database within 0\.3 s"):
            await SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT).load([(1,)])
    await _until(lambda: len(gone) == 3)  # we hung up each time
    await source.close()
    server.close()
    await server.wait_closed()


async def test_a_server_that_falls_silent_after_the_login_is_given_up_at_the_deadline(postgres_url):
    """SQLAlchemy asks a new connection some questions of its own. The driver would say farewell for 2 s, or keep the connection."""
    async with _Relay(make_url(postgres_url), silent_after_login=True) as relay:
        source = SqlSource(relay.url, statement_timeout=0.1, pool_size=1)
        loader = SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT)

        async def refused():
            with pytest.raises(Unreached, match=r"no answer from the database within 0\.3 s"):
                await loader.load([(1,)])

        await soonest_of(refused, within=1.5)
        await _until(lambda: relay.left == relay.met > 0)  # none of the connections stays open
        await source.close()


async def test_changed_table_is_read_by_its_new_shape(postgres, postgres_url):
    from cacheupdater.local.postgres_server import run_sql

    loader = SqlLoader(postgres, "SELECT * FROM orders WHERE id IN :id", PRODUCT)
    assert await loader.load([(1,)]) == {(1,): {"id": 1, "user_id": 7, "total": 10}}
    run_sql(postgres_url, "ALTER TABLE orders ADD COLUMN tip NUMERIC DEFAULT 0.5")
    assert await loader.load([(1,)]) == {(1,): {"id": 1, "user_id": 7, "total": 10, "tip": Decimal("0.5")}}


async def test_no_error_and_no_log_quotes_a_value(source, caplog):
    caplog.set_level(logging.DEBUG)
    secret = "canary"
    wrong = [
        "SELECT CAST(sku AS uuid) AS sku FROM products WHERE sku IN :sku",
        "SELECT sku FROM products WHERE CAST(sku AS integer) + 1 IN :sku",
        "SELECT sku FROM products WHERE CAST(sku AS uuid) IN :sku",
        f"SELECT '{secret}' AS sku FROM products WHERE sku IN :sku OR 1 = 1",
        f"SELECT '{secret}!' AS sku FROM products WHERE sku IN :sku OR 1 = 1",
        f"SELECT sku, CAST('{secret}' || sku AS bigint) FROM products WHERE sku IN :sku OR 1 = 1",
    ]
    told = []
    for sql in wrong:
        try:
            await SqlLoader(source, sql, SKU).load([(secret,), ("a-1",)])
        except Faulty as e:
            logging.getLogger("test").exception("as the pipeline would log it")
            told.append(str(e))
    ints = SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT)
    with pytest.raises(Faulty) as refused:
        await ints.load([({secret: 1},)])
    told.append(str(refused.value))
    assert len(told) >= 4
    assert secret not in "".join(told)
    assert secret not in caplog.text


async def test_json_columns_of_postgres_are_values_and_numeric_stays_exact(postgres, postgres_url):
    from cacheupdater.local.postgres_server import run_sql
    from cacheupdater_client.protocol.encoding import encoder

    run_sql(
        postgres_url,
        "CREATE TABLE docs (id int, a json, b jsonb, price numeric)",
        """INSERT INTO docs VALUES (1, '{"x": [1, null]}', '"é"', 1.10), (2, NULL, 'null', NULL)""",
    )
    found = await SqlLoader(postgres, "SELECT * FROM docs WHERE id IN :id", PRODUCT).load([(1,), (2,)])
    assert found == {
        (1,): {"id": 1, "a": {"x": [1, None]}, "b": "é", "price": Decimal("1.10")},
        (2,): {"id": 2, "a": None, "b": None, "price": None},
    }
    assert encoder("json")(found[1,]) == '{"id":1,"a":{"x":[1,null]},"b":"é","price":"1.10"}'.encode()


TYPES = {
    "inet '10.0.0.1'": "10.0.0.1",
    "inet '10.0.0.1/24'": "10.0.0.1/24",
    "inet '::1'": "::1",
    "cidr '10.0.0.0/8'": "10.0.0.0/8",
    "int4range(1, 10)": "[1,10)",
    "int4range(1, 1)": "empty",
    "numrange(1.50, NULL, '(]')": "(1.50,)",
    "tstzrange('2026-01-01Z', '2026-02-01Z')": "[2026-01-01T00:00:00Z,2026-02-01T00:00:00Z)",
    "daterange(NULL, '2026-02-01')": "(,2026-02-01)",
    "'{[1,3),[5,7)}'::int4multirange": ["[1,3)", "[5,7)"],
    "array[inet '10.0.0.1']": ["10.0.0.1"],
    "B'101'": "101",
    "B'00000000111'": "00000000111",
    "B''::varbit": "",
    "1.10::numeric": "1.10",
    "'NaN'::numeric": None,
    "'Infinity'::numeric": None,
    "'-Infinity'::numeric": None,
    "'NaN'::float8": None,
    "'-Infinity'::float4": None,
    "array['NaN'::numeric, 1.5]": [None, "1.5"],
}


async def test_types_of_postgres_are_spelled_as_documented(postgres):
    from cacheupdater_client.protocol.encoding import encoder

    columns = ", ".join(f"{expression} AS c{at}" for at, expression in enumerate(TYPES))
    sql = f"SELECT 1 AS id, {columns} WHERE 1 IN :id"
    names = [f"c{at}" for at in range(len(TYPES))]
    row = (await SqlLoader(postgres, sql, PRODUCT, columns=names).load([(1,)]))[1,]
    assert json.loads(encoder("json")(row)) == dict(zip(names, TYPES.values(), strict=True))
    assert msgspec.msgpack.decode(encoder("msgpack")(row)) == dict(zip(names, TYPES.values(), strict=True))
    fields = {name: value for name, value in zip(names, TYPES.values(), strict=True) if value is not None}
    assert {name.decode(): value.decode() for name, value in encoder("hash")(row).items()} == {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in fields.items()
    }


async def test_statement_is_compiled_once_and_stays_prepared(postgres):
    loader = SqlLoader(postgres, "SELECT id, name FROM products WHERE id IN :id", PRODUCT)
    for size in (1, 2, 200):
        await loader.load([(number,) for number in range(size)])
    assert len(postgres._engine.sync_engine._compiled_cache) == 1
    plans = SqlLoader(
        postgres,
        "SELECT 1 AS id, count(*) AS n FROM pg_prepared_statements WHERE statement LIKE '%products%' AND statement NOT LIKE '%pg_prepared%' AND 1 IN :id",
        PRODUCT,
        columns=["n"],
    )
    assert await plans.load([(1,)]) == {(1,): {"n": 1}}


async def test_cancelled_load_does_not_wait_for_a_silent_server(postgres_url):
    async with _Relay(make_url(postgres_url)) as relay:
        source = SqlSource(relay.url, statement_timeout=20)
        assert await SqlLoader(source, "SELECT id FROM products WHERE id IN :id", PRODUCT).load([(1,)])
        relay.silent = True
        loading = asyncio.ensure_future(SqlLoader(source, ENDLESS, PRODUCT).load([(1,)]))
        await asyncio.wait({loading}, timeout=0.2)
        loading.cancel()
        done, _ = await asyncio.wait({loading}, timeout=1.5)
        assert done, "a farewell to the server would take 2 s"
        await source.close()


async def test_close_does_not_wait_for_a_silent_server(postgres_url):
    async with _Relay(make_url(postgres_url)) as relay:
        source = SqlSource(relay.url, statement_timeout=PATIENCE_S, pool_size=3)
        loader = SqlLoader(source, "SELECT id, pg_sleep(0.1) FROM products WHERE id IN :id", PRODUCT)
        await asyncio.gather(*(loader.load([(1,)]) for _ in range(3)))
        relay.silent = True
        async with asyncio.timeout(PATIENCE_S):  # it would wait for ever
            await source.close()
        await _until(lambda: relay.left == 3)  # none of the connections stays open


class _Relay:
    """Between us and a server; may fall silent without hanging up."""

    READY = b"Z\0\0\0\5I"  # the end of the server's answer to a login

    def __init__(self, server, *, silent_after_login=False):
        self._server, self._peers, self.silent, self.left = server, [], False, 0
        self._silent_after_login = silent_after_login
        self.met = 0

    async def __aenter__(self):
        self._listener = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        self.url = self._server.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        for writer in self._peers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._peers), return_exceptions=True)
        await self._listener.wait_closed()

    async def _meet(self, reader, writer):
        self.met += 1
        there, here = await asyncio.open_connection(self._server.host, self._server.port)
        self._peers += [writer, here]
        leaving = asyncio.ensure_future(self._pass(reader, here))
        leaving.add_done_callback(self._leave)
        await asyncio.gather(leaving, self._pass(there, writer), return_exceptions=True)

    def _leave(self, _):
        self.left += 1

    async def _pass(self, reader, writer):
        silent = False
        while data := await reader.read(65536):
            if not (silent or self.silent):
                writer.write(data)
            silent = silent or (self._silent_after_login and data.endswith(self.READY))
        writer.close()
