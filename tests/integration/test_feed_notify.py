"""The feed `notify` over a real PostgreSQL: what triggers tell, what they cost the application, who reads, and what is left behind."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest
from feeds import killed_reader
from feeds.notify_world import NotifyWorld
from feeds.reading import Reading

from cacheupdater.adapters.feed_notify import NotifyInstallation, NotifySettings
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.feed_ports import Watched

pytestmark = pytest.mark.usefixtures("patient")

ITEMS = Watched("items", ("id", "shelf"))


@pytest.fixture
async def world(pg_url):
    world = await NotifyWorld(pg_url).start()
    yield world
    await world.close()


@pytest.fixture
async def read(world):
    """Starts readers that confirm; all of them end with the test."""
    started = []

    async def reader(world=world):
        started.append(Reading(world.feed(), confirms=True))
        await started[-1].until_started()
        return started[-1]

    yield reader
    for each in started:
        await each.stop()


@asynccontextmanager
async def session(url, **options):
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), **options)
    try:
        yield connection
    finally:
        await connection.close()


async def rest(world):
    """Waits until the outbox is empty."""
    async with asyncio.timeout(60):
        while await world.run("SELECT 1 FROM cacheupdater_changes LIMIT 1"):  # noqa: ASYNC110  only the server knows when
            await asyncio.sleep(0.02)


# --- what is told -------------------------------------------------------------------------------------------


@pytest.mark.prove
async def test_ten_thousand_rows_of_one_statement_are_told_once_each_after_a_plan_for_one_row(world, read):
    async with session(world.url) as application:
        await application.execute("INSERT INTO items SELECT n, 0 FROM generate_series(1, 10000) n")
        for number in range(1, 8):  # the plan of the trigger is kept from statements of one row
            await application.execute("UPDATE items SET shelf = 1 WHERE id = $1", number)
        await world.run("DELETE FROM cacheupdater_changes")
        reader = await read()
        began = time.monotonic()
        await application.execute("UPDATE items SET note = 'new'")
        committed = time.monotonic()
        await reader.until(lambda: len(reader.ids) >= 10_000)
        print(
            f"UPDATE of 10,000 rows: {committed - began:.2f} s, told after {time.monotonic() - committed:.2f} s"
        )
        assert committed - began < 30.0
        assert sorted(reader.ids) == list(range(1, 10_001))
        await application.execute("DELETE FROM items")
        await reader.until(lambda: len(reader.ids) >= 20_000)
        await rest(world)
        assert sorted(reader.ids[10_000:]) == list(range(1, 10_001))


async def test_an_update_that_changes_nothing_tells_nothing(world, read):
    reader = await read()
    await world.run(
        "INSERT INTO items VALUES (1, 1), (2, 2)",
        "UPDATE items SET shelf = shelf",
        "UPDATE items SET shelf = 2",
        "UPDATE items SET id = id WHERE id > 100",
        "INSERT INTO items VALUES (3, 1)",
    )
    await reader.until_ids(3)
    assert reader.rows[2:] == [[{"id": 1, "shelf": 1}, {"id": 1, "shelf": 2}], [{"id": 3, "shelf": 1}]]


async def test_keys_that_move_at_once_are_told_as_they_were_and_as_they_are(world, read):
    reader = await read()
    await world.run(
        "INSERT INTO items VALUES (1, 0), (2, 0), (3, 0)", "UPDATE items SET id = id + 10 WHERE id < 3"
    )
    await reader.until_ids(11, 12)
    assert sorted(reader.ids[3:]) == [1, 2, 11, 12]


async def test_a_transaction_that_commits_late_is_told_though_later_rows_are_confirmed_and_gone(world, read):
    reader = await read()
    async with session(world.url) as slow, session(world.url) as quick:
        async with slow.transaction():
            await slow.execute("INSERT INTO items VALUES (1, 0)")
            for number in range(2, 30):
                await quick.execute("INSERT INTO items VALUES ($1, 0)", number)
                await asyncio.sleep(0.1)
            await reader.until_ids(*range(2, 30))
            assert 1 not in reader.ids
            assert reader.feed._floor.id == 0  # it waits for the slow transaction
        await reader.until_ids(1)
        await quick.execute("INSERT INTO items VALUES (30, 0)")
        await quick.execute("INSERT INTO items VALUES (31, 0)")
        await quick.execute("INSERT INTO items VALUES (32, 0)")
        await reader.until_ids(32)
    await rest(world)
    assert reader.feed._floor.id >= 2


async def test_any_user_who_may_write_the_table_is_told_and_needs_no_right_to_the_outbox(world, read):
    reader = await read()
    await world.run("CREATE ROLE clerk LOGIN", "GRANT INSERT, SELECT, UPDATE ON items TO clerk")
    async with session(world.url.replace("//postgres@", "//clerk@")) as clerk:
        await clerk.execute("CREATE TEMP TABLE cacheupdater_changes (x int)")  # hides nothing
        await clerk.execute("CREATE TEMP TABLE pg_attribute (x int)")
        await clerk.execute("SET search_path = pg_temp, public")
        await clerk.execute("INSERT INTO public.items VALUES (7, 0)")
        await reader.until_ids(7)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await clerk.execute("SELECT * FROM public.cacheupdater_changes")
    await world.run("DROP OWNED BY clerk", "DROP ROLE clerk")


async def test_a_bulk_load_an_upsert_and_a_cascade_are_told(world, read):
    reader = await read()
    async with session(world.url) as application:
        await application.copy_records_to_table("items", records=[(n, 0, None) for n in range(1, 101)])
        await reader.until_ids(*range(1, 101))
        await application.execute(
            "INSERT INTO items VALUES (100, 1), (101, 1) ON CONFLICT (id) DO UPDATE SET shelf = excluded.shelf"
        )
        await reader.until(lambda: {"id": 100, "shelf": 1} in [rows[-1] for rows in reader.rows])
        await reader.until_ids(101)
        await application.execute("CREATE TABLE makers (id bigint PRIMARY KEY)")
        await application.execute("INSERT INTO makers VALUES (0), (1)")
        await application.execute(
            "ALTER TABLE items ADD FOREIGN KEY (shelf) REFERENCES makers ON DELETE CASCADE"
        )
        told = len(reader.ids)
        await application.execute("DELETE FROM makers WHERE id = 1")
        await reader.until(lambda: sorted(reader.ids[told:]) == [100, 101])


async def test_tables_of_any_kind_are_told_with_their_types(world, read):
    product = UUID(int=7)
    watched = (
        Watched('shop.Odd "stock"', ("product", "place", 'a "b"', "cacheupdater_row")),
        Watched("parts", ("id",)),
    )
    await world.run(
        "CREATE SCHEMA shop",
        'CREATE TABLE shop."Odd ""stock""" (product uuid, place text, "a ""b""" numeric(4,1),'
        " cacheupdater_row int, r json, o xml, spot point)",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (100) TO (200)",
    )
    odd = NotifyWorld(world.url, *watched)
    statements = await odd.installation.install()
    assert any("Odd" in each for each in statements)
    assert [lack.what for lack in await odd.installation.lacks()] == [
        "statements that name a partition of public.parts themselves are not told: watch the partitions too"
    ]
    reader = await read(odd)
    async with session(world.url) as application:
        await application.execute(
            """INSERT INTO shop."Odd ""stock\""" VALUES ($1, 'Köln', 1.5, 3, '{"a": 1}', '<a/>', '(1,2)')""",
            product,
        )
        await application.execute("""UPDATE shop."Odd ""stock\""" SET r = '{"a": 2}'""")
        cells = {"product": product, "place": "Köln", 'a "b"': "1.5", "cacheupdater_row": 3}
        await reader.until(lambda: reader.rows == [[cells], [cells]])
        assert reader.batches[0].changes[0].table == 'shop.Odd "stock"'
        await application.execute("INSERT INTO parts VALUES (1), (101)")
        await application.execute("UPDATE parts SET id = 102 WHERE id = 1")
        await reader.until(lambda: reader.rows[-1] == [{"id": 1}, {"id": 102}])
    await odd.close()
    await odd.installation.remove()


