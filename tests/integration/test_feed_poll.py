"""The feed `poll` over real PostgreSQL, SQLite and Redis: what it tells, what it misses, and who reads it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import asynccontextmanager, closing, suppress
from uuid import UUID

import asyncpg
import pytest
from feeds import killed_reader
from feeds.poll_world import PollWorld
from feeds.reading import Reading

from cacheupdater.adapters.feed_marks_redis import RedisMarks
from cacheupdater.adapters.feed_poll import PollChecks, PollFeed, PollSettings, PollTable
from cacheupdater.adapters.loader_sql import SqlSource
from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, Unavailable
from cacheupdater.feed_ports import Watched
from cacheupdater.local.postgres_server import run_sql

pytestmark = pytest.mark.usefixtures("patient")

SOON = 30.0  # s: on any machine, expected events have happened by then
PRODUCTS = PollTable(Watched("products", ("id",)), "updated_at", every=0.2)
TABLES = (
    "CREATE TABLE products (id int PRIMARY KEY, price int, updated_at timestamptz NOT NULL DEFAULT now())",
    "CREATE INDEX ON products (updated_at, id)",
)


class Told:
    """A feed that is read and confirmed, and what it has told."""

    def __init__(self, feed):
        self.feed, self.told, self.times, self.batches = feed, [], [], 0

    async def run(self):
        while True:
            try:
                await self.feed.start()
                async for batch in self.feed.batches():
                    self.batches += 1
                    self.told += [cells for change in batch.changes for cells in change.rows]
                    self.times += [time.monotonic()] * sum(len(change.rows) for change in batch.changes)
                    await self.feed.confirm(batch.position)
            except Unavailable:
                await asyncio.sleep(0.1)

    def ids(self):
        return [cells["id"] for cells in self.told]

    async def until(self, condition, within=SOON):
        end = time.monotonic() + within
        while not condition(self):
            if self.task.done():
                self.task.result()
            assert time.monotonic() < end, f"told: {self.told[-10:]}"
            await asyncio.sleep(0.02)


class World:
    """Feeds of one database; all of them end with the test."""

    def __init__(self, database_url, redis_url):
        self.database_url, self.redis_url = database_url, redis_url
        self._tasks, self._open = [], []

    def source(self):
        self._open.append(SqlSource(self.database_url, pool_size=1, statement_timeout=5.0))
        return self._open[-1]

    def feed(self, *tables, **settings):
        settings = {"overlap": 5.0, **settings}
        return PollFeed(
            self.source(), RedisMarks(self.redis_url, "shop"), PollSettings(tables or (PRODUCTS,), **settings)
        )

    async def lacks(self, *tables):
        return await PollChecks(self.source(), PollSettings(tables or (PRODUCTS,))).lacks()

    async def read(self, *tables, **settings):
        """A feed that has begun."""
        reading = Told(self.feed(*tables, **settings))
        reading.task = asyncio.ensure_future(reading.run())
        self._tasks.append(reading)
        await reading.until(lambda it: it.batches or it.task.done())
        return reading

    async def stop(self, reading):
        reading.task.cancel()
        with suppress(asyncio.CancelledError):
            await reading.task
        await reading.feed.stop()

    async def close(self):
        for each in self._tasks:
            await self.stop(each)
        for each in self._open:
            await each.close()


@asynccontextmanager
async def world_of(database_url, redis_url):
    world = World(database_url, redis_url)
    try:
        yield world
    finally:
        await world.close()


@pytest.fixture
async def world(pg_url, redis_url):
    run_sql(pg_url, *TABLES)
    async with world_of(pg_url, redis_url) as world:
        yield world


@pytest.fixture
async def session(pg_url):
    """An application's own connection."""
    connection = await asyncpg.connect(pg_url.replace("+asyncpg", ""))
    yield connection
    await connection.close()


@pytest.fixture
async def file(tmp_path, redis_url):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE products (id INTEGER PRIMARY KEY, price INTEGER, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP)"
        )
        database.execute("CREATE INDEX by_time ON products (updated_at, id)")
        database.commit()
    async with world_of(f"sqlite+aiosqlite:///{path}", redis_url) as world:
        world.path = path
        yield world


async def read_all(feed, *, started=False):
    if not started:
        await feed.start()
    async for _ in feed.batches():
        pass


