"""Changes by plain SQL reach the cache through a feed: real PostgreSQL, real Redis, real updaters, and no application that helps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import asyncpg
import pytest
from live import warm
from live.fed_shop import BRANDS, CACHED, EVERY_S, HOT, TABLES, FedShop, settings
from live.updater_process import eventually
from suite.pace import PATIENCE_S

from cacheupdater.cli import exits
from cacheupdater.config.load import load_config
from cacheupdater.local.postgres_server import run_sql
from cacheupdater.service.installing import install

pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("patient"),
]

KINDS = ["replication", "notify", "poll"]


@pytest.fixture
def database(logical_pg_url):
    run_sql(logical_pg_url, *TABLES)
    yield logical_pg_url
    eventually(lambda: without_slots(logical_pg_url))


def without_slots(url):
    """False while the server has not ended a reader yet."""
    try:
        run_sql(
            url,
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = current_database()",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()",
        )
    except asyncpg.ObjectInUseError:
        return False
    return True


def changes(updater, *words, ends=exits.OK):
    """`cacheupdater changes WORDS` with this updater's file, in its words."""
    done = warm.run("changes", *words, "-c", updater.file)
    assert done.returncode == ends, done.stderr
    return done.stdout


def installed(updater):
    """As the command, without a process of its own."""

    async def run():
        return [ran async for ran in install(load_config(str(updater.file), {}))]

    assert asyncio.run(run())


def feed_of(kind):
    """The feed, with names of this test run alone where the whole server shares them."""
    return {
        "replication": {"replication": {"slot": f"slot_{time.monotonic_ns()}"}},
        "notify": {"notify": {}},
        "poll": {"poll": {"every": "200ms"}},
    }[kind]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def shop(kind, database, redis_url, updaters):
    """A shop whose updater reads a feed of this kind."""
    updater = updaters.make(settings(redis_url, database, feed_of(kind)))
    installed(updater)
    updater.start()
    with FedShop(database, redis_url, updater.emit) as shop:
        shop.fill()
        shop.updater = updater
        yield shop
    updater.terminate()
    assert updater.wait() == 0


def test_whatever_sql_changes_no_value_is_old_at_rest(shop, kind):
    steps = {
        "a key that is read": ["UPDATE products SET price = 2 WHERE id = 7"],
        "a key that nobody reads": ["UPDATE products SET price = 2 WHERE id = 900"],
        "another table": ["UPDATE stock SET pieces = 4 WHERE product_id IN (7, 900)"],
        "a bulk update": ["UPDATE products SET price = price + 1 WHERE id <= 10000"],
        "one brand": ["UPDATE products SET name = 'renamed' WHERE brand_id = 3", "UPDATE brands SET name = 'x' WHERE id = 3"],
        "an insert": ["INSERT INTO products VALUES (30000, 1, 'new', 1)", "INSERT INTO stock VALUES (30000, 1)"],
        "a delete": ["DELETE FROM products WHERE id IN (8, 901)"],
        "a changed key": ["UPDATE products SET id = 30001 WHERE id = 9", "UPDATE products SET id = 30002 WHERE id = 902"],
        "a truncate": ["TRUNCATE stock"],
    }  # fmt: skip
    if kind == "poll":  # which does not see them
        steps = {
            name: each
            for name, each in steps.items()
            if name not in {"a delete", "a changed key", "a truncate"}
        }
    for name, statements in steps.items():
        shop.run(*statements)
        print(f"{kind}, {name}: at rest after {shop.at_rest():.2f} s")


def test_what_is_read_is_fresh_at_once_and_never_missing_and_what_is_not_read_costs_no_row(shop):
    shop.is_read(shop.updater)
    before = shop.updater.metric("rows_total")
    began = time.monotonic()
    shop.run("UPDATE products SET price = 2 WHERE id <= 1000")
    gone = set()
    while shop.stale():
        assert time.monotonic() < began + PATIENCE_S
        gone |= set(HOT) - set(shop.there(HOT))
    assert gone == set(), "readers of these had to wait or to load"
    assert shop.there(CACHED) == list(HOT)
    turns = 2 + (time.monotonic() - began) / EVERY_S  # the change, and what the interval asks for meanwhile
    assert shop.updater.metric("rows_total") - before <= turns * len(HOT)
    removed = len(CACHED) - len(HOT)  # counts reach the page a moment later
    eventually(lambda: shop.updater.metric("fed_total", result="removed") == removed)