async def test_a_column_that_is_dropped_breaks_no_statement_and_is_told_as_any_change(world, read):
    reader = await read()
    await world.run("ALTER TABLE items RENAME COLUMN shelf TO place", "INSERT INTO items VALUES (1, 0)")
    await reader.until(lambda: reader.emptied)
    assert "has lost a column" in next(batch.why for batch in reader.batches if batch.emptied)
    [lack] = await world.installation.lacks()
    assert lack.what == "the table public.items has no column shelf"
    with pytest.raises(Misconfigured, match=r"the table public.items has no column shelf"):
        await world.installation.install()


async def test_a_server_with_two_phase_commits_prepares_transactions_and_is_told_by_looks(postgres_server):
    postgres_server.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
    await asyncio.to_thread(postgres_server.stop)
    await asyncio.to_thread(postgres_server.start)
    world = await NotifyWorld(postgres_server.url()).start()
    [lack] = await world.installation.lacks()
    assert not lack.grave
    reader = Reading(world.feed(), confirms=True)
    await reader.until_started()
    async with session(world.url) as application:
        await application.execute("BEGIN")
        await application.execute("INSERT INTO items VALUES (1, 0)")
        await application.execute("PREPARE TRANSACTION 'one'")
        await application.execute("COMMIT PREPARED 'one'")
    await reader.until_ids(1)
    await reader.stop()
    await world.close()


