"""The contract of every feed.

A world stands for one source with a table `items (id, shelf)`, outside of the processes that read its feed. `feed()` is one more
process's connection, not yet started; `transaction()` is an application's. To test another feed, add its world to `WORLDS`. What
a kind of feed cannot tell (`tells` has the rest) is left out for that kind.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from feeds.memory_world import MemoryWorld, Rollback
from feeds.reading import Reading

from cacheupdater.errors import Unavailable
from cacheupdater.feed_ports import SILENCE_MAX

pytestmark = pytest.mark.usefixtures("patient")

MANY = 1_002  # 2 to 1,001 are rows that no batch holds, and that fill several
# the moment is the subject: within a start, and after it
STOPPED_AFTER_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


@pytest.fixture
def memory_world():
    return MemoryWorld


@pytest.fixture
def replication_world(logical_pg_url):
    from feeds.replication_world import ReplicationWorld

    return lambda: ReplicationWorld(logical_pg_url)


@pytest.fixture
def notify_world(pg_url):
    from feeds.notify_world import NotifyWorld

    return lambda: NotifyWorld(pg_url)


@pytest.fixture
def poll_postgres_world(pg_url, redis_url):
    from feeds.poll_world import PollWorld

    return lambda: PollWorld(pg_url, redis_url)


@pytest.fixture
def poll_sqlite_world(tmp_path, redis_url):
    from feeds.poll_world import PollWorld

    return lambda: PollWorld(f"sqlite+aiosqlite:///{tmp_path}/shop.db", redis_url)


@pytest.fixture
def debezium_world(needs_apache, kafka):
    from feeds.debezium_world import DebeziumWorld

    return lambda: DebeziumWorld(kafka, f"contract-{uuid4().hex[:12]}")


WORLDS = [
    pytest.param("memory_world", id="memory"),
    pytest.param("replication_world", id="replication"),
    pytest.param("notify_world", id="notify"),
    pytest.param("poll_postgres_world", id="poll-postgresql"),
    pytest.param("poll_sqlite_world", id="poll-sqlite"),
    pytest.param("debezium_world", id="debezium"),
]


@pytest.fixture(params=WORLDS)
def make_world(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def world(make_world):
    world = await make_world().start()
    yield world
    await world.close()


@pytest.fixture
async def read(world):
    """Starts readers; all of them end with the test."""
    started = []

    async def reader(*, wait=True, **options):
        started.append(Reading(world.feed(), **options))
        if wait:
            await started[-1].until_started()
        return started[-1]

    yield reader
    for each in started:
        await each.stop()


def only_if(world, what):
    if what not in world.tells:
        pytest.skip(f"this kind of feed does not tell {what}")


async def insert(world, *ids):
    async with world.transaction() as rows:
        await rows.insert(*ids)


# --- what is told ---------------------------------------------------------------------------------------------------


async def test_a_row_is_told_with_its_table_and_the_columns_that_are_watched(world, read):
    reader = await read()
    await insert(world, 7)
    await reader.until_ids(7)
    [change] = [each for batch in reader.batches for each in batch.changes]
    assert change.table == world.table
    assert [dict(row) for row in change.rows] == [{"id": 7, "shelf": 0}]


async def test_changes_of_a_key_are_told_in_the_order_of_their_commits(world, read):
    reader = await read()
    await insert(world, 1)
    for shelf in range(1, 30):
        async with world.transaction() as rows:
            await rows.update(1, shelf)
    await reader.until(lambda: reader.rows and reader.rows[-1][-1]["shelf"] == 29)
    shelves = [rows[-1]["shelf"] for rows in reader.rows]
    assert shelves == sorted(shelves)


async def test_what_was_rolled_back_is_never_told(world, read):
    reader = await read()
    async with world.transaction() as rows:
        await rows.insert(1)
        raise Rollback
    await insert(world, 2)
    await reader.until_ids(2)
    assert reader.ids == [2]


async def test_an_open_transaction_is_told_after_its_commit_and_not_before(world, read):
    reader = await read(confirms=True)
    async with world.transaction() as rows:
        await rows.insert(1)
        await insert(world, 2)
        await insert(world, 3)
        await reader.until_ids(2, 3)
        assert 1 not in reader.ids
    await reader.until_ids(1)


async def test_a_deleted_row_is_told(world, read):
    only_if(world, "deletes")
    reader = await read()
    await insert(world, 1, 2)
    await reader.until_ids(1, 2)
    async with world.transaction() as rows:
        await rows.delete(1)
    await reader.until(lambda: reader.ids.count(1) == 2)
    [row] = reader.rows[-1]
    assert row["id"] == 1


async def test_a_changed_key_is_told_as_it_was_and_as_it_is(world, read):
    only_if(world, "old keys")
    reader = await read()
    await insert(world, 1)
    async with world.transaction() as rows:
        await rows.rekey(1, 2)
    await reader.until_ids(1, 2)
    was, now = [row for told in reader.rows for row in told][-2:]  # of one change, or of two
    assert was["id"] == 1
    assert now == {"id": 2, "shelf": 0}


async def test_a_truncated_table_is_told_as_emptied_and_says_why(world, read):
    only_if(world, "truncates")
    reader = await read()
    async with world.transaction() as rows:
        await rows.truncate()
    await reader.until(lambda: reader.emptied)
    assert reader.emptied == [world.table]
    assert next(batch.why for batch in reader.batches if batch.emptied)


@pytest.mark.prove  # the time of ten seconds is the subject
async def test_a_feed_without_changes_is_not_silent(world, read):
    reader = await read()
    for _ in range(2):
        heard = len(reader.batches)
        await reader.until(lambda heard=heard: len(reader.batches) > heard, 1.5 * SILENCE_MAX)
    assert reader.ids == []


# --- what is confirmed ----------------------------------------------------------------------------------------------


async def test_what_was_not_confirmed_comes_again_and_what_was_confirmed_does_not(world, read):
    first = await read()
    await insert(world, 1)
    await first.until_ids(1)
    await first.confirm()
    await insert(world, 2)
    await first.until_ids(1, 2)
    await first.stop()

    second = await read()
    await insert(world, 3)
    await second.until_ids(2, 3)
    assert second.ids == [2, 3] or "nothing twice" not in world.tells


async def test_the_same_feed_goes_on_after_a_stop_and_a_start(world, read):
    reader = await read()
    await insert(world, 1)
    await reader.until_ids(1)
    await reader.stop()
    await insert(world, 2)

    again = Reading(reader.feed)
    await again.until_ids(1, 2)
    await again.stop()


async def test_what_happened_while_nobody_read_is_told(world, read):
    first = await read()
    await first.stop()
    await insert(world, 1)
    reader = await read()
    await reader.until_ids(1)


async def test_a_transaction_that_no_batch_holds_comes_in_parts_and_what_was_not_confirmed_comes_again(
    world, read
):
    first = await read(confirms=True)
    await insert(world, 1)
    await first.until_ids(1)
    await first.stop()

    second = world.feed()
    await second.start()
    await insert(world, *range(2, MANY))
    async for batch in second.batches():
        await second.confirm(batch.position)
        if batch.changes:
            break
    assert 0 < len(batch.changes) < MANY
    await second.stop()

    confirmed = {change.rows[-1]["id"] for change in batch.changes}
    third = await read(confirms=True)
    await third.until_ids(*set(range(2, MANY)) - confirmed)
    await third.stop()
    fourth = await read()
    await insert(world, MANY)
    await fourth.until_ids(MANY)
    assert fourth.ids == [MANY] or "nothing twice" not in world.tells


async def test_what_waits_is_known_or_not_and_grows_less_by_a_confirmation(world, read):
    reader = await read()
    await insert(world, *range(500))
    await reader.until_ids(*range(500))
    before = await reader.feed.waiting()
    await reader.confirm()
    async with asyncio.timeout(60):
        while before is not None and await reader.feed.waiting() >= before:  # noqa: ASYNC110  only the source knows when
            await asyncio.sleep(0.05)


# --- whose turn it is -----------------------------------------------------------------------------------------------


async def test_a_second_reader_waits_until_the_first_has_stopped(world, read):
    first = await read(confirms=True)
    second = await read(wait=False, confirms=True)
    await insert(world, 1)
    await first.until_ids(1)
    assert not second.started.is_set()

    await first.stop()
    await insert(world, 2)
    await second.until_ids(2)


async def test_a_reader_that_is_stopped_while_it_waits_for_its_turn_never_takes_it(world, read):
    first = await read(confirms=True)
    second = await read(wait=False)
    await insert(world, 1)
    await first.until_ids(1)
    await second.stop()
    await first.stop()
    third = await read(confirms=True)
    await insert(world, 2)
    await third.until_ids(2)
    assert not second.started.is_set()


async def test_a_reader_that_is_stopped_while_it_starts_keeps_no_turn(world, read):
    for pause in STOPPED_AFTER_S:
        stopped = await read(wait=False)
        await asyncio.sleep(pause)
        await stopped.stop()
    third = await read(confirms=True)
    await insert(world, 1)
    await third.until_ids(1)


async def test_a_second_reader_goes_on_when_the_first_has_died(world, read):
    first = await read()
    second = await read(wait=False)
    await insert(world, 1)
    await first.until_ids(1)
    first.abandon()
    await world.kill(first.feed)
    await second.until_ids(1)


async def test_changes_that_were_lost_are_told_as_emptied_until_that_is_confirmed(world, read):
    only_if(world, "losses")
    first = await read()
    await insert(world, 1)
    await world.lose()
    assert isinstance(await first.error(), Unavailable)

    for confirmed in (False, True):
        reader = await read()
        await reader.until(lambda reader=reader: reader.emptied)
        assert reader.emptied == [world.table]
        assert next(batch.why for batch in reader.batches if batch.emptied)
        if confirmed:
            await reader.confirm()
        await reader.stop()

    reader = await read()
    await insert(world, 2)
    await reader.until_ids(2)
    assert reader.emptied == []