@pytest.mark.prove
def test_what_is_rolled_back_costs_nothing_and_what_stays_open_is_told_after_its_commit(
    shop, database, amount
):
    async def story():
        connection = await asyncpg.connect(database.replace("+asyncpg", ""))
        try:
            rolled_back = connection.transaction()
            await rolled_back.start()
            await connection.execute("UPDATE products SET price = 77 WHERE id <= 500")
            await asyncio.sleep(1.0)
            await rolled_back.rollback()
            await asyncio.sleep(1.0)
            told = shop.updater.metric("feed_changes_total")
            assert await asyncio.to_thread(shop.stale) == {}
            async with connection.transaction():
                await connection.execute("UPDATE products SET price = 78 WHERE id <= 500")
                await asyncio.sleep(amount(3.0, 20.0))
                assert await asyncio.to_thread(shop.stale) == {}
            return told
        finally:
            await connection.close()

    shop.is_read(shop.updater)
    told = asyncio.run(story())
    assert told == 0
    shop.at_rest()
    assert shop.there(range(51, 501)) == []


def test_another_user_s_statement_counts_too(shop):
    shop.run("CREATE ROLE colleague LOGIN", "GRANT SELECT, UPDATE ON products TO colleague")
    try:
        shop.run("UPDATE products SET price = 3 WHERE id IN (7, 900)", user="colleague")
        shop.at_rest()
    finally:
        shop.run("DROP OWNED BY colleague", "DROP ROLE colleague")


def test_pages_and_commands_tell_of_the_feed(shop, kind):
    shop.run("UPDATE products SET price = 2 WHERE id = 7")
    eventually(lambda: shop.updater.metric("feed_changes_total", source="shop") > 0)
    shop.at_rest()
    [feed] = json.loads(shop.updater.page("/freshness")[1])["feeds"]
    assert (feed["source"], feed["kind"], feed["reads"]) == ("shop", kind, True)
    assert feed["spoke_s"] < 30.0
    said = json.loads(shop.updater.page("/explain?key=product:7")[1])
    assert said["feed"]["kind"] == kind
    assert shop.updater.metric("feed_reads", source="shop") == 1.0


def test_install_says_what_it_makes_and_remove_leaves_no_trace(kind, database, redis_url, updaters):
    updater = updaters.make(settings(redis_url, database, feed_of(kind)))
    before = _objects(database)
    said = changes(updater, "install")
    if kind == "poll":
        assert "nothing was made" in said
    else:
        assert "CREATE" in said
        assert _objects(database) != before
    assert "nothing was made" in changes(updater, "install")
    changes(updater, "remove")
    assert _objects(database) == before
    assert "nothing to do" in changes(updater, "remove")


@pytest.mark.parametrize("kind", ["poll"], indirect=True)
def test_install_shows_the_index_that_is_missing_until_somebody_has_made_it(
    kind, database, redis_url, updaters
):
    updater = updaters.make(settings(redis_url, database, feed_of(kind)))
    run_sql(database, "DROP INDEX products_updated_at_idx")
    said = changes(updater, "install", ends=exits.CONFIG).splitlines()
    at = said.index(
        "-- source shop, poll, wrong: no index finds the rows of public.products by updated_at:"
        " each look would read the whole table"
    )
    run_sql(database, said[at + 1].removeprefix("--   "))
    assert "-- source shop, poll: can be read" in changes(updater, "install")


def test_a_person_can_run_the_statements_that_install_prints(kind, database, redis_url, updaters):
    updater = updaters.make(settings(redis_url, database, feed_of(kind)))
    script = changes(updater, "install", "--print")
    if kind == "notify":
        run_script(database, script)
    else:  # neither a slot nor an index beside writers is made in a transaction of several statements
        run_sql(database, *(line for line in script.splitlines() if not line.startswith("--")))
    assert "nothing was made" in changes(updater, "install")


@pytest.mark.prove
def test_a_person_can_run_the_statements_that_remove_prints_and_no_trace_is_left(
    kind, database, redis_url, updaters
):
    updater = updaters.make(settings(redis_url, database, feed_of(kind)))
    before = _objects(database)
    changes(updater, "install")
    made = _objects(database)
    script = changes(updater, "remove", "--print")
    assert _objects(database) == made, "it runs none"
    assert ("nothing to do" in script) == (kind == "poll")
    if kind != "poll":  # asyncpg, unlike psql, takes no text without a statement
        run_script(database, script)
    assert _objects(database) == before
    assert "nothing to do" in changes(updater, "remove", "--print")
    assert "nothing to do" in changes(updater, "remove")