async def test_a_commit_is_told_within_milliseconds(world, read):
    reader = await read()
    took = []
    async with session(world.url) as application:
        for number in range(300):
            await application.execute("INSERT INTO items VALUES ($1, 0)", number)
            committed = time.monotonic()
            await reader.until_ids(number)
            took.append((time.monotonic() - committed) * 1000)
            await asyncio.sleep(0.005)
    hundredths = statistics.quantiles(took, n=100)
    print(f"commit to batch: p50 {hundredths[49]:.1f} ms, p99 {hundredths[98]:.1f} ms")
    assert hundredths[49] < 500.0  # a look without a ring would take half a second on average


# --- the turn -----------------------------------------------------------------------------------------------


async def test_a_reader_that_is_killed_is_followed_within_seconds(world):
    killed = await killed_reader.started("notify", world.url)
    second = Reading(world.feed(), confirms=True)
    await world.run("INSERT INTO items VALUES (1, 0)")
    line = await asyncio.wait_for(killed.stdout.readline(), 60)
    assert line == b"1\n"
    assert not second.started.is_set()
    killed.kill()
    began = time.monotonic()
    await world.run("INSERT INTO items VALUES (2, 0)")
    await second.until_ids(2)
    print(f"takeover {time.monotonic() - began:.2f} s after kill -9")
    await killed.wait()
    killed._transport.close()
    await second.stop()


async def test_what_happened_while_the_server_was_restarted_is_told(postgres_server):
    world = await NotifyWorld(postgres_server.url()).start()
    reader = Reading(world.feed(), confirms=True)
    await world.run("INSERT INTO items VALUES (1, 0)")
    await reader.until_ids(1)
    await asyncio.to_thread(postgres_server.stop)
    assert isinstance(await reader.error(), Unavailable)
    await asyncio.to_thread(postgres_server.start)
    await world.run("INSERT INTO items VALUES (2, 0)")
    again = Reading(reader.feed, confirms=True)
    await again.until_ids(2)
    await again.stop()
    await world.close()


async def test_rows_wait_in_the_outbox_while_nobody_reads(world, read):
    await world.run(
        "INSERT INTO items SELECT n, 0 FROM generate_series(1, 5000) n", "UPDATE items SET shelf = 1"
    )
    feed = world.feed()
    assert await feed.waiting() is None
    await feed.start()
    assert await feed.waiting() == 302  # not 10,000
    await feed.stop()
    reader = await read()
    await reader.until(lambda: len(reader.ids) >= 15_000)  # an update with both rows
    await rest(world)


# --- installing ---------------------------------------------------------------------------------------------


async def objects(world):
    """All that a database has, by name."""
    return [
        tuple(each)
        for each in await world.run(
            "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " UNION SELECT proname, 'function' FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
            " UNION SELECT tgname, 'trigger' FROM pg_trigger WHERE NOT tgisinternal"
        )
    ]


async def test_an_installation_lacks_nothing_is_made_once_and_goes_without_a_trace(world):
    assert await world.installation.lacks() == []
    assert await world.installation.install() == []
    dropped = await world.installation.remove()
    assert len(dropped) == 6
    assert sorted(await objects(world)) == [("items", "r"), ("items_pkey", "i")]
    assert await world.installation.remove() == []
    await world.run("INSERT INTO items VALUES (1, 0)")
    with pytest.raises(Misconfigured, match=r"there is no outbox .*: run `cacheupdater changes install`"):
        await world.feed().start()


async def test_what_is_missing_is_told_with_the_statements_that_mend_it(world):
    [name] = {each for each, kind in await objects(world) if kind == "function"}
    for break_, what in (
        (f"DROP TRIGGER {name}_delete ON items", "public.items has no trigger that tells of delete"),
        (
            f"ALTER TABLE items DISABLE TRIGGER {name}_update",
            "public.items has no trigger that tells of update",
        ),
        (f"ALTER FUNCTION {name}() SECURITY INVOKER", "the triggers of public.items tell other columns"),
        (f"DROP FUNCTION {name}() CASCADE", "has no trigger that tells of insert, update, delete, truncate"),
        ("DROP TABLE cacheupdater_changes", 'there is no outbox "public"."cacheupdater_changes"'),
    ):
        await world.run(break_)
        [lack] = await world.installation.lacks()
        assert lack.grave
        assert what in lack.what
        for statement in lack.sql:
            await world.run(statement)
        assert await world.installation.lacks() == []


