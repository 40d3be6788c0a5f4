"""Logical replication of a real PostgreSQL: bulk changes, killed readers, lost slots, restarts, WAL, speed and memory."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

import asyncpg
import pytest
from feeds.following import Follower
from feeds.reading import Reading
from feeds.replication_reader import now
from feeds.replication_world import ReplicationWorld
from servers.postgres import LOGICAL, started_postgres

from cacheupdater.adapters.feed_replication import (
    ReplicationFeed,
    ReplicationInstallation,
    Settings,
    feed,
    stream,
)
from cacheupdater.adapters.feed_replication import settings as settings_module
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.feed_ports import Watched

TAKEOVER_S = 2.0
HALF_S = 15.0  # of the time in which a feed that waits for the confirmation tells nothing
SUPPORT = Path(__file__).parents[1] / "support"
MAKING = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_create_logical%' AND state = 'active'"
HEARD = "SELECT 1 FROM pg_stat_replication WHERE application_name = 'cacheupdater'"
FILL = "INSERT INTO items SELECT id, 0 FROM generate_series(1, {}) id"


@pytest.fixture
async def world(logical_pg_url):
    return await ReplicationWorld(logical_pg_url).start()


@pytest.fixture
async def follow(world):
    """Starts a follower, and returns it once it reads."""
    made = []

    async def following(feed=None):
        made.append(Follower(feed or world.feed()))
        await made[-1].until_started()
        return made[-1]

    yield following
    for each in made:
        await each.stop()


class Reader:
    """A reader in a process of its own."""

    def __init__(self, world):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "feeds.replication_reader", world.url, world.settings.slot],
            stdout=subprocess.PIPE,
            cwd=SUPPORT,
        )

    async def line(self):
        """The next line that it prints."""
        return json.loads(await asyncio.to_thread(self._process.stdout.readline))

    async def until(self, condition):
        """The first line with this condition."""
        async with asyncio.timeout(120):
            while not condition(line := await self.line()):
                """Others say nothing here."""
        return line

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def reader(world):
    made = []

    def start():
        made.append(Reader(world))
        return made[-1]

    yield start
    for each in made:
        each.kill()


async def slot_of(world):
    [row] = await world.run(
        "SELECT active_pid, wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS kept"
        f" FROM pg_replication_slots WHERE slot_name = '{world.settings.slot}'"
    )
    return row


async def drained(own):
    async for _ in own.batches():
        """What it was told before may still come."""


async def found(world, query):
    """Waits until the query has a row."""
    async with asyncio.timeout(60):
        while not await world.run(query):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0.05)


# --- what is told ---------------------------------------------------------------------------------------------------


async def test_bulk_statements_tell_each_of_their_rows(world, follow):
    await world.run(FILL.format(10_000))
    follower = await follow()
    await follower.until(lambda: follower.changes == 10_000)
    await world.run("UPDATE items SET shelf = 1")
    await follower.until(lambda: follower.changes == 20_000)
    await world.run("DELETE FROM items WHERE id <= 5000")
    await follower.until(lambda: follower.changes == 25_000)
    assert follower.ids == [*range(1, 10_001), *range(1, 10_001), *range(1, 5001)]


async def test_changes_of_a_second_user_and_of_a_transaction_that_was_open_for_long_are_told(world, follow):
    role = f"clerk_{world.settings.slot}"
    await world.run(f"CREATE ROLE {role} LOGIN", f"GRANT INSERT ON items TO {role}")
    follower = await follow()
    async with world.transaction() as open_for_long:
        await open_for_long.insert(1)
        async with world.transaction() as other:
            await other.connection.execute(f"SET LOCAL ROLE {role}")
            await other.insert(2)
        await follower.until(lambda: 2 in follower.ids)
        for each in range(10, 200):  # confirmed far beyond the place where the open one began
            await world.run(f"INSERT INTO items VALUES ({each}, 0)")
        await follower.until(lambda: 199 in follower.ids)
        assert 1 not in follower.ids
    await follower.until(lambda: 1 in follower.ids)
    await world.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_a_table_that_is_described_again_holds_up_no_change_while_a_confirmation_takes_its_time(world):
    """After a TRUNCATE the server describes the table anew. The consumer sweeps, and confirms half a minute later."""
    own = world.feed()
    await own.start()
    batches = own.batches()
    await world.run(FILL.format(3))
    first, told = [], []
    while len(first) < 3:  # a server that is held up sends a statement in pieces
        batch = await anext(batches)
        first += batch.changes
        await own.confirm(batch.position)
    await world.run("TRUNCATE items")
    # the end of a statement may come as a batch of its own
    while not (batch := await anext(batches)).emptied:
        assert not batch.changes
        await own.confirm(batch.position)
    await world.run(FILL.format(5))
    async with asyncio.timeout(HALF_S):
        while len(told) < 5:
            told += (await anext(batches)).changes
    assert [len(first), len(told)] == [3, 5]
    await own.stop()


async def test_the_old_key_of_another_column_is_told_with_a_full_identity(logical_pg_url):
    world = await ReplicationWorld(logical_pg_url, Watched("items", ("shelf",))).start()
    await world.run("ALTER TABLE items REPLICA IDENTITY FULL", "INSERT INTO items VALUES (1, 10)")
    reading = Reading(world.feed())
    await reading.until_started()
    await world.run("UPDATE items SET shelf = 11", "UPDATE items SET note = 'x'", "DELETE FROM items")
    await reading.until(lambda: len(reading.rows) == 4)
    assert reading.rows == [[{"shelf": 10}], [{"shelf": 10}, {"shelf": 11}], [{"shelf": 11}], [{"shelf": 11}]]
    await reading.stop()


async def test_a_table_that_is_written_with_its_schema_and_without_is_told_with_the_columns_of_both(
    logical_pg_url,
):
    both = (Watched("items", ("id",)), Watched("public.items", ("shelf",)))
    world = await ReplicationWorld(logical_pg_url, *both).start()
    reading = Reading(world.feed())
    await reading.until_started()
    await world.run("INSERT INTO items VALUES (1, 10)")
    await reading.until_ids(1)
    assert reading.rows == [[{"id": 1, "shelf": 10}]]
    await reading.stop()


async def test_rows_of_partitions_are_told_as_rows_of_their_table(logical_pg_url):
    world = ReplicationWorld(logical_pg_url, Watched("parts", ("id",)))
    await world.run(
        "CREATE DOMAIN number AS bigint",
        "CREATE TABLE parts (id number PRIMARY KEY, shelf int) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)",
    )
    await world.start()
    follower = Follower(world.feed())
    await follower.until_started()
    await world.run("INSERT INTO parts VALUES (1, 1), (150, 1)", "DELETE FROM parts WHERE id = 1")
    await follower.until(lambda: follower.ids == [1, 150, 1])
    await follower.stop()


# --- readers and servers that die -----------------------------------------------------------------------------------


async def test_a_reader_that_was_killed_is_replaced_within_two_seconds_and_loses_nothing(
    world, reader, record_property
):
    taken, each = [], 0
    first = reader()
    await first.until(lambda line: "started" in line)
    while each < 3 and min(taken, default=9) > TAKEOVER_S:  # the best of several, on a busy machine
        second, each = reader(), each + 1
        await second.until(lambda line: "waits" in line)
        await world.run(f"INSERT INTO items VALUES ({each}, 0)")
        await first.until(lambda line, each=each: each in line.get("ids", ()))
        await asyncio.to_thread(first.kill)
        killed = now()
        await world.run(f"INSERT INTO items VALUES ({-each}, 0)")
        line = await second.until(lambda line, each=each: -each in line.get("ids", ()))
        taken.append(line["at"] - killed)
        first = second
    record_property("figure: from kill -9 to the next reader's first change", f"{min(taken):.2f} s")
    assert min(taken) < TAKEOVER_S


@pytest.mark.prove
async def test_a_reader_that_was_stopped_loses_its_turn_when_the_server_has_heard_nothing_for_20_seconds(
    world, reader, record_property
):
    first = reader()
    await first.until(lambda line: "started" in line)
    second = reader()
    await second.until(lambda line: "waits" in line)
    first._process.send_signal(signal.SIGSTOP)
    stopped = now()
    line = await second.until(lambda line: "started" in line)
    record_property("figure: from SIGSTOP to the next reader", f"{line['at'] - stopped:.1f} s")
    assert line["at"] - stopped < 2 * settings_module.SENDER_TIMEOUT_S


async def test_changes_go_on_after_a_restart_of_the_server(logical_server):
    world = await ReplicationWorld(logical_server.url()).start()
    follower = Follower(world.feed())
    await follower.until_started()
    await world.run("INSERT INTO items VALUES (1, 0)")
    await follower.until(lambda: follower.ids == [1])
    began = time.monotonic()
    await asyncio.to_thread(logical_server.stop)
    assert time.monotonic() - began < 8  # it waits for readers that have not confirmed all
    await follower.until(lambda: follower.errors)
    await asyncio.to_thread(logical_server.start)
    await world.run("INSERT INTO items VALUES (2, 0)")
    await follower.until(lambda: 2 in follower.ids)
    assert follower.emptied == []
    await follower.stop()


async def test_a_slot_that_was_dropped_under_way_is_made_anew_and_says_so_once(world, follow):
    follower = await follow()
    await world.lose()
    await follower.until(lambda: follower.emptied)
    await world.run("INSERT INTO items VALUES (1, 0)")
    await follower.until(lambda: follower.ids == [1])
    assert follower.emptied == ["public.items"]


async def test_a_slot_that_waits_for_an_open_transaction_holds_up_no_other_question_and_can_be_given_up(
    world,
):
    follower = Follower(world.feed())
    await follower.until_started()
    async with world.transaction() as rows:
        await rows.insert(1)
        await world.lose()
        starts = follower.starts  # it may have begun once more before the slot had gone
        await follower.until(lambda: follower.errors)
        await found(world, MAKING)  # the server waits for the end of this transaction
        assert await follower.feed.waiting() in (None, 0)
        assert follower.starts == starts
    await follower.until(lambda: follower.emptied)
    await follower.stop()


async def test_the_loss_is_told_by_whoever_reads_the_new_slot_if_its_maker_has_died(world, monkeypatch):
    await world.lose()
    maker = world.feed()

    async def died(*_):
        raise ConnectionAbortedError

    monkeypatch.setattr(maker._turn, "_open", died)
    with pytest.raises(ConnectionAbortedError):
        await maker.start()
    await maker.stop()
    follower = Follower(world.feed())
    await follower.until(lambda: follower.emptied == ["public.items"])
    await follower.stop()


async def test_before_version_14_the_process_that_made_the_slot_anew_tells_the_loss(world, monkeypatch):
    monkeypatch.setattr(stream, "MESSAGES_SINCE", 10**9)
    reader = Reading(world.feed())
    await reader.until_started()
    await world.lose()
    assert isinstance(await reader.error(), Unavailable)
    again = Reading(reader.feed)
    await again.until(lambda: again.emptied == ["public.items"])
    await again.confirm()
    heard = len(again.batches)
    await again.until(lambda: len(again.batches) > heard, 15)  # the answers of the server show that it speaks
    assert again.batches[-1].committed is None
    await world.run("INSERT INTO items VALUES (1, 0)")
    await again.until_ids(1)
    await again.stop()


async def test_a_publication_that_was_made_again_behind_the_slot_costs_a_new_slot(world, follow):
    follower = await follow()
    await follower.stop()
    await world.run("DROP PUBLICATION cacheupdater", "INSERT INTO items VALUES (1, 0)")
    with pytest.raises(Misconfigured, match="cacheupdater changes install"):
        await world.feed().start()
    await world.run("CREATE PUBLICATION cacheupdater FOR TABLE items")
    again = await follow()
    await again.until(lambda: again.emptied == ["public.items"])
    await world.run("INSERT INTO items VALUES (2, 0)")
    await again.until(lambda: 2 in again.ids)


async def test_a_consumer_that_does_not_ask_for_long_keeps_its_turn(world, monkeypatch):
    monkeypatch.setattr(settings_module, "SENDER_TIMEOUT_S", 5)
    monkeypatch.setattr(feed, "ALIVE_S", 0.2)  # a test that stands still misses some of these, and not all
    await world.run(FILL.format(50_000))
    own = world.feed()
    await own.start()
    batches = own.batches()
    first = await anext(batches)
    await found(world, f"{HEARD} AND reply_time - backend_start > interval '7 s'")
    ids = [change.rows[0]["id"] for change in first.changes]
    async for batch in batches:
        ids += [change.rows[0]["id"] for change in batch.changes]
        if len(ids) == 50_000:
            break
    assert ids == [*range(1, 50_001)]
    await own.stop()


async def test_a_consumer_that_sleeps_loses_its_turn_to_another(world, monkeypatch):
    monkeypatch.setattr(settings_module, "SENDER_TIMEOUT_S", 4)
    monkeypatch.setattr(feed, "ASLEEP_S", 0.5)
    monkeypatch.setattr(feed, "ALIVE_S", 0.2)
    sleeper = world.feed()
    await sleeper.start()
    follower = Follower(world.feed())
    await follower.until_started()
    await world.run("INSERT INTO items VALUES (1, 0)")
    await follower.until(lambda: follower.ids == [1])
    await found(world, f"{HEARD} AND reply_time - backend_start > interval '5 s'")
    assert follower.starts == 1  # who waits for a change does not sleep
    with pytest.raises(Unavailable):
        await drained(sleeper)
    await follower.stop()
    await sleeper.stop()


async def test_a_consumer_that_waits_for_its_budget_and_asks_what_waits_keeps_its_turn(world, monkeypatch):
    monkeypatch.setattr(settings_module, "SENDER_TIMEOUT_S", 4)
    monkeypatch.setattr(feed, "ASLEEP_S", 0.5)
    monkeypatch.setattr(feed, "ALIVE_S", 0.2)  # as often within the server's patience as in a real feed
    own = world.feed()
    await own.start()

    async def ask():
        while True:
            await own.waiting()
            await asyncio.sleep(0.2)

    asking = asyncio.ensure_future(ask())
    async with asyncio.timeout(20):
        await found(world, f"{HEARD} AND reply_time - backend_start > interval '5 s'")
    asking.cancel()
    await own.stop()


async def test_a_table_that_is_not_published_is_told_to_a_person_and_not_passed_over(world):
    await world.run("ALTER PUBLICATION cacheupdater DROP TABLE items")
    with pytest.raises(Misconfigured, match=r"public\.items is not in the publication.*changes install"):
        await world.feed().start()


# --- WAL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beats", [True, False], ids=["with heartbeats", "without"])
async def test_a_slot_holds_no_wal_while_other_tables_change(
    world, follow, record_property, beats, monkeypatch
):
    if not beats:  # as before version 14
        monkeypatch.setattr(feed, "BEAT_S", 1e6)
    await world.run("CREATE TABLE others (id bigint, note text)")
    follower = await follow()
    for _ in range(20):
        await world.run(
            "INSERT INTO others SELECT id, repeat('x', 1000) FROM generate_series(1, 2000) id", "CHECKPOINT"
        )
    async with asyncio.timeout(60):
        while (kept := (await slot_of(world))["kept"]) > 20_000_000:
            await world.run(
                "CHECKPOINT"
            )  # the place from which a slot reads moves with a record that checkpoints write
            await asyncio.sleep(0.5)
    record_property("figure: WAL kept after 40 MB of other changes", f"{kept / 1e6:.1f} MB")
    assert follower.ids == []


@pytest.fixture
def narrow_server():
    """A server that keeps 1 MB of WAL for a slot."""
    server = started_postgres({**LOGICAL, "max_slot_wal_keep_size": "1MB"})
    yield server
    server.remove()


async def test_a_slot_beyond_the_cap_is_made_anew(narrow_server):
    world = await ReplicationWorld(narrow_server.url()).start()
    await world.run("INSERT INTO items VALUES (1, 0)", "CREATE TABLE others (note text)")
    for _ in range(4):
        await world.run(
            "INSERT INTO others SELECT repeat('x', 1000) FROM generate_series(1, 10000)",
            "SELECT pg_switch_wal()",
            "CHECKPOINT",
        )
    assert (await slot_of(world))["wal_status"] == "lost"
    follower = Follower(world.feed())
    await follower.until(lambda: follower.emptied == ["public.items"])
    await world.run("INSERT INTO items VALUES (2, 0)")
    await follower.until(lambda: follower.ids == [2])
    await follower.stop()


# --- speed and memory -----------------------------------------------------------------------------------------------


async def test_a_statement_of_many_rows_takes_no_memory(world, reader, amount, record_property):
    rows = amount(100_000, 1_000_000)
    own = reader()
    before = (await own.until(lambda line: "started" in line))["kib"]
    await world.run(FILL.format(rows))
    told, began = 0, None
    while told < rows:
        line = await own.line()
        if line["changes"]:
            began = began or line["at"]
            told += line["changes"]
    assert told == rows
    record_property(
        "figure: one statement",
        f"{rows:,} rows at {rows / (line['at'] - began):,.0f} changes/s, memory +{(line['kib'] - before) / 1024:.1f} MiB",
    )
    assert line["kib"] - before < 30 * 1024


async def test_a_change_is_told_milliseconds_after_its_commit(world, follow, amount, record_property):
    follower = await follow()
    loop = asyncio.get_running_loop()
    connection = await asyncpg.connect(world.url.replace("+asyncpg", ""))
    taken = []
    for each in range(amount(200, 2000)):
        await connection.execute("INSERT INTO items VALUES ($1, 0)", each)
        committed = loop.time()
        while each not in follower.at:  # noqa: ASYNC110  a wait by event would add its own time
            await asyncio.sleep(0)
        taken.append((follower.at[each] - committed) * 1000)
    await connection.close()
    cuts = quantiles(taken, n=100)
    record_property("figure: from commit to batch", f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms")
    assert cuts[49] < 100  # 200 ms where nothing wakes the server


# --- what must exist ------------------------------------------------------------------------------------------------


def installation_of(world, **changed):
    return ReplicationInstallation(world.settings._replace(**changed))


async def test_install_makes_what_is_missing_once_and_remove_leaves_no_trace(logical_pg_url):
    world = ReplicationWorld(logical_pg_url)
    own = installation_of(world)
    await world.run("CREATE TABLE items (id bigint PRIMARY KEY, shelf int)")
    assert [lack.grave for lack in await own.lacks()] == [True, True, False]
    assert len(await own.install()) == 2
    assert await own.install() == []
    assert [lack.what for lack in await own.lacks() if lack.grave] == []

    await world.run('CREATE TABLE "Odd "" name" (id bigint PRIMARY KEY)')
    more = installation_of(world, watched=(*world.settings.watched, Watched('Odd " name', ("id",))))
    [lack] = [lack for lack in await more.lacks() if lack.grave]
    assert (
        await more.install()
        == lack.sql
        == ['ALTER PUBLICATION "cacheupdater" ADD TABLE "public"."Odd "" name"']
    )

    assert len(await own.remove()) == 2
    assert await own.remove() == []
    assert await world.run("SELECT 1 FROM pg_publication") == []
    await own.close()
    await more.close()


async def test_the_script_makes_the_same_and_then_is_empty(logical_pg_url):
    world = ReplicationWorld(logical_pg_url)
    own = installation_of(world)
    await world.run("CREATE TABLE items (id bigint PRIMARY KEY, shelf int)")
    script = await own.script()
    assert len(script) == 2
    assert 'FOR TABLE "public"."items"' in script[0], "as `lacks` writes it"
    await world.run(*script)
    assert [lack for lack in await own.lacks() if lack.grave] == []
    assert await own.script() == await own.install() == []
    await own.close()


async def test_the_script_of_another_table_adds_it_to_what_is_there(world):
    own = installation_of(world, watched=(*world.settings.watched, Watched("notes", ("id",))))
    await world.run("CREATE TABLE notes (id bigint NOT NULL)")
    script = await own.script()
    assert [statement.splitlines()[-1] for statement in script] == [
        'ALTER TABLE "public"."notes" REPLICA IDENTITY FULL',
        'ALTER PUBLICATION "cacheupdater" ADD TABLE "public"."notes"',
    ]
    await world.run(*script)
    assert await own.script() == []
    await own.close()


NO_IDENTITY = [
    "CREATE TABLE items (id bigint NOT NULL UNIQUE, shelf int)",
    "CREATE TABLE items (id bigint PRIMARY KEY, shelf int); ALTER TABLE items REPLICA IDENTITY NOTHING",
    "CREATE TABLE items (id int, shelf int) PARTITION BY RANGE (id); CREATE TABLE items_1 PARTITION OF items DEFAULT",
]


@pytest.mark.parametrize("table", NO_IDENTITY)
async def test_a_table_whose_updates_would_fail_once_published_is_refused(logical_pg_url, table):
    world = ReplicationWorld(logical_pg_url)
    await world.run(*table.split(";"))
    own = installation_of(world)
    with pytest.raises(Misconfigured, match="REPLICA IDENTITY FULL"):
        await own.install()
    assert await world.run("SELECT 1 FROM pg_publication") == []
    await own.close()


@pytest.mark.parametrize("printed_by", ["script", "lacks"])
@pytest.mark.parametrize("table", NO_IDENTITY)
async def test_no_write_fails_after_any_statement_that_people_are_shown(logical_pg_url, table, printed_by):
    world = ReplicationWorld(logical_pg_url)
    await world.run(*table.split(";"), "INSERT INTO items VALUES (1, 0)")
    own = installation_of(world)
    if printed_by == "script":
        statements = await own.script()
    else:
        statements = [statement for lack in await own.lacks() if lack.grave for statement in lack.sql]
    for statement in statements:
        await world.run(statement, "UPDATE items SET shelf = shelf + 1", "DELETE FROM items WHERE id = 2")
    assert [lack for lack in await own.lacks() if lack.grave] == []
    await own.close()


async def test_a_script_says_what_each_statement_for_a_person_mends_in_comments_alone(logical_pg_url):
    odd = 'odd"\n; DROP TABLE items --'
    world = ReplicationWorld(logical_pg_url, Watched(odd, ("id",)))
    name = odd.replace('"', '""')
    await world.run("CREATE TABLE items (id bigint)", f'CREATE TABLE "{name}" (id bigint)')
    own = installation_of(world)
    script = await own.script()
    assert script[0].startswith("-- table public.odd")
    assert "no replica identity" in script[0]
    assert script[0].splitlines()[1] == f'ALTER TABLE "public"."{name.splitlines()[0]}'
    await world.run(*script, "SELECT 1 FROM items")
    await own.close()


async def test_what_no_statement_mends_is_refused_and_no_script_is_shown(world):
    own = installation_of(world, watched=(Watched("nowhere", ("id",)),))
    with pytest.raises(Misconfigured, match="there is no table nowhere"):
        await own.script()
    await own.close()


async def test_the_script_of_a_database_that_is_away_is_whole_and_names_the_tables_to_look_at_first():
    url = "postgresql+asyncpg://clerk:geheim@127.0.0.1:1/d"
    own = ReplicationInstallation(
        Settings(url, "p", "s", [Watched("items", ("id",)), Watched("a.b", ("id",))])
    )
    role, publication, slot = await own.script()
    assert role.splitlines()[-1] == 'ALTER ROLE "clerk" REPLICATION'
    assert role.startswith("-- the database cannot be reached")
    comment, made = publication.splitlines()
    assert comment.startswith(
        "-- first give each of these tables a primary key, or another REPLICA IDENTITY: items, a.b"
    )
    assert made.startswith('CREATE PUBLICATION "p" FOR TABLE "items", "a"."b"')
    assert slot == "SELECT pg_create_logical_replication_slot('s', 'pgoutput')"
    assert "geheim" not in f"{role}{publication}{slot}"
    await own.close()


async def test_lacks_name_identities_columns_and_tables(world):
    own = installation_of(
        world, watched=(Watched("items", ("id", "shelf", "gone")), Watched("nowhere", ("id",)))
    )
    lacks = {lack.what.partition(":")[0]: lack for lack in await own.lacks()}
    assert [what for what, lack in lacks.items() if lack.grave] == [
        "there is no table nowhere, or the user does not see it",
        "table public.items has no column gone that is told; a generated one is not",
    ]
    blind = lacks["the replica identity of public.items lacks shelf"]
    await world.run(*blind.sql)
    assert [lack for lack in await own.lacks() if "identity" in lack.what] == []
    await own.close()


async def test_lacks_name_what_is_never_told(world):
    await world.run(
        "CREATE VIEW seen AS SELECT * FROM items",
        "CREATE UNLOGGED TABLE quick (id bigint PRIMARY KEY)",
        "CREATE TABLE sums (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) STORED)",
    )
    own = installation_of(world, watched=[Watched(each, ("id",)) for each in ("seen", "quick", "sums")])
    hindering = [lack.what for lack in await own.lacks() if lack.grave and "publication" not in lack.what]
    assert [what.partition(" is no table")[0] for what in hindering] == ["public.seen", "public.quick"]
    with pytest.raises(Misconfigured, match=r"public\.seen is no table"):
        await own.install()
    await own.close()

    own = installation_of(world, watched=[Watched("sums", ("twice",))])
    assert any("no column twice that is told" in lack.what for lack in await own.lacks())
    await own.close()


async def test_lacks_name_a_publication_that_leaves_something_out(world):
    own = installation_of(world)
    await world.run("ALTER PUBLICATION cacheupdater SET TABLE items (id)")
    [lack] = [lack for lack in await own.lacks() if "only some columns" in lack.what]
    await world.run(*lack.sql, "ALTER PUBLICATION cacheupdater SET (publish = 'insert')")
    [lack] = [lack for lack in await own.lacks() if "kind of change" in lack.what]
    assert await own.install() == lack.sql
    assert [lack for lack in await own.lacks() if "publication" in lack.what] == []
    await own.close()


async def test_a_user_without_rights_is_told_what_to_grant(world):
    role = f"clerk_{world.settings.slot}"
    await world.run(f"CREATE ROLE {role} LOGIN")
    url = world.url.replace("postgres@", f"{role}@")
    own = installation_of(world, url=url)
    [lack] = [lack for lack in await own.lacks() if lack.grave]
    assert lack.sql == [f'ALTER ROLE "{role}" REPLICATION']
    assert (await own.script())[0].splitlines()[-1:] == lack.sql
    refused = ReplicationFeed(world.settings._replace(url=url))
    with pytest.raises(Misconfigured, match="REPLICATION"):
        await refused.start()
    await refused.stop()
    await world.run(*lack.sql)
    allowed = ReplicationFeed(world.settings._replace(url=url))
    await allowed.start()
    await allowed.stop()
    await own.close()
    await world.run(f"DROP ROLE {role}")


async def test_a_table_in_a_schema_that_the_user_may_not_use_is_named_with_the_right_that_is_missing(world):
    role = f"clerk_{world.settings.slot}"
    await world.run(
        f"CREATE ROLE {role} LOGIN REPLICATION", "CREATE SCHEMA far", "CREATE TABLE far.off (id int)"
    )
    url = world.url.replace("postgres@", f"{role}@")
    own = installation_of(world, url=url, watched=[Watched("far.off", ("id",)), Watched("no.where", ("id",))])
    lacks = [lack.what for lack in await own.lacks() if lack.grave]
    assert [what.partition(",")[0] for what in lacks] == [
        "there is no table far.off",
        "there is no table no.where",
    ]
    with pytest.raises(
        Misconfigured, match=r"no table far\.off, or the user does not see it: .* GRANT USAGE ON SCHEMA"
    ):
        await own.script()
    await own.close()
    await world.run(f"DROP ROLE {role}")


async def test_a_user_who_may_not_install_or_remove_is_told_which_command_shows_the_statements(world):
    role = f"clerk_{world.settings.slot}"
    await world.run(f"CREATE ROLE {role} LOGIN")
    own = installation_of(world, url=world.url.replace("postgres@", f"{role}@"))
    with pytest.raises(Misconfigured, match="`cacheupdater changes remove --print` shows the statements"):
        await own.remove()
    await world.run("DROP PUBLICATION cacheupdater", f"ALTER ROLE {role} REPLICATION")
    with pytest.raises(Misconfigured, match="`cacheupdater changes install --print` shows the statements"):
        await own.install()
    await own.close()
    await world.run(f"DROP ROLE {role}")


async def test_a_server_that_does_not_replicate_logically_is_told_what_to_set(pg_url):
    world = ReplicationWorld(pg_url)
    await world.run("CREATE TABLE items (id bigint PRIMARY KEY, shelf int)")
    own = installation_of(world)
    assert any("wal_level" in lack.what for lack in await own.lacks())
    assert "ALTER SYSTEM SET wal_level = 'logical'" in (await own.script())[0]
    with pytest.raises(Misconfigured, match="wal_level"):
        await own.install()
    await own.close()


async def test_without_the_driver_the_error_names_what_to_install(monkeypatch):
    for name in ("psycopg2", "psycopg2.extras"):
        monkeypatch.setitem(sys.modules, name, None)
    own = ReplicationFeed(Settings("postgresql://u@127.0.0.1:1/d", "p", "s", ()))
    with pytest.raises(Misconfigured, match=r"pip install 'psycopg2-binary>=2.9'"):
        await own.start()
    await own.stop()


async def test_a_server_that_is_away_is_unavailable_and_no_password_is_said():
    own = ReplicationFeed(Settings("postgresql+asyncpg://user:geheim@127.0.0.1:1/d", "p", "s", ()))
    with pytest.raises(Unavailable) as caught:
        await own.start()
    assert "geheim" not in repr(caught.value)
    await own.stop()