@pytest.mark.parametrize("kind", ["replication"], indirect=True)
def test_what_remove_would_run_is_printed_while_an_updater_reads(shop):
    eventually(lambda: shop.updater.metric("feed_reads", source="shop") == 1.0)
    assert "pg_drop_replication_slot" in changes(shop.updater, "remove", "--print")


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT id FROM products WHERE brand_id IN :id", None),
        ("SELECT id FROM products WHERE name IN :name", None),  # a column of another type
        ("SELECT id FROM products WHERE brand IN :id", "product, changes of brands: the database refuses"),
        (
            "SELECT brand_id FROM products WHERE brand_id IN :id",
            "must select the captures id, and selects brand_id",
        ),
    ],
)
def test_a_statement_that_cannot_find_keys_is_found_before_the_first_change(
    sql, what, database, redis_url, updaters
):
    told = settings(redis_url, database, feed_of("replication"))
    told["namespaces"]["product"]["changes"][2]["sql"] = sql
    updater = updaters.make(told)
    installed(updater)
    said = warm.run("check", "--connect", "-c", updater.file).stdout
    found = [line for line in said.splitlines() if line.startswith("feed ") and " wrong " in line]
    assert len(found) == (what is not None), found
    assert what is None or what in found[0]


def test_a_feed_that_no_namespace_uses_hinders_nobody(database, redis_url, updaters):
    told = settings(redis_url, database, feed_of("replication"))
    told["sources"]["idle"] = {"url": database, "budget": "1/s", "changes": {"replication": {"slot": "idle"}}}
    updater = updaters.make(told)
    assert "idle" not in changes(updater, "install", "--print")
    assert "idle" not in changes(updater, "install")
    assert "idle" not in changes(updater, "remove")


def run_script(database, script):
    """As psql does: all statements of a file, as one text."""

    async def run():
        connection = await asyncpg.connect(database.replace("+asyncpg", ""))
        try:
            await connection.execute(script)
        finally:
            await connection.close()

    asyncio.run(run())


def _objects(database):
    """Everything in the database that somebody has made."""
    names = (
        "SELECT 'class ' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'"
        " UNION ALL SELECT 'function ' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'public'"
        " UNION ALL SELECT 'trigger ' || tgrelid::regclass || tgname FROM pg_trigger WHERE NOT tgisinternal"
        " UNION ALL SELECT 'publication ' || pubname FROM pg_publication"
        " UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1"
    )

    async def ask():
        connection = await asyncpg.connect(database.replace("+asyncpg", ""))
        try:
            return [row[0] for row in await connection.fetch(names)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_a_reload_brings_an_updater_beside_a_shared_queue_its_first_feed_and_takes_it_away(
    database, redis_url, updaters, tmp_path
):
    queue = {"url": f"sqlite:///{tmp_path}/queue.db?partitions=4&session_timeout=2s"}
    fed = settings(redis_url, database, feed_of("poll"), queue=queue) | {"listen": None}
    unfed = json.loads(json.dumps(fed))
    del unfed["sources"]["shop"]["changes"], unfed["namespaces"]["product"]["changes"]
    updater = updaters.make(unfed)
    updater.start()
    before = json.loads(updater.file.read_text("utf-8"))
    updater.file.write_text(
        json.dumps(before | {name: fed[name] for name in ("sources", "namespaces")}), "utf-8"
    )
    os.kill(updater.pid, signal.SIGHUP)
    eventually(lambda: updater.metric("feed_reads", source="shop") == 1.0)
    run_sql(database, "UPDATE products SET price = 2 WHERE id = 7")
    eventually(lambda: updater.metric("fed_total", namespace="product", result="removed"))
    assert updater.metric("forwarded_total", kind="change") >= 1.0
    updater.file.write_text(json.dumps(before), "utf-8")  # and takes it away
    os.kill(updater.pid, signal.SIGHUP)
    eventually(lambda: "cacheupdater_feed_reads{" not in updater.page("/metrics")[1])
    updater.terminate()
    assert updater.wait() == 0


# --- several updaters ------------------------------------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_one_of_several_updaters_reads_and_another_goes_on_where_it_was(
    how, kind, database, redis_url, updaters, tmp_path
):
    queue = {"url": f"sqlite:///{tmp_path}/queue.db?partitions=4&session_timeout=2s"}
    told = settings(redis_url, database, feed_of(kind), queue=queue)
    both = [updaters.make(told) for _ in range(2)]
    installed(both[0])
    for each in both:
        each.start()
    with FedShop(database, redis_url, both[1].emit) as shop:
        shop.fill()
        [reader] = eventually(lambda: [each for each in both if each.metric("feed_reads") == 1.0])
        [other] = [each for each in both if each is not reader]
        shop.run("UPDATE products SET price = 2 WHERE id <= 1000")
        if how == "killed":
            reader.kill()
        else:
            reader.terminate()
            assert reader.wait() == 0
        ended = time.monotonic()
        shop.run("UPDATE products SET price = 3 WHERE id <= 1000")
        eventually(lambda: other.metric("feed_reads") == 1.0)
        print(f"{kind}: another updater reads {time.monotonic() - ended:.1f} s after the first was {how}")
        print(f"at rest after {shop.at_rest():.1f} s")
        other.terminate()
        assert other.wait() == 0


