"""The topic as an operator meets it: `topic create` makes it, and faults of a topic are reported with the party to fix them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from suite.commands import on_a_queue

from cacheupdater.adapters import topic_kafka
from cacheupdater.adapters.topic_kafka.owners import owner_of
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_properties import ACLS
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater_client.protocol.broker import connection, parse

pytestmark = pytest.mark.usefixtures("needs_apache")

USERS = ("nobody", "seer", "reader", "updater", "application", "maker")


@pytest.fixture(scope="module")
def guarded():
    """A broker with rights: what each user may is in its name."""
    with KafkaServer(
        protocol="SASL_PLAINTEXT", users=dict.fromkeys(USERS, "secret"), properties=ACLS
    ) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints", partitions=2))
        server.grant("seer", "Describe", topic="hints")
        server.grant("reader", "Read", topic="hints")
        server.grant("updater", "Read", topic="hints", group="shop")
        server.grant("application", "Write", topic="hints")
        server.grant("maker", "Create", "Describe", topic="new")
        yield server


@pytest.fixture
def guarded_url(guarded, tmp_path):
    def url(user="updater", *, topic="hints", secret="secret", sasl="SCRAM-SHA-512"):
        file = tmp_path / "password"
        file.write_text(f"{secret}\n")
        return f"kafka://{guarded.bootstrap}/{topic}?sasl={sasl}&username={user}&password_file={file}"

    return url


@pytest.fixture
def create(tmp_path, capsys):
    run = on_a_queue(tmp_path, capsys)
    return lambda url, *options: run(url, "topic", "create", *options)


async def seen(url, group="shop"):
    return await topic_kafka.inspect(parse(url), group)


def about(said, what):
    """Whether exactly one line says so."""
    return [what in each for each in said].count(True) == 1


async def test_missing_topic_says_which_command_makes_it(kafka):
    with pytest.raises(Misconfigured, match=r"no topic absent-1: `cacheupdater topic create` makes it"):
        await seen(kafka.url("absent-1"))


def test_a_new_topic_suits_hints_and_is_left_alone_the_next_time(kafka, create):
    url = kafka.url("made-1")
    try:
        assert create(url) == (0, "made: made-1, 12 partitions, 1 replica, kept 6h\n", "")
        topic = asyncio.run(seen(url))
        assert (topic.wrong, topic.away, topic.notes) == ([], [], [])
        assert create(url) == (0, "left as it is: made-1, 12 partitions, 1 replica, kept 6h\n", "")
        assert create(url, "--partitions", "12", "--retention", "360m")[0] == 0
    finally:
        kafka_topics.done(kafka_topics.delete(kafka.bootstrap, "made-1"))


def test_numbers_that_were_asked_for_are_those_of_the_topic(kafka, create):
    try:
        said = create(kafka.url("made-2"), "--partitions", "5", "--replication", "1", "--retention", "90m")
        assert said == (0, "made: made-2, 5 partitions, 1 replica, kept 90m\n", "")
    finally:
        kafka_topics.done(kafka_topics.delete(kafka.bootstrap, "made-2"))


def test_an_existing_topic_that_is_not_as_asked_ends_with_78_and_stays(kafka, new_topic, create):
    topic = new_topic(partitions=3, config={"retention.ms": "3600000"})
    code, out, err = create(kafka.url(topic), "--partitions", "12", "--retention", "6h")
    assert (code, out) == (78, f"left as it is: {topic}, 3 partitions, 1 replica, kept 1h\n")
    assert err.splitlines() == [
        "cacheupdater: partitions is 3, and not 12 as requested",
        "cacheupdater: retention is 1h, and not 6h as requested",
    ]
    assert create(kafka.url(topic))[0] == 0


def test_a_compacted_topic_is_not_taken_for_one_that_suits(kafka, new_topic, create):
    topic = new_topic(config={"cleanup.policy": "compact", "max.message.bytes": "100000"})
    code, _, err = create(kafka.url(topic))
    assert code == 78
    assert "cleanup.policy is compact" in err
    assert "max.message.bytes is 100000" in err


def test_more_replicas_than_brokers_are_refused_in_the_brokers_words(kafka, create):
    code, out, err = create(kafka.url("made-3"), "--replication", "3")
    assert (code, out) == (78, "")
    assert "the brokers refuse the topic made-3" in err
    assert "only 1 broker" in err


async def test_what_loses_hints_is_wrong_and_what_helps_nobody_is_a_note(kafka, new_topic):
    topic = await seen(
        kafka.url(new_topic(config={"cleanup.policy": "compact,delete", "retention.ms": "604800000"}))
    )
    assert about(topic.wrong, "cleanup.policy")
    assert about(topic.notes, "168h")
    assert not topic.away


async def test_a_server_of_several_that_is_down_is_a_note(kafka, kafka_topic):
    topic = await seen(f"kafka://127.0.0.1:1,{kafka.bootstrap}/{kafka_topic}")
    assert topic.wrong == topic.away == []
    assert about(topic.notes, "nobody answers at 127.0.0.1:1")


async def test_looking_leaves_no_trace(kafka, kafka_topic):
    await seen(kafka.url(kafka_topic), group="untouched")
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        assert not [group for group, *_ in await admin.list_consumer_groups() if group == "untouched"]
    finally:
        await admin.close()


@pytest.mark.prove
async def test_several_brokers_decide_on_copies_and_a_dead_one_is_seen():
    with KafkaServer(3, properties={"auto.create.topics.enable": "true"}) as server:
        url = f"kafka://{server.bootstrap}/hints"
        with pytest.raises(Misconfigured, match="no topic hints"):
            await seen(url)
        with pytest.raises(Misconfigured, match="no topic hints"):  # asking has not made it
            await seen(url)
        made = await topic_kafka.create(parse(url))
        assert (made.created, made.topic.partitions, made.topic.replicas) == (True, 12, 3)
        await kafka_topics.create(server.admin, "single", partitions=6, replicas=1)
        [alone] = await until_seen(server, "single", so=lambda alone: not alone.away)
        assert about(alone.notes, "it has one replica")
        server.brokers[2].kill()
        # the controller notices after two seconds that a broker is gone
        alone, copied = await until_seen(
            server, "single", "hints", so=lambda one, other: about(one.away, "no leader") and not other.away
        )
        assert about(alone.away, "2 of 6 partitions have no leader")
        assert about(copied.notes, "12 of 12 partitions have replicas that lag")


async def until_seen(server, *topics, so):
    """The topics as they are when all brokers know of them, and of what has happened."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(Misconfigured):  # a broker that has not heard of a new topic
                found = [await seen(f"kafka://{server.bootstrap}/{topic}") for topic in topics]
                if so(*found):
                    return found
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("nobody", "may not see the topic hints, whether it exists or not: allow Read and Describe"),
        ("seer", "may not read the topic hints: allow Read on it"),
        ("reader", "may not join the group shop: allow Read on the group"),
    ],
)
async def test_a_right_that_is_missing_is_named(guarded_url, user, why):
    try:
        topic = await seen(guarded_url(user))
    except Misconfigured as e:
        assert why in str(e)  # noqa: PT017  some are seen before there is a topic to speak of
    else:
        assert about(topic.wrong, why)
        assert topic.away == []


