"""The waiting packs of a topic of Kafka, for an operator: what is counted, read and deleted, and which rights that needs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.offset import OffsetRequest
from suite.commands import on_a_queue

from cacheupdater.adapters import topic_kafka
from cacheupdater.adapters.queue_kafka.stored import packs
from cacheupdater.adapters.topic_kafka.cluster import Cluster
from cacheupdater.adapters.topic_kafka.waiting import TopicWaiting
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_properties import ACLS, QUICK_QUOTAS
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater_client.protocol.broker import connection, parse
from cacheupdater_client.protocol.wire import TOUCH, decode_pack, encode_pack

pytestmark = pytest.mark.usefixtures("needs_apache")


@pytest.fixture
async def waiting(kafka, kafka_topic):
    waiting = TopicWaiting(parse(kafka.url(kafka_topic)), "shop", unpack=packs)
    yield waiting
    await waiting.close()


@pytest.fixture
def topic(kafka, kafka_topic):
    return parse(kafka.url(kafka_topic))


async def send(topic, partition, *values, key=None, **how):
    async with AIOKafkaProducer(**connection(topic), **how) as producer:
        for value in values:
            await producer.send(topic.topic, value, key=key, partition=partition)
        await producer.flush()


async def committed(topic, partition, offset=None):
    """What the group has committed; with an offset, commits it first, as a group without members."""
    at = TopicPartition(topic.topic, partition)
    how = connection(topic) | {"enable_auto_commit": False}
    async with AIOKafkaConsumer(group_id="shop", **how) as consumer:
        consumer.assign([at])
        if offset is not None:
            await consumer.commit({at: offset})
        return await consumer.committed(at)


async def lag_of(waiting, partition=0):
    lag = (await waiting.lag())[partition]
    return lag.done, lag.end, lag.packs


async def read(waiting, partition, after, limit=100):
    found = await waiting.read({partition: after}, limit)
    return [(each.offset, each.payload) for each in found.get(partition, ())]


async def read_again(waiting, times):
    """The offsets of the first three packs, each read by itself, in turn."""
    return [offset for number in range(times) for offset, _ in await read(waiting, 0, number % 3)]


async def test_where_nothing_is_committed_all_packs_wait_and_else_those_behind_it(waiting, topic):
    assert [(each.packs, each.owner) for each in await waiting.lag()] == [(0, None)] * 3
    await send(topic, 1, b"a", b"b", b"c")
    assert await lag_of(waiting, 1) == (0, 3, 3)
    await committed(topic, 1, 2)
    assert await lag_of(waiting, 1) == (2, 3, 1)


async def test_packs_that_come_and_are_finished_while_the_brokers_answer_do_not_make_the_whole_topic_wait(
    waiting, topic, monkeypatch
):
    """One more pack is finished behind each answer, as on a busy topic."""
    await send(topic, 0, *[b"old"] * 20)
    await committed(topic, 0, 20)
    ask, finished = Cluster.ask, [20]

    async def busy(cluster, request, **how):
        answer = await ask(cluster, request, **how)
        await send(topic, 0, b"new")
        finished.append(finished[-1] + 1)
        await committed(topic, 0, finished[-1])
        return answer

    monkeypatch.setattr(Cluster, "ask", busy)
    done, end, count = await lag_of(waiting)
    assert len(finished) > 4
    assert 20 <= done <= end <= finished[-1]
    assert count == end - done


async def test_a_leader_that_does_not_know_its_part_yet_is_asked_again(waiting, topic, monkeypatch):
    await send(topic, 0, b"a")
    ask, asked = Cluster.ask, []

    async def elected(cluster, request, **how):
        answer = await ask(cluster, request, **how)
        if isinstance(request, OffsetRequest):
            asked.append(request)
            if len(asked) < 3:
                number, _, *rest = answer.topics[0][1][-1]
                answer.topics[0][1][-1] = (number, NotLeaderForPartitionError.errno, *rest)
        return answer

    monkeypatch.setattr(Cluster, "ask", elected)
    assert await lag_of(waiting) == (0, 1, 1)
    assert len(asked) == 4, "twice in vain, and then for both ends"
    monkeypatch.setattr(topic_kafka.waiting, "ANSWER_S", 0.0)
    asked.clear()
    with pytest.raises(Unavailable, match="cannot be used now"):
        await waiting.lag()


async def test_what_was_committed_for_a_topic_that_was_made_again_counts_for_nothing(waiting, topic):
    await send(topic, 0, b"a", b"b")
    await committed(topic, 0, 1_000_000)
    assert await lag_of(waiting) == (0, 2, 2)


async def test_looking_makes_no_group(topic, kafka):
    waiting = TopicWaiting(topic, "nobody", unpack=packs)  # other tests make the group shop
    await send(topic, 0, b"a")
    await waiting.lag()
    await waiting.read({0: 0}, 1)
    await waiting.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        [described] = await admin.describe_consumer_groups(["nobody"])
    finally:
        await admin.close()
    assert described.groups[0][2] == "Dead"  # Kafka's word for a group that does not exist


async def test_packs_are_read_in_pieces_from_batches_of_any_codec_and_any_producer(waiting, topic):
    await send(topic, 0, *(b"%d" % number for number in range(10)), compression_type="gzip", linger_ms=200)
    await send(topic, 0, b"", key=b"item:7")
    await waiting.lag()
    assert [offset for offset, _ in await read(waiting, 0, 3, 4)] == [3, 4, 5, 6]
    assert [offset for offset, _ in await read(waiting, 0, 8, 1)] == [8]
    [(offset, plain)] = await read(waiting, 0, 10)
    assert offset == 10
    pack = decode_pack(plain)
    assert (pack.kind, pack.keys) == (TOUCH, [b"item:7"])


async def test_the_marks_of_transactions_are_passed_over(waiting, topic, monkeypatch):
    monkeypatch.setattr(topic_kafka.waiting, "FETCH_BYTES", 1)  # so each batch, or mark, comes alone
    producer = AIOKafkaProducer(**connection(topic), transactional_id=f"{topic.topic}-t")
    await producer.start()
    for value in (b"a", b"b"):
        async with producer.transaction():
            await producer.send_and_wait(topic.topic, value, partition=0)
    await producer.stop()
    async with asyncio.timeout(60):  # the broker writes the last mark after its answer
        while (await lag_of(waiting))[:2] != (0, 4):  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0.05)
    found = await read(waiting, 0, 1)
    assert found == [(2, b"b")]
    assert await read(waiting, 0, 3) == []


async def test_a_leader_that_shows_nothing_before_the_end_is_not_taken_for_the_end(
    waiting, topic, monkeypatch
):
    """As one that was elected a moment ago and does not know yet what its followers have."""
    await send(topic, 0, b"a", b"b")
    await waiting.lag()
    ask = Cluster.ask

    async def elected(cluster, request, **how):
        answer = await ask(cluster, request, **how)
        [(name, [(*said, _)])] = answer.topics
        return SimpleNamespace(topics=[(name, [(*said, b"")])])

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "ask", elected)
        with pytest.raises(Unavailable, match="nothing from offset 1 on, but had packs up to 2"):
            await read(waiting, 0, 1)
        assert await read(waiting, 0, 2) == []
    assert await read(waiting, 0, 1) == [(1, b"b")]


async def test_a_topic_that_was_made_again_since_it_was_looked_at_is_not_taken_for_an_empty_one(
    waiting, topic, kafka
):
    await send(topic, 0, *[b"old"] * 5)
    await waiting.lag()
    kafka_topics.done(kafka_topics.delete(kafka.bootstrap, topic.topic))
    kafka_topics.done(kafka_topics.create(kafka.bootstrap, topic.topic, partitions=3))
    for partition in range(3):  # so each has a leader again
        await send(topic, partition, b"new")
    with pytest.raises(Unavailable, match="nothing from offset 3 on"):
        await read(waiting, 0, 3)


@pytest.mark.prove
async def test_a_broker_with_a_fetch_quota_is_waited_for_as_long_as_it_says(monkeypatch):
    monkeypatch.setattr(topic_kafka.waiting, "FETCH_BYTES", 1)  # so each batch comes alone
    with KafkaServer(properties=QUICK_QUOTAS) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints", partitions=1))
        server.limit_fetches(60_000)
        topic = parse(f"kafka://{server.bootstrap}/hints")
        for _ in range(3):
            await send(topic, 0, b"x" * 50_000)
        waiting = TopicWaiting(topic, "shop", unpack=packs)
        await waiting.lag()
        assert await read_again(waiting, 3) == [0, 1, 2]
        monkeypatch.setattr(topic_kafka.waiting, "HELD_OFF_S", 0.0)
        with pytest.raises(Unavailable, match="quota"):
            await read_again(waiting, 30)
        await waiting.close()


async def test_a_drop_deletes_what_was_seen_and_commits_for_a_group_without_members(waiting, topic):
    await send(topic, 0, b"a", b"b")
    _, end, _ = await lag_of(waiting)
    await send(topic, 0, b"late")
    await waiting.drop(0, end)
    assert await lag_of(waiting) == (2, 3, 1)
    assert await read(waiting, 0, 0) == [(2, b"late")]
    assert await committed(topic, 0) == 2
    assert await committed(topic, 1) is None


async def test_a_drop_moves_no_commit_back(waiting, topic):
    await send(topic, 0, b"a", b"b", b"c")
    await waiting.lag()
    await committed(topic, 0, 3)
    await waiting.drop(0, 2)
    assert await committed(topic, 0) == 3


async def test_beside_a_living_group_the_members_commit_for_themselves_and_are_named(waiting, topic):
    await send(topic, 0, b"a", b"b")
    how = connection(topic) | {"enable_auto_commit": False, "client_id": "updater-on-duty"}
    consumer = AIOKafkaConsumer(topic.topic, group_id="shop", auto_offset_reset="earliest", **how)
    await consumer.start()
    try:
        while not consumer.assignment():  # noqa: ASYNC110  the group is told of by nobody
            await asyncio.sleep(0.05)
        lags = await waiting.lag()
        assert all("updater-on-duty" in each.owner for each in lags)
        await waiting.drop(0, lags[0].end)
        assert await lag_of(waiting) == (2, 2, 0)
        assert await consumer.committed(TopicPartition(topic.topic, 0)) is None
        await send(topic, 0, b"next")
        async with asyncio.timeout(60):  # what it has fetched before comes first
            while (await consumer.getone()).value != b"next":
                pass
    finally:
        await consumer.stop()


async def test_records_of_a_compacted_topic_cannot_be_deleted_and_that_is_said(kafka, new_topic):
    topic = parse(kafka.url(new_topic(config={"cleanup.policy": "compact"})))
    waiting = TopicWaiting(topic, "shop", unpack=packs)
    await send(topic, 0, b"a", key=b"k")
    _, end, _ = await lag_of(waiting)
    with pytest.raises(Misconfigured, match="is compacted"):
        await waiting.drop(0, end)
    await waiting.close()


async def test_a_topic_that_is_missing_is_not_made(kafka):
    waiting = TopicWaiting(parse(kafka.url("absent-3")), "shop", unpack=packs)
    for _ in range(2):
        with pytest.raises(Misconfigured, match="no topic absent-3"):
            await waiting.lag()
    await waiting.close()


def test_an_updater_s_rights_suffice_for_lag_and_the_right_that_a_purge_lacks_is_named(tmp_path, capsys):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    with KafkaServer(
        protocol="SASL_PLAINTEXT", users={"updater": "secret", "nobody": "secret"}, properties=ACLS
    ) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints", partitions=1))
        server.grant("updater", "Read", topic="hints", group="shop")
        server.grant("updater", "Write", topic="hints")

        def url_of(user):
            login = f"sasl=SCRAM-SHA-512&username={user}&password_file={secret}"
            return f"kafka://{server.bootstrap}/hints?{login}"

        run = on_a_queue(tmp_path, capsys)

        def queue(user, *words):
            return run(f"{url_of(user)}&group=shop", "queue", *words)

        assert queue("updater", "lag") == (0, "nothing waits in 1 partition\n", "")
        asyncio.run(send(parse(url_of("updater")), 0, encode_pack(TOUCH, 1, [b"banner:a"])))
        assert "1 pack in 1 of 1 partition" in queue("updater", "lag")[1]
        code, _, err = queue("updater", "purge", "--yes")
        assert code == 70
        assert "partition 0 was not purged" in err
        assert "allow Delete on the topic hints" in err
        code, _, err = queue("nobody", "lag")
        assert code == 78
        assert "may not see the topic hints" in err

        server.grant("updater", "Delete", topic="hints")
        code, out, _ = queue("updater", "purge", "--yes")
        assert code == 0
        assert "1 pack (1 of touches)" in out
        assert "nothing waits" in queue("updater", "lag")[1]
