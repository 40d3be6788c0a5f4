"""The depots in a real PostgreSQL and in files of SQLite: their limits, their tables, and what a person must correct.

`tests/contract/test_depot.py` has what all depots have in common.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from depots.sql_world import SqlWorld
from depots.world import SESSION, own

from cacheupdater.adapters.depot_sql import checks, depot_at, postgres_server
from cacheupdater.core import depot_url
from cacheupdater.depot_ports import Progress
from cacheupdater.errors import Faulty, Forbidden, Misconfigured, Unavailable
from cacheupdater.local.postgres_server import run_sql
from cacheupdater_client.protocol.wire import CHANGE, encode_pack

pytestmark = pytest.mark.usefixtures("patient")

SOON = 60.0  # s: on any machine, expected events have happened by then
A_CHANGE = encode_pack(CHANGE, 1, [b"item:7"])


@pytest.fixture
async def files(tmp_path):
    """Worlds in one file of SQLite."""
    async with Worlds(f"sqlite:///{tmp_path}/hints.db") as make:
        yield make


@pytest.fixture
async def servers(pg_url):
    """Worlds in one database of PostgreSQL."""
    async with Worlds(pg_url) as make:
        yield make


class Worlds:
    def __init__(self, url):
        self._url, self._made = url, []

    async def __aenter__(self):
        def make(**options):
            self._made.append(SqlWorld(self._url, **options))
            return self._made[-1]

        return make

    async def __aexit__(self, *_):
        for world in self._made:
            await world.close()


@pytest.fixture(params=["files", "servers"])
def make(request):
    return request.getfixturevalue(request.param)


async def payloads(depot, lane=0, after=0):
    return [message.payload for message in (await depot.read({lane: after}, 100_000)).get(lane, ())]


async def lag_of(depot, lane=0):
    [lag] = [each for each in await depot.lag() if each.lane == lane]
    return lag


# --- opening ------------------------------------------------------------------------------------------------


async def test_who_names_no_partitions_takes_those_that_are_there_and_who_names_others_is_refused(make):
    await make(partitions=7).depot()
    world = make()
    world.url = world.url.replace("partitions=3", "length=9")
    assert await world.closed_depot().open() == 7
    with pytest.raises(Misconfigured, match="there are 7 partitions, and the URL says 3"):
        await make().closed_depot().open()


async def test_of_processes_that_start_at_once_one_makes_the_tables(make):
    depots = [make().closed_depot() for _ in range(6)]
    assert await asyncio.gather(*(depot.open() for depot in depots)) == [3] * 6


async def test_tables_of_another_version_are_refused(files, servers):
    for world, change in (
        (files(), "PRAGMA user_version = 1"),
        (servers(), "UPDATE {}about SET version = 1"),
    ):
        await (await world.depot()).close()
        world.run(change)
        with pytest.raises(
            Misconfigured,
            match=r"another version of cacheupdater \(form 1, this one reads 2\): use that .*drain",
        ):
            await world.closed_depot().open()


async def test_lag_makes_neither_tables_nor_a_file(make, tmp_path):
    world = make()
    assert list(await world.closed_depot().lag()) == []
    assert list(tmp_path.iterdir()) == []
    await world.depot()
    assert [each.lane for each in await world.closed_depot().lag()] == [~0, 0, ~1, 1, ~2, 2]
    with pytest.raises(Misconfigured, match="there are 3 partitions, and the URL says 5"):
        await make(partitions=5).closed_depot().lag()


async def test_a_drop_deletes_in_short_steps_beside_an_owner_that_commits(make, monkeypatch):
    monkeypatch.setattr(checks, "DELETED_MAX", 10)
    world = make()
    depot, operator = await world.depot(), await world.depot()
    epochs = await own(depot, "ann", 0)
    for _ in range(10):
        await depot.put([(0, b"%d" % number) for number in range(50)])
    lag = await lag_of(operator)

    async def commit():
        for done in range(lag.done, lag.end, 25):
            await depot.commit("ann", {0: Progress(epochs[0], done, done)})

    await asyncio.gather(operator.drop(0, lag.end), commit())
    assert await payloads(depot) == []
    assert (await lag_of(operator)).done == lag.end


async def test_an_end_that_no_pack_has_reached_drops_nothing_of_what_will_come(make):
    """Tables that were made again meanwhile count from one again."""
    depot = await make().depot()
    await depot.put([(0, b"a")])
    await depot.drop(0, 1_000)
    await depot.put([(0, b"b")])
    assert (await lag_of(depot)).packs == 1


async def test_a_member_that_is_gone_for_long_is_forgotten_at_the_next_start(make):
    world = make()
    depot = await world.depot()
    await depot.renew("ann", SESSION)
    await depot.renew("bob", SESSION)
    await world.pass_time(checks.MEMBER_KEPT_S + SESSION + 1)
    await depot.renew("bob", SESSION)
    assert await (await world.depot()).renew("eve", SESSION) == ({"bob", "eve"}, {})
    count = "SELECT 1 / (count(*) = 2)::integer FROM {}members"
    world.run(count if not world.address.path else "SELECT 1")


# --- limits -------------------------------------------------------------------------------------------------


async def test_a_full_partition_refuses_more_and_nothing_of_such_a_put_is_done(make):
    depot = await make(options="&length=10").depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, b"a")] * 10)
    with pytest.raises(Unavailable, match="partition 0 is full: 10 packs of touches wait"):
        await depot.put([(1, b"b"), (0, b"b")])
    assert await payloads(depot, 1) == []
    assert await payloads(depot) == [b"a"] * 10

    await depot.commit("ann", {0: Progress(epochs[0], 11, 6)})
    await depot.put([(1, b"b"), (0, b"b")])
    assert await payloads(depot) == [b"a"] * 5 + [b"b"]


async def test_a_lane_that_is_full_of_touches_still_takes_changes(make):
    depot = await make(options="&length=10").depot()
    await depot.put([(0, b"a")] * 10)
    await depot.put([(0, A_CHANGE)] * 10)
    with pytest.raises(Unavailable, match="partition 0 is full: 10 urgent packs wait"):
        await depot.put([(0, A_CHANGE)])
    with pytest.raises(Unavailable, match="partition 0 is full: 10 urgent packs wait"):
        await depot.put_back(0, [b"a"])
    assert await payloads(depot, ~0) == [A_CHANGE] * 10


async def test_a_partition_that_does_not_exist_takes_nothing(make):
    depot = await make().depot()
    with pytest.raises(Faulty, match="3 partitions only"):
        await depot.put([(0, b"a"), (3, b"a")])
    assert await payloads(depot) == []


async def test_finished_packs_are_deleted_in_batches_and_none_is_left(make, monkeypatch):
    monkeypatch.setattr(checks, "DELETED_MAX", 40)
    depot = await make().depot()
    epochs = await own(depot, "ann", 0, 1)
    await depot.put([(partition, b"a") for partition in (0, 1) for _ in range(50)])
    done = {partition: Progress(epoch, 51, 51) for partition, epoch in epochs.items()}
    left = []
    while not left or left[-1]:
        assert not await depot.commit("ann", done)
        left.append(len(await payloads(depot, 0)) + len(await payloads(depot, 1)))
        assert len(left) < 9
    assert left == [60, 20, 0]


# --- a file -------------------------------------------------------------------------------------------------


async def test_only_the_owner_of_the_file_can_read_it_and_what_lies_beside_it(files, tmp_path):
    depot = await files().depot()
    await depot.put([(0, b"a")])
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {"hints.db": 0o600, "hints.db-wal": 0o600, "hints.db-shm": 0o600}


@pytest.mark.parametrize("where", ["missing/hints.db", "file/hints.db", ""])
async def test_a_file_that_cannot_be_made_is_refused_with_what_to_do(tmp_path, where):
    (tmp_path / "file").touch()
    path = str(tmp_path / where).rstrip("/")
    depot = depot_at(depot_url.parse(f"sqlite:///{path}"))
    with pytest.raises(Misconfigured, match="let the updater's user write to both"):
        await depot.open()
    await depot.close()


@pytest.mark.parametrize("content", ["text", "database"])
async def test_a_file_of_another_program_is_refused_and_not_changed(files, tmp_path, content):
    file = tmp_path / "hints.db"
    if content == "text":
        file.write_bytes(b"no database" * 1000)
    else:
        with closing(sqlite3.connect(file)) as theirs:
            theirs.execute("CREATE TABLE theirs (a)")
    before = file.read_bytes()
    with pytest.raises(Misconfigured, match="name another file"):
        await files().closed_depot().open()
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["hints.db"]


async def test_a_file_that_another_process_holds_is_away_for_now(files, tmp_path, monkeypatch):
    monkeypatch.setattr("cacheupdater.adapters.depot_sql.sqlite_file.BUSY_S", 0.01)
    depot = await files().depot()
    with closing(sqlite3.connect(tmp_path / "hints.db")) as theirs:
        theirs.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another process holds it"):
            await depot.put([(0, b"a")])
        theirs.execute("ROLLBACK")
    await depot.put([(0, b"a")])
    assert await payloads(depot) == [b"a"]


async def test_a_new_file_that_another_process_opens_too_is_waited_for(files, tmp_path, monkeypatch):
    """SQLite itself does not wait where a new file gets its write-ahead log: two of a thousand opens failed."""
    theirs = sqlite3.connect(tmp_path / "hints.db", isolation_level=None, check_same_thread=False)
    theirs.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(time, "sleep", lambda _seconds: theirs.close())  # the other process is done meanwhile
    depot = await files().depot()
    await depot.put([(0, b"a")])
    assert await payloads(depot) == [b"a"]


async def test_a_closed_depot_says_so(files):
    depot = await files().depot()
    await depot.close()
    with pytest.raises(Unavailable, match="shutting down"):
        await depot.put([(0, b"a")])


# --- a server -----------------------------------------------------------------------------------------------


async def test_two_names_of_tables_are_two_queues(servers):
    one, other = await servers().depot(), await servers(options="&table=other").depot()
    await one.put([(0, b"a")])
    assert (await payloads(one), await payloads(other)) == ([b"a"], [])


async def test_tables_may_lie_in_a_schema(servers):
    world = servers(options="&table=queues.hints")
    run_sql(world.base, "CREATE SCHEMA queues")
    depot = await world.depot()
    await depot.put([(0, b"a")])
    assert await payloads(depot) == [b"a"]


async def test_a_user_without_rights_is_told_what_to_grant(servers, pg_url):
    world = servers()
    await (await world.depot()).close()
    role = f"guest_{os.getpid()}"
    run_sql(pg_url, f"CREATE ROLE {role} LOGIN PASSWORD 'canary77'")
    try:
        guest = depot_url.parse(_as(world.url, role, "canary77"))
        depot = depot_at(guest)
        with pytest.raises(
            Forbidden, match=r"no permission .* GRANT SELECT, INSERT, UPDATE, DELETE"
        ) as refused:
            await depot.open()
        assert "canary77" not in str(refused.value)
        for each in ("partitions", "packs", "members", "about"):
            run_sql(pg_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {world.address.table}_{each} TO {role}")
        assert await depot.open() == 3, "a user who may not make tables may use those that are there"
        await depot.close()
    finally:
        run_sql(pg_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def _as(url, user, password):
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{password}@{rest.rpartition('@')[2]}"


async def test_a_process_that_is_stopped_in_a_transaction_holds_up_nobody_for_long(servers, monkeypatch):
    stopped, other = await servers().depot(), await servers().depot()
    monkeypatch.setattr(postgres_server, "IDLE_S", 0.2)
    stopped._server._drop_idle()  # its next connection is impatient, and those of the other are not
    async with stopped._server.connection() as connection:
        await connection.execute("BEGIN;" + stopped._sql.lock.replace("$1", "'{0,1,2}'"))
        async with asyncio.timeout(SOON):
            await other.put([(0, b"a")])
        assert await payloads(other) == [b"a"]
        with pytest.raises(Exception, match=r"closed|terminat|idle"):
            await connection.execute("COMMIT")
        await connection.close()
        connection.terminate()


async def until_one_waits_for_a_lock(depot):
    async with asyncio.timeout(SOON), depot._server.connection() as watch:
        while not await watch.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0.01)


async def test_a_caller_that_is_cancelled_leaves_no_lock_and_no_half_of_its_work(servers):
    depot, other = await servers().depot(), await servers().depot()
    async with other._server.transaction() as connection:
        await connection.execute(other._sql.lock, [1])
        putting = asyncio.ensure_future(depot.put([(0, b"a"), (1, b"a")]))
        await until_one_waits_for_a_lock(other)
        putting.cancel()
        await asyncio.wait([putting])
    async with asyncio.timeout(SOON):
        await depot.put([(0, b"b"), (1, b"b")])
    assert await payloads(depot) == [b"b"]


async def test_a_server_that_was_restarted_is_used_again_and_has_lost_nothing(postgres_server):
    world = SqlWorld(postgres_server.url())
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, b"a")])
    await depot.wait(0.01)
    postgres_server.stop()
    with pytest.raises(Unavailable, match="cannot"):
        await depot.put([(0, b"lost")])
    async with asyncio.timeout(SOON):
        await depot.wait(0.3)  # neither raises nor waits for longer
    postgres_server.start()
    async with asyncio.timeout(SOON):
        while True:
            try:
                assert await payloads(depot) == [b"a"]
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    assert not await depot.commit("ann", {0: Progress(epochs[0], 2, 2)})
    await world.close()


@asynccontextmanager
async def deaf_to_ends(port):
    """A port that passes everything on to another, but not the end of a connection. Gives it, and what the other has ended."""
    ended, writers = asyncio.Event(), []

    async def copy(source, sink):
        with suppress(OSError):
            while said := await source.read(65_536):
                sink.write(said)

    async def pass_on(reader, writer):
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.extend((writer, server_writer))
        asking = asyncio.ensure_future(copy(reader, server_writer))
        await copy(server_reader, writer)
        ended.set()
        await asking

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as relay:
        yield relay.sockets[0].getsockname()[1], ended
        for each in writers:
            each.close()


async def test_a_connection_that_the_server_has_ended_while_nobody_used_it_costs_one_call(pg_url):
    """Its last words have come, and its end has not: for asyncpg, the connection is in the middle of something then."""
    there = urlsplit(pg_url)
    async with deaf_to_ends(there.port) as (port, ended):
        world = SqlWorld(pg_url.replace(f":{there.port}", f":{port}"))
        depot = await world.depot()
        run_sql(
            pg_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'cacheupdater' AND datname = current_database()",
        )
        await asyncio.wait_for(ended.wait(), SOON)
        with pytest.raises(Unavailable):
            await depot.renew("a", SESSION)
        assert (await depot.renew("a", SESSION)).members == {"a"}
        await world.close()


def test_a_file_of_certificates_that_cannot_be_read_is_refused(tmp_path):
    ca = Path(tmp_path / "ca.pem")
    with pytest.raises(Misconfigured, match=r"^ca: .*cannot be read"):
        depot_at(depot_url.parse(f"postgresql://u@h/d?tls=verify&ca={ca}"))