@pytest.mark.parametrize(
    ("away", "what"),
    [
        (
            "ALTER TABLE items DISABLE TRIGGER USER",
            "has no trigger that tells of insert, update, delete, truncate",
        ),
        ("DROP TABLE items", "there is no table items"),
    ],
)
async def test_a_table_that_tells_nothing_is_told_to_a_person_and_not_passed_over(world, away, what):
    await world.run(away)
    with pytest.raises(Misconfigured, match=what):
        await asyncio.wait_for(world.feed().start(), 60)


async def test_a_changed_configuration_needs_an_installation_and_removes_what_nobody_watches(world):
    await world.run("CREATE TABLE shelves (id int PRIMARY KEY)")
    for watched, what in (
        ([Watched("items", ("id", "note"))], ["tell other columns than are watched now"]),
        (
            [Watched("shelves", ("id",))],
            ["has no trigger", "triggers tell of public.items, which nobody watches now"],
        ),
    ):
        changed = NotifyInstallation(NotifySettings(world.url, watched))
        lacks = await changed.lacks()
        assert all(said in lack.what for said, lack in zip(what, lacks, strict=True))
        await changed.install()
        assert await changed.lacks() == []
    await changed.remove()


async def test_a_script_run_by_a_person_serves_a_reader_without_rights(world):
    await world.installation.remove()
    await world.run("CREATE ROLE reader LOGIN", "GRANT SELECT ON items TO reader")
    theirs = NotifyWorld(world.url.replace("//postgres@", "//reader@"))
    with pytest.raises(Misconfigured, match=r"the user lacks a right .* changes install --print"):
        await theirs.installation.install()
    for statement in await theirs.installation.script():
        await world.run(statement)
    assert await theirs.installation.lacks() == []
    with pytest.raises(Misconfigured, match=r"the user lacks a right .* changes remove --print"):
        await theirs.installation.remove()
    reader = Reading(theirs.feed(), confirms=True)
    await world.run("INSERT INTO items VALUES (7, 0)")
    await reader.until_ids(7)
    await reader.stop()
    await world.run("REVOKE DELETE ON cacheupdater_changes FROM reader")
    [lack] = await theirs.installation.lacks()
    assert "may not read and delete" in lack.what
    await world.installation.remove()
    await world.run("DROP OWNED BY reader", "DROP ROLE reader")


@pytest.mark.parametrize(
    ("watched", "what"),
    [
        (Watched("nothing", ("id",)), "there is no table nothing"),
        (Watched("items", ("id", "colour")), "the table public.items has no column colour"),
        (Watched("shown", ("id",)), "public.shown is a view, which tells no changes"),
    ],
)
async def test_what_cannot_be_told_is_refused(world, watched, what):
    await world.run("CREATE VIEW shown AS SELECT id FROM items")
    other = NotifyInstallation(NotifySettings(world.url, [watched]))
    assert what in next(lack.what for lack in await other.lacks() if lack.grave)
    with pytest.raises(Misconfigured, match=what):
        await other.install()
    with pytest.raises(Misconfigured, match=what):
        await other.script()


async def test_a_table_in_a_schema_that_the_user_may_not_use_is_named_with_the_right_that_is_missing(world):
    await world.run("CREATE ROLE clerk LOGIN", "CREATE SCHEMA far", "CREATE TABLE far.off (id int)")
    url = world.url.replace("//postgres@", "//clerk@")
    theirs = NotifyInstallation(NotifySettings(url, [Watched("far.off", ("id",))]))
    with pytest.raises(Misconfigured, match=r"no table far\.off, or .* not see it: .* GRANT USAGE ON SCHEMA"):
        await theirs.script()
    await world.run("DROP ROLE clerk")


async def test_two_groups_with_outboxes_of_their_own_do_not_take_from_each_other(world, read):
    await world.run("CREATE SCHEMA other")
    other = NotifyWorld(world.url)
    other.settings = other.settings._replace(outbox="other.changes")
    other.installation = NotifyInstallation(other.settings)
    await other.installation.install()
    first, second = await read(), await read(other)
    await world.run("INSERT INTO items VALUES (1, 0)")
    await first.until_ids(1)
    await second.until_ids(1)
    await other.close()
    await other.installation.remove()
    assert await world.installation.lacks() == []


async def test_no_error_shows_a_password(world):
    bad = NotifyWorld(world.url.replace("//postgres@", "//nobody:secret-word@"))
    with pytest.raises(Unavailable) as caught:
        await bad.feed().start()
    assert "secret-word" not in str(caught.value)
