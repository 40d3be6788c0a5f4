"""The feed of Debezium's topics over a real Kafka: what is passed over, what is lost, whose commits count, and what check finds."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from feeds.debezium_events import event, key
from feeds.debezium_world import SESSION_S, DebeziumWorld
from feeds.following import Follower
from feeds.reading import Reading
from feeds.recorded import recording, table_topic

from cacheupdater.adapters.feed_debezium import DebeziumChecks, DebeziumFeed
from cacheupdater.adapters.topic_kafka import unreadable
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.feed_ports import Watched
from cacheupdater.kafka_group import GroupConsumer
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_properties import ACLS
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater_client.protocol.broker import parse_cluster

pytestmark = pytest.mark.usefixtures("needs_apache", "patient")


@pytest.fixture
async def world(kafka):
    world = await DebeziumWorld(kafka, f"feed-{uuid4().hex[:12]}").start()
    yield world
    await world.close()


async def insert(world, *ids, partition=0):
    await world.send(
        *((key(each), event("c", None, {"id": each, "shelf": 0})) for each in ids), partition=partition
    )


# --- what is passed over --------------------------------------------------------------------------------


async def test_records_that_tell_no_change_are_counted_and_confirmed_and_the_feed_goes_on(world):
    reader = Reading(world.feed(), confirms=True)
    await reader.until_started()
    await insert(world, 1)
    await world.send((key(2), b"\0\0\0\0\7avro"), (None, b'{"id": 3, "__op": "u"}'), (key(4), None))
    await insert(world, 5)
    await reader.until_ids(1, 5)
    skipped = [each for batch in reader.batches for each in batch.skipped]
    assert {each.reason: each.records for each in skipped} == {"malformed": 1, "foreign": 1}
    assert f"{world.topic}, partition 0, offset 2" in {each.where for each in skipped}
    await reader.stop()
    assert await world.committed() == 5


# --- where it begins, and what is lost ------------------------------------------------------------------


async def test_a_group_that_is_new_begins_at_the_end_and_its_tables_count_as_emptied(world):
    await insert(world, 1)
    world.settings = world.settings._replace(group=f"{world.prefix}-new")
    reader = Reading(world.feed())
    await reader.until(lambda: reader.emptied)
    assert reader.emptied == [world.table]
    assert "has no offsets" in reader.batches[0].why
    await insert(world, 2)
    await reader.until_ids(2)
    assert reader.ids == [2]
    await reader.stop()


async def test_events_that_retention_has_deleted_unread_are_told_as_emptied_and_what_is_left_is_told(world):
    await insert(world, 1, 2, 3)
    await kafka_topics.delete_records(world.servers, world.topic, {0: 2})
    reader = Reading(world.feed())
    await reader.until_ids(3)
    assert reader.emptied == [world.table]
    assert "deleted events that were not read" in reader.batches[0].why
    await reader.stop()


async def test_a_partition_that_is_added_is_read_from_its_first_event(world):
    first = Reading(world.feed(), confirms=True)
    await insert(world, 1)
    await first.until_ids(1)
    await first.stop()
    await world.grow(2)
    await insert(world, 2, partition=1)
    reader = Reading(world.feed())
    await reader.until_ids(2)
    assert (reader.ids, reader.emptied) == ([2], [])
    await reader.stop()


async def test_brokers_that_nobody_reaches_are_waited_for(world):
    feed = DebeziumFeed(world.settings._replace(address=parse_cluster("kafka://127.0.0.1:1")))
    with pytest.raises(Unavailable):
        await feed.start()


# --- tables without a topic -----------------------------------------------------------------------------


BRANDS = Watched("brands", ("id",))


@pytest.fixture
async def brands(world):
    """The topic of a second table, which is watched too. The connector makes it when a test says so."""
    topic = f"{world.prefix}.public.brands"
    world.settings = world.settings._replace(watched=(*world.settings.watched, BRANDS), look=0.5)
    yield topic
    if topic in await _topics(world):
        await kafka_topics.delete(world.servers, topic)


async def _topics(world):
    consumer = GroupConsumer(world.settings.address, group=None)
    await consumer.connect()
    try:
        return await consumer.topics()
    finally:
        await consumer.close()


async def test_where_no_table_has_a_topic_the_feed_is_refused_with_what_to_do(world):
    feed = DebeziumFeed(world.settings._replace(watched=(BRANDS,)))
    with pytest.raises(
        Misconfigured, match=r"no topic tells the table brands.*let the connector include the table"
    ):
        await feed.start()


@pytest.mark.usefixtures("brands")
async def test_a_table_without_a_topic_is_said_with_each_batch_and_the_others_are_told(world):
    reader = Reading(world.feed(), confirms=True)
    await reader.until_started()
    await insert(world, 1)
    await reader.until_ids(1)
    await reader.until(lambda: not reader.batches[-1].changes)
    for batch in reader.batches:
        [said] = batch.lacks
        assert "no topic tells the table brands" in said
    await reader.stop()


async def test_a_table_is_read_soon_after_it_has_got_its_topic(world, brands):
    """Its first events came before the feed knew the topic, so all keys of the table count as changed."""
    follower = Follower(world.feed())
    await insert(world, 1)
    await follower.until(lambda: 1 in follower.ids)
    await kafka_topics.create(world.servers, brands, partitions=1)
    await world.send((key(2), event("c", None, {"id": 2})), topic=brands)
    await follower.until(lambda: "public.brands" in follower.emptied)
    assert [str(each) for each in follower.errors] == ["a topic tells brands now: the next turn reads it too"]
    await world.send((key(3), event("c", None, {"id": 3})), topic=brands)
    await insert(world, 4)
    await follower.until(lambda: {3, 4} <= set(follower.ids))
    assert (follower.ids.count(1), follower.emptied, follower.starts) == (1, ["public.brands"], 2)
    assert follower.lacks == ()
    await follower.stop()


async def test_an_updater_that_waited_for_the_turn_reads_a_topic_that_has_come_meanwhile(world, brands):
    first, second = Follower(world.feed()), Follower(world.feed())
    await insert(world, 1)
    await first.until(lambda: 1 in {*first.ids, *second.ids})
    await kafka_topics.create(world.servers, brands, partitions=1)
    await first.until(lambda: "public.brands" in {*first.emptied, *second.emptied})
    await world.send((key(2), event("c", None, {"id": 2})), topic=brands)
    await first.until(lambda: 2 in {*first.ids, *second.ids})
    await first.stop()
    await second.stop()


# --- whose turn it is -----------------------------------------------------------------------------------


async def test_a_reader_goes_on_when_another_joins_and_leaves_and_nothing_comes_twice(world):
    """Although nothing is confirmed: the group's offsets are not where it goes on."""
    reader = Reading(world.feed())
    await reader.until_started()
    for each in range(3):
        before = _generation(reader)
        other = Reading(world.feed())
        await insert(world, each)
        async with asyncio.timeout(30):
            while _generation(reader) <= before or reader.feed._turn.moving:  # noqa: ASYNC110  aiokafka tells the turn alone
                await asyncio.sleep(0.01)
        await other.stop()
    await insert(world, 3)
    await reader.until_ids(0, 1, 2, 3)
    assert reader.ids == [0, 1, 2, 3]
    await reader.stop()