# --- a database in trouble -------------------------------------------------------------------------------


@pytest.fixture
def troubled(kind, logical_server, redis_url, updaters):
    """A shop on a PostgreSQL of its own."""
    logical_server.execute(*TABLES)
    updater = updaters.make(settings(redis_url, logical_server.url(), feed_of(kind)))
    installed(updater)
    updater.start()
    with FedShop(logical_server.url(), redis_url, updater.emit) as shop:
        shop.fill()
        shop.updater, shop.server = updater, logical_server
        yield shop
    updater.kill()


@pytest.mark.prove
def test_a_restart_of_the_database_loses_no_change(troubled):
    troubled.run("UPDATE products SET price = 2 WHERE id <= 1000")
    troubled.server.stop()
    eventually(lambda: any("feed_down" in each for each in troubled.updater.troubles))
    troubled.server.start()
    troubled.run("UPDATE products SET price = 3 WHERE id IN (7, 900)")
    print(f"at rest after {troubled.at_rest():.1f} s")
    eventually(lambda: not any("feed_down" in each for each in troubled.updater.troubles))


@pytest.mark.prove
def test_an_updater_that_was_away_reads_what_it_has_missed(troubled, kind):
    troubled.updater.kill()
    troubled.run("UPDATE products SET price = 2 WHERE id <= 1000")
    if kind != "poll":  # which does not see deletes
        troubled.run("DELETE FROM products WHERE id = 900")
    troubled.updater.start()
    print(f"at rest after {troubled.at_rest():.1f} s")


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["replication"], indirect=True)
def test_a_slot_that_is_dropped_under_way_is_made_anew_and_all_keys_count_as_changed(troubled):
    troubled.updater.kill()
    troubled.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
        "UPDATE products SET price = 2 WHERE id <= 1000",
    )
    troubled.updater.start()
    eventually(lambda: any("feed_swept product" in each for each in troubled.updater.troubles))
    print(f"at rest after {troubled.at_rest():.1f} s")
    troubled.run("UPDATE products SET price = 3 WHERE id <= 1000")
    troubled.at_rest()


# --- one change, many keys -------------------------------------------------------------------------------


def test_one_brand_concerns_all_its_products(shop):
    """Each brand has a thousand products, and every twentieth product that is read or lies in Redis is of one."""
    of_brand = "id % 20 = 2"  # brand 3
    before = shop.updater.metric("feed_keys_total")
    shop.run(f"UPDATE products SET name = 'renamed' WHERE {of_brand}")
    eventually(lambda: shop.updater.metric("feed_keys_total") - before == 20_000 / BRANDS)
    shop.at_rest()
    shop.run("UPDATE brands SET name = 'other' WHERE id = 3")
    eventually(lambda: shop.updater.metric("feed_keys_total") - before == 2 * 20_000 / BRANDS)
    shop.at_rest()


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["replication"])
def test_a_brand_of_five_thousand_products_costs_what_the_budget_gives(kind, database, redis_url, updaters):
    """Those that are read are fresh once the budget has paid for the statement and for them. The others are gone."""
    budget, products = 1000, range(1, 5001)
    run_sql(
        database,
        "UPDATE products SET brand_id = 3 WHERE id <= 5000",
        "UPDATE products SET brand_id = 4 WHERE id > 5000",
    )
    updater = updaters.make(settings(redis_url, database, feed_of(kind), budget=f"{budget}/s"))
    installed(updater)
    updater.start()
    with FedShop(database, redis_url, updater.emit, cached=products) as shop:
        shop.fill()
        shop.is_read(updater)
        rows, began = updater.metric("rows_total"), time.monotonic()
        shop.run("UPDATE brands SET name = 'other' WHERE id = 3")
        rest = shop.at_rest()
        assert shop.there(products) == list(HOT)
        seconds = time.monotonic() - began
        most = budget * (seconds + 1.0)  # with the burst of a second
        spent = updater.metric("rows_total") - rows
        print(f"5,000 products of a brand: at rest after {rest:.1f} s, {spent:.0f} rows of {most:.0f}")
        assert spent <= most