def write(world, *statements):
    with closing(sqlite3.connect(world.path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


# --- what is told -------------------------------------------------------------------------------------------


async def test_inserts_and_updates_are_told_and_a_rollback_is_not(world, session):
    reading = await world.read()
    await session.execute("INSERT INTO products VALUES (7, 1), (8, 1)")
    await reading.until(lambda it: {7, 8} <= set(it.ids()))
    await session.execute("UPDATE products SET price = 2, updated_at = now() WHERE id = 7")
    await reading.until(lambda it: it.ids().count(7) == 2)
    async with session.transaction():
        transaction = session.transaction()
        await transaction.start()
        await session.execute("INSERT INTO products VALUES (9, 1)")
        await transaction.rollback()
    await session.execute("INSERT INTO products VALUES (10, 1)")
    await reading.until(lambda it: 10 in it.ids())
    assert sorted(reading.ids()) == [7, 7, 8, 10]


async def test_a_changed_key_is_told_as_it_is_now(world, session):
    reading = await world.read()
    await session.execute("INSERT INTO products VALUES (7, 1)")
    await reading.until(lambda it: 7 in it.ids())
    await session.execute("UPDATE products SET id = 70, updated_at = now()")
    await reading.until(lambda it: 70 in it.ids())
    assert reading.ids() == [7, 70]


@pytest.mark.prove
async def test_ten_thousand_rows_of_one_statement_are_told_once_each(world, session):
    await session.execute(
        "INSERT INTO products SELECT n, 0, now() - interval '1 day' FROM generate_series(1, 10000) n"
    )
    reading = await world.read(rows_per_second=20_000.0)
    began = time.monotonic()
    await session.execute("UPDATE products SET price = 1, updated_at = now()")
    await reading.until(lambda it: len(it.told) >= 10_000)
    print(f"10,000 rows of one UPDATE told within {time.monotonic() - began:.2f} s")
    await asyncio.sleep(7.0)  # the overlap passes
    assert sorted(reading.ids()) == list(range(1, 10_001))


async def test_a_transaction_that_stays_open_and_commits_late_is_told(world, session, pg_url):
    reading = await world.read(overlap=10.0)
    other = await asyncpg.connect(pg_url.replace("+asyncpg", ""))
    async with session.transaction():
        await session.execute("INSERT INTO products VALUES (1, 1)")
        for number in range(2, 8):
            await other.execute("INSERT INTO products VALUES ($1, 1)", number)
            await asyncio.sleep(0.5)
        await reading.until(lambda it: set(range(2, 8)) <= set(it.ids()))
    await other.close()
    await reading.until(lambda it: 1 in it.ids())


@pytest.mark.prove
async def test_without_an_overlap_a_late_commit_is_missed(world, session, pg_url):
    """The fault that the overlap is for."""
    reading = await world.read(overlap=0.0)
    other = await asyncpg.connect(pg_url.replace("+asyncpg", ""))
    async with session.transaction():
        await session.execute("INSERT INTO products VALUES (1, 1)")
        for number in range(2, 12):
            await other.execute("INSERT INTO products VALUES ($1, 1)", number)
            await asyncio.sleep(0.3)
        await reading.until(lambda it: set(range(2, 12)) <= set(it.ids()))
    await other.execute("INSERT INTO products VALUES (12, 1)")
    await reading.until(lambda it: 12 in it.ids())
    await asyncio.sleep(1.0)
    await other.close()
    assert 1 not in reading.ids()


async def test_columns_of_each_kind_are_polled_and_cells_have_their_types(world, session, pg_url):
    run_sql(
        pg_url,
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.stock (product uuid, place text, size numeric(4,1), version bigint NOT NULL)",
        "CREATE TABLE notes (id bigint PRIMARY KEY, changed timestamp DEFAULT now())",
        "CREATE TABLE texts (id bigint PRIMARY KEY, changed text)",
    )
    reading = await world.read(
        PollTable(Watched("shop.stock", ("product", "place", "size")), "version", every=0.2),
        PollTable(Watched("notes", ("id",)), "changed", every=0.2),
        PollTable(Watched("texts", ("id",)), "changed", every=0.2),
    )
    product = UUID(int=7)
    await session.execute("INSERT INTO shop.stock VALUES ($1, 'Köln', 1.5, 1), ($1, NULL, 1.5, 2)", product)
    await session.execute("INSERT INTO notes VALUES (1)")
    await session.execute("INSERT INTO texts VALUES (2, '2026-11-26T03:00:00Z')")
    await reading.until(lambda it: len(it.told) >= 3)
    assert {"product": product, "place": "Köln", "size": "1.5"} in reading.told
    assert {"id": 1} in reading.told
    assert {"id": 2} in reading.told


async def test_a_column_that_counts_seconds_hides_no_second_change(file):
    reading = await file.read()
    write(file, "INSERT INTO products (id, price) VALUES (7, 1)")
    await reading.until(lambda it: 7 in it.ids())
    told = len(reading.told)
    write(file, "UPDATE products SET price = 2 WHERE id = 7")  # the time is the same
    await reading.until(lambda it: len(it.told) > told)
    write(file, "INSERT INTO products VALUES (8, 1, '2999-01-01 00:00:00')")
    await reading.until(lambda it: 8 in it.ids())
    write(file, "INSERT INTO products (id, price) VALUES (9, 1)")
    await reading.until(lambda it: 9 in it.ids())


async def test_floats_in_a_column_of_sqlite_are_refused(file):
    write(file, "INSERT INTO products VALUES (1, 1, 1.5)")
    feed = file.feed()
    with pytest.raises(Misconfigured, match=r"the column products.updated_at holds a float"):
        await read_all(feed)
    await feed.stop()


# --- the turn, and where to go on ---------------------------------------------------------------------------


async def test_a_restarted_reader_goes_on_where_it_was_and_misses_nothing(world, session):
    await session.execute(
        "INSERT INTO products SELECT n, 0, now() - interval '1 day' FROM generate_series(1, 1000) n"
    )
    reading = await world.read(overlap=1.0)
    await session.execute("INSERT INTO products VALUES (2001, 1)")
    await reading.until(lambda it: 2001 in it.ids())
    await world.stop(reading)
    await session.execute("INSERT INTO products VALUES (2002, 1)")
    await asyncio.sleep(1.5)
    after = await world.read(overlap=1.0)
    await after.until(lambda it: 2002 in it.ids())
    assert set(after.ids()) <= {2001, 2002}


async def test_a_reader_that_is_killed_is_followed_when_its_lease_ends(pg_url, redis_url):
    world = await PollWorld(pg_url, redis_url).start()
    killed = await killed_reader.started("poll", pg_url, redis_url)
    second = Reading(world.feed(), confirms=True)
    async with world.transaction() as rows:
        await rows.insert(1)
    while (line := await asyncio.wait_for(killed.stdout.readline(), 60)) != b"1\n":
        assert line == b"\n"
    assert not second.started.is_set()
    killed.kill()
    began = time.monotonic()
    async with world.transaction() as rows:
        await rows.insert(2)
    await second.until_ids(2)
    print(f"takeover {time.monotonic() - began:.1f} s after kill -9")
    await killed.wait()
    killed._transport.close()
    await second.stop()
    await world.close()


async def test_a_reader_that_was_held_up_writes_nothing_when_another_has_the_turn(world, session, redis_url):
    first = await world.read()
    await first.feed._end_renewals()  # as a stopped process renews nothing
    other = RedisMarks(redis_url, "shop")
    async with asyncio.timeout(30):
        while await other.take() is None:  # noqa: ASYNC110  only Redis knows when
            await asyncio.sleep(0.1)
    with pytest.raises(Unavailable, match="another updater reads this feed now"):
        await first.feed.confirm({"public.products updated_at": "[]"})
    assert "[]" not in (await other.take()).values()
    await other.leave()
    await other.close()


async def test_a_lost_turn_ends_the_batches(world, redis_url):
    import redis

    feed = world.feed()
    await feed.start()
    with redis.Redis.from_url(redis_url) as plain:
        plain.hset(
            "cacheupdater:feed:shop", mapping={"owner": "other", "until": plain.time()[0] * 1000 + 5000}
        )
    with pytest.raises(Unavailable, match="the turn to read this feed was lost"):
        await read_all(feed, started=True)
    await feed.stop()


@pytest.mark.prove
async def test_rows_are_read_no_faster_than_the_budget(world, session):
    reading = await world.read(rows_per_second=1000.0)
    await session.execute("INSERT INTO products SELECT n, 0 FROM generate_series(1, 3000) n")
    await reading.until(lambda it: len(it.told) >= 3000)
    assert reading.times[-1] - reading.times[0] > 1.8


async def test_postgresql_restarts_and_nothing_is_missed(postgres_server, redis_url):
    postgres_server.execute(*TABLES)
    async with world_of(postgres_server.url(), redis_url) as world:
        reading = await world.read()
        postgres_server.execute("INSERT INTO products VALUES (1, 1)")
        await reading.until(lambda it: 1 in it.ids())
        await asyncio.to_thread(postgres_server.stop)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(postgres_server.start)
        postgres_server.execute("INSERT INTO products VALUES (2, 1)")
        await reading.until(lambda it: 2 in it.ids())


# --- what is missing ----------------------------------------------------------------------------------------


async def test_a_good_table_lacks_only_what_poll_cannot_see(world, file):
    [lack] = await world.lacks()
    assert (lack.grave, lack.sql) == (False, ())
    assert "deleted rows of public.products are not told" in lack.what
    assert [lack.grave for lack in await file.lacks()] == [False, False]  # the column may be NULL there


async def test_a_missing_index_is_told_with_the_statement_that_makes_it(world, file, session):
    await session.execute("DROP INDEX products_updated_at_id_idx")
    [lack, _] = await world.lacks()
    assert lack.grave
    assert "no index finds the rows of public.products by updated_at" in lack.what
    await session.execute(lack.sql[0])
    assert [lack.grave for lack in await world.lacks()] == [False]

    write(file, "DROP INDEX by_time")
    lack, *_ = await file.lacks()
    assert lack.grave
    write(file, lack.sql[0])
    assert not any(lack.grave for lack in await file.lacks())


async def test_an_index_without_the_key_is_no_grave_lack(world, session):
    await session.execute("DROP INDEX products_updated_at_id_idx")
    await session.execute("CREATE INDEX ON products (updated_at)")
    lack, _ = await world.lacks()
    assert not lack.grave
    assert "lacks the key" in lack.what


async def test_times_by_which_two_changes_look_alike_are_told_with_their_price(file):
    write(file, "INSERT INTO products VALUES (1, 1, '2026-11-26 16:35:40.438')")
    assert "products.updated_at looks like a time without microseconds" in (await file.lacks())[-1].what
    write(file, "INSERT INTO products VALUES (2, 1, '2026-11-26 16:35:40.438001')")
    assert not [lack.what for lack in await file.lacks() if "microseconds" in lack.what]


async def test_rows_of_the_future_are_told(world, session):
    await session.execute("INSERT INTO products VALUES (1, 1, now() + interval '1 day')")
    _, lack = await world.lacks()
    assert not lack.grave
    assert "products.updated_at holds times that the database's clock has not reached" in lack.what


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (PollTable(Watched("nothing", ("id",)), "updated_at"), "there is no table nothing"),
        (PollTable(Watched("products", ("id",)), "changed"), "has no column changed"),
        (PollTable(Watched("products", ("name",)), "updated_at"), "has no column name"),
        (
            PollTable(Watched("days", ("id",)), "day"),
            "type DATE, by which no feed can poll: a day is too coarse",
        ),
        (PollTable(Watched("days", ("id",)), "share"), "floats are not exact"),
        (PollTable(Watched("days", ("id",)), "good"), "type BOOLEAN, by which no feed can poll"),
    ],
)
async def test_what_cannot_be_polled_is_a_lack_and_an_error(world, session, table, what):
    await session.execute("CREATE TABLE days (id int PRIMARY KEY, day date, share float8, good bool)")
    [lack] = await world.lacks(table)
    assert lack.grave
    assert what in lack.what
    feed = world.feed(table)
    with pytest.raises(Misconfigured, match=what.replace("(", ".")):
        await feed.start()


async def test_a_table_that_the_reader_may_not_read_is_a_lack(world, session, pg_url, redis_url):
    await session.execute("CREATE ROLE clerk LOGIN")
    async with world_of(pg_url.replace("//postgres@", "//clerk@"), redis_url) as other:
        [lack] = await other.lacks()
        assert "products cannot be read" in lack.what
        assert "permission denied for table products" in lack.what
    await session.execute("DROP ROLE clerk")


async def test_a_mark_of_rubbish_is_told(world, redis_url):
    import redis

    with redis.Redis.from_url(redis_url) as plain:
        plain.hset("cacheupdater:feed:shop", "mark:public.products updated_at", "[1, 2]")
    with pytest.raises(Faulty, match=r"the mark of public.products updated_at in Redis is not ours"):
        await world.feed().start()


async def test_no_error_shows_a_password_or_a_row(world, session, pg_url, redis_url):
    await session.execute("CREATE ROLE clerk LOGIN PASSWORD 'secret-word'")
    async with world_of(pg_url.replace("//postgres@", "//clerk:secret-word@"), redis_url) as other:
        with pytest.raises(CacheUpdaterError) as caught:
            await other.feed().start()
        assert "secret-word" not in str(caught.value)
    await session.execute("DROP ROLE clerk")