def _generation(reader):
    """How often the group has rebalanced, as this member knows."""
    return reader.feed._consumer._consumer._coordinator.generation


async def test_a_reader_whose_session_has_ended_commits_nothing_and_ends_its_turn(world):
    frozen = Reading(world.feed())
    await insert(world, 1)
    await frozen.until_ids(1)
    coordinator = frozen.feed._consumer._consumer._coordinator
    beat, coordinator._do_heartbeat = coordinator._do_heartbeat, _unheard
    second = Reading(world.feed(), confirms=True)
    await second.until_ids(1)
    await insert(world, 2)
    await second.until_ids(1, 2)
    with pytest.raises(Unavailable):
        await frozen.feed.confirm(frozen.batches[-1].position)
    coordinator._do_heartbeat = beat
    assert isinstance(await frozen.error(), Unavailable)
    assert await world.committed() == 2
    await insert(world, 3)
    await second.until_ids(3)
    await second.stop()
    await frozen.stop()


async def _unheard():
    """A heartbeat that never reaches the group."""
    return True


async def test_a_restart_of_the_broker_loses_no_event(own_kafka):
    world = await DebeziumWorld(own_kafka, "shop").start()
    follower = Follower(world.feed())
    await insert(world, 1)
    await follower.until(lambda: 1 in follower.ids)
    broker = own_kafka.brokers[0]
    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)
    await insert(world, 2)
    await follower.until(lambda: 2 in follower.ids)
    assert follower.emptied == []
    await follower.stop()
    await world.close()


async def test_a_killed_reader_s_successor_begins_within_its_session(world):
    loop = asyncio.get_running_loop()
    first, second = Reading(world.feed()), Reading(world.feed())
    await insert(world, 1)
    reads, waits = (first, second) if (await _who(first, second)) is first else (second, first)
    await reads.until_ids(1)
    reads.abandon()
    killed = loop.time()
    await world.kill(reads.feed)
    await waits.until_ids(1)
    print(f"the successor reads {loop.time() - killed:.1f} s after the kill, with a session of {SESSION_S} s")
    await waits.stop()