async def test_the_rights_of_the_how_to_suffice_to_write_read_and_commit(guarded_url):
    async with AIOKafkaProducer(**connection(parse(guarded_url("application")))) as producer:
        await producer.send_and_wait("hints", b"pack", partition=1)
    how = connection(parse(guarded_url("updater"))) | {"enable_auto_commit": False}
    async with AIOKafkaConsumer("hints", group_id="shop", auto_offset_reset="earliest", **how) as consumer:
        assert (await consumer.getone()).value == b"pack"
        await consumer.commit()


async def test_who_may_only_read_and_join_is_well_and_sees_no_settings(guarded_url):
    topic = await seen(guarded_url())
    assert (topic.wrong, topic.away, str(topic)) == ([], [], "2 partitions, 1 replica")
    assert about(topic.notes, "needs DescribeConfigs")


def test_who_may_not_make_topics_is_told_so(guarded_url, create):
    assert create(guarded_url("maker", topic="new"))[0] == 0
    code, _, err = create(guarded_url("seer", topic="other"))
    assert code == 78
    assert "may not" in err


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"secret": "wrong"}, "refuses the login: the username or password is not right"),
        ({"user": "stranger"}, "refuses the login"),
        ({"secret": "wrong", "sasl": "SCRAM-SHA-256"}, "sasl=SCRAM-SHA-256"),
    ],
)
async def test_a_login_that_fails_is_no_silence(guarded_url, how, why):
    with pytest.raises(Misconfigured, match=why):
        await seen(guarded_url(**how))


async def test_a_login_that_is_missing_unknown_or_too_much_is_told(guarded, kafka, guarded_url, tmp_path):
    with pytest.raises(Misconfigured, match="they want a login"):
        await seen(f"kafka://{guarded.bootstrap}/hints")
    token = tmp_path / "token"
    token.write_text("x")
    with pytest.raises(Misconfigured, match="knows no login by sasl=OAUTHBEARER"):
        await seen(f"kafka://{guarded.bootstrap}/hints?sasl=OAUTHBEARER&token_file={token}")
    with pytest.raises(Misconfigured, match="wants no login on this port"):
        await seen(guarded_url().replace(guarded.bootstrap, kafka.bootstrap))


async def test_tls_where_there_is_none_is_told(kafka):
    with pytest.raises(Misconfigured, match="is this the port for TLS"):
        await seen(kafka.url("hints", "?tls=true"))


async def test_silence_is_told_apart_by_its_kind(own_kafka, monkeypatch):
    with pytest.raises(Unavailable, match=r"nobody answers at 127\.0\.0\.1:1 .*is the broker running"):
        await seen("kafka://127.0.0.1:1/hints")
    with pytest.raises(Unavailable, match="cannot be resolved from here"):
        await seen("kafka://cacheupdater.invalid:9092/hints")
    own_kafka.pause()
    monkeypatch.setattr(topic_kafka.cluster, "REACH_S", 0.5)
    with pytest.raises(Unavailable, match=r"did not answer within 0\.5 s"):
        await seen(f"kafka://{own_kafka.bootstrap}/hints")
    own_kafka.resume()


async def test_a_broker_that_names_an_address_for_others_is_told():
    elsewhere = {"advertised.listeners": "CLIENT://127.0.0.1:1,ADMIN://127.0.0.1:1"}
    with (
        KafkaServer(properties=elsewhere) as server,
        pytest.raises(Unavailable, match=r"127\.0\.0\.1:1, which .* advertised\.listeners"),
    ):
        await seen(f"kafka://{server.bootstrap}/hints")


async def test_the_member_that_has_a_partition_is_named(guarded_url):
    address = parse(guarded_url())
    consumer = AIOKafkaConsumer(
        "hints", group_id="shop", **connection(address) | {"client_id": "updater-on-duty"}
    )
    await consumer.start()
    try:
        while not consumer.assignment():  # noqa: ASYNC110  the group is told of by nobody
            await asyncio.sleep(0.05)
        assert "updater-on-duty" in await owner_of(address, "shop", 1)
        assert await owner_of(address, "shop", 99) is None
    finally:
        await consumer.stop()