async def _who(*readers):
    """The one that has the turn."""
    waits = {asyncio.ensure_future(each.started.wait()): each for each in readers}
    done, pending = await asyncio.wait(waits, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()
    return waits[done.pop()]


# --- what check finds -----------------------------------------------------------------------------------


async def lacks(world, *columns, table="items"):
    said = world.settings._replace(watched=(Watched(table, columns or ("id",)),))
    return [(each.what, each.grave) for each in await DebeziumChecks(said, unreadable).lacks()]


async def test_a_topic_whose_events_tell_the_columns_lacks_nothing(world):
    await insert(world, 1)
    assert await lacks(world, "id", "shelf") == []


async def test_an_empty_topic_is_said_to_be_untried(world):
    [(what, grave)] = await lacks(world)
    assert "could be tried" in what
    assert not grave


@pytest.mark.parametrize(
    ("value", "what"),
    [(b"\0\0\0\0\7avro", "is no JSON object"), (b'{"id": 3}', "is not in Debezium's envelope")],
)
async def test_a_topic_of_another_format_is_found_with_what_to_set(world, value, what):
    await world.send((key(1), value))
    [(said, grave)] = await lacks(world)
    assert what in said
    assert grave


async def test_a_column_that_no_event_tells_is_found_with_what_to_set(world):
    await insert(world, 1)
    [(said, grave)] = await lacks(world, "id", "brand_id")
    assert f"the events of {world.topic} do not tell brand_id" in said
    assert grave


async def test_a_column_that_deletions_do_not_tell_is_noted(world):
    await insert(world, 1)
    await world.send((key(1), event("d", {"id": 1, "shelf": 0})))
    [(said, grave)] = await lacks(world, "id", "shelf")
    assert "does not tell shelf of a deleted row" in said
    assert "REPLICA IDENTITY FULL" in said
    assert not grave


async def test_a_table_without_a_topic_is_found(world):
    [(said, grave)] = await lacks(world, table="brands")
    assert "no topic tells the table brands" in said
    assert grave


async def test_a_table_without_a_topic_is_noted_beside_tables_that_can_be_read(world):
    await insert(world, 1)
    said = world.settings._replace(watched=(*world.settings.watched, BRANDS))
    [lack] = await DebeziumChecks(said, unreadable).lacks()
    assert "no topic tells the table brands" in lack.what
    assert not lack.grave


async def test_a_column_of_a_type_that_is_not_read_is_found_though_it_is_null_in_most_rows(world):
    prefix = f"{world.prefix}-recorded"
    topic = table_topic("postgresql", "items", prefix)
    await kafka_topics.create(world.servers, topic, partitions=1)
    try:
        said = world.settings._replace(prefix=prefix, watched=(Watched("items", ("id", "day")),))
        rows = [each for each in recording("postgresql", "schema", prefix) if each.topic == topic]
        await world.send(*((each.key, each.value) for each in rows), topic=topic)
        found = [each.what for each in await DebeziumChecks(said, unreadable).lacks()]
        assert any("do not tell day" in each for each in found)
        assert not any("do not tell id" in each for each in found)
    finally:
        await kafka_topics.delete(world.servers, topic)


# --- rights ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded():
    """A broker with rights: what each user may is in its name."""
    users = dict.fromkeys(("nobody", "reader", "stranger", "member"), "secret")
    with KafkaServer(protocol="SASL_PLAINTEXT", users=users, properties=ACLS) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "shop.public.items", partitions=1))
        server.grant("reader", "Read", topic="shop.public.items")
        server.grant("stranger", "Read", group="feed")
        server.grant("member", "Read", topic="shop.public.items", group="feed")
        yield server


@pytest.mark.parametrize(
    ("user", "what"),
    [
        ("nobody", "allow Read on the group"),
        ("reader", "allow Read on the group"),
        ("stranger", "this user may not see it: allow Read on it"),
        ("member", "could be tried"),
    ],
)
async def test_check_names_the_right_that_is_missing(guarded, tmp_path, world, user, what):
    password = tmp_path / "password"
    password.write_text("secret")
    url = f"kafka://{guarded.bootstrap}?sasl=SCRAM-SHA-512&username={user}&password_file={password}"
    world.settings = world.settings._replace(address=parse_cluster(url), prefix="shop", group="feed")
    [(said, _)] = await lacks(world)
    assert what in said
