"""Brokers that tests start: records survive what they survive in a real broker, and no broker outlives its users."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
import sys
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path
from threading import Barrier

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaConnectionError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)
from brokers.fixture import shared
from servers.certificates import Authority
from suite.ends import has_ended
from suite.pace import PATIENCE_S

from cacheupdater.local import kafka_jars, kafka_topics
from cacheupdater.local.kafka_properties import ACLS, QUICK_RETENTION, mutual_tls
from cacheupdater.local.kafka_server import KafkaServer

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "shop",
    "sasl_plain_password": "secret",
}
OWNER = """
import os, signal, sys
sys.modules["aiokafka"] = None  # an extra, and a server alone does not need it
from cacheupdater.local.kafka_server import KafkaServer
server = KafkaServer().start()
server.pause()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
USER = """
import pathlib, sys
from servers.certificates import Authority
from brokers.fixture import shared
with shared(pathlib.Path(sys.argv[1])) as kafka:
    print(kafka.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def light(monkeypatch, tmp_path):
    """Lets brokers be tansu where it is there, for what is the same for both, in other processes too: it starts in no time."""
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    if kafka_jars.tansu():
        monkeypatch.setenv("PATH", str(tmp_path))


@asynccontextmanager
async def started(client):
    try:
        await client.start()
        yield client
    finally:
        await client.stop()


async def produce(bootstrap, topic, *values, **how):
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **how)) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def records(bootstrap, topic, partitions=1, **how):
    """All records there are now, partition by partition."""
    async with started(AIOKafkaConsumer(bootstrap_servers=bootstrap, **how)) as consumer:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(wanted)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(wanted)
        read = {partition: [] for partition in wanted}
        while any([await consumer.position(partition) < ends[partition] for partition in wanted]):
            for partition, found in (await consumer.getmany(timeout_ms=100)).items():
                read[partition] += found
        return [record for found in read.values() for record in found]


async def values(bootstrap, topic, **how):
    return [record.value for record in await records(bootstrap, topic, **how)]


def ended(pid, within):
    deadline = time.monotonic() + within
    while not has_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def python(source, *arguments, **how):
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)


async def test_records_are_read_as_they_were_written(kafka, kafka_topic):
    await produce(kafka.bootstrap, kafka_topic, b"one", b"two")
    assert await values(kafka.bootstrap, kafka_topic) == [b"one", b"two"]


async def test_topics_are_made_to_measure_cut_and_widened(kafka, new_topic):
    topic = new_topic(partitions=1)
    await produce(kafka.bootstrap, topic, b"one", b"two", b"three")
    if kafka_jars.find().apache:  # tansu knows neither of these
        assert await kafka_topics.delete_records(kafka.bootstrap, topic, {0: 2}) == {0: 2}
        assert await values(kafka.bootstrap, topic) == [b"three"]
        await kafka_topics.add_partitions(kafka.bootstrap, topic, total=2)
        assert sorted(await kafka_topics.leaders(kafka.bootstrap, topic)) == [0, 1]
        assert await kafka_topics.delete_records(kafka.bootstrap, topic) == {0: 3, 1: 0}
    with pytest.raises(TopicAlreadyExistsError):
        await kafka_topics.create(kafka.bootstrap, topic)


async def test_topic_begins_anew_after_it_was_deleted(kafka, new_topic):
    topic = new_topic(partitions=1)
    await produce(kafka.bootstrap, topic, b"old")
    await kafka_topics.delete(kafka.bootstrap, topic)
    await kafka_topics.create(kafka.bootstrap, topic, partitions=1)
    await produce(kafka.bootstrap, topic, b"new")
    assert [(each.offset, each.value) for each in await records(kafka.bootstrap, topic)] == [(0, b"new")]


async def test_console_producer_writes_keys_and_empty_values(needs_apache, kafka, kafka_topic):
    properties = {"parse.key": "true", "key.separator": ":", "null.marker": "NULL"}
    kafka_jars.console_produce(kafka.bootstrap, kafka_topic, ["a:1", "b:NULL"], properties)
    read = await records(kafka.bootstrap, kafka_topic, partitions=3)
    assert sorted((each.key, each.value) for each in read) == [(b"a", b"1"), (b"b", None)]


@pytest.mark.prove
async def test_broker_comes_back_at_its_port_with_its_records(needs_apache, own_kafka):
    bootstrap = own_kafka.bootstrap
    await kafka_topics.create(bootstrap, "kept", partitions=1)
    await produce(bootstrap, "kept", b"one")
    own_kafka.restart()
    await produce(bootstrap, "kept", b"two")
    own_kafka.kill()
    with pytest.raises(KafkaConnectionError):
        await produce(bootstrap, "kept", b"lost")
    own_kafka.start()
    assert own_kafka.bootstrap == bootstrap
    assert await values(bootstrap, "kept") == [b"one", b"two"]


@pytest.mark.prove
def test_a_broker_s_folder_is_the_same_whether_kafkas_tool_has_made_it_or_we(
    needs_apache, monkeypatch, tmp_path
):
    kept, at_once, copied = tmp_path / "record", Barrier(3), shutil.copy

    def copy(source, target):
        copied(source, target)
        if target.parent == tmp_path:
            at_once.wait(PATIENCE_S)

    monkeypatch.setattr(kafka_jars, "first_record", lambda _: kept)
    monkeypatch.setattr(shutil, "copy", copy)
    by_the_tool, by_us = (folders_of_a_new_cluster() for _ in range(2))
    assert len(by_us) == 3
    assert [each[:2] for each in by_us] == [each[:2] for each in by_the_tool]
    assert {each[2] for each in by_us} == {kept.read_bytes()} <= {each[2] for each in by_the_tool}
    assert list(tmp_path.iterdir()) == [kept]


def folders_of_a_new_cluster():
    """Of each of three brokers: the files in its folder, the names of its properties, its first record."""
    with closing(KafkaServer(3)) as server:
        server._prepare()
        said = []
        for folder in (server._folder / str(number) for number in (1, 2, 3)):
            properties = (folder / "meta.properties").read_text().splitlines()
            names = sorted(line.partition("=")[0] for line in properties if not line.startswith("#"))
            files = sorted(each.name for each in folder.iterdir())
            said.append((files, names, (folder / "bootstrap.checkpoint").read_bytes()))
        return said


@pytest.mark.prove
async def test_frozen_broker_answers_nothing_until_it_goes_on(own_kafka):
    await kafka_topics.create(own_kafka.bootstrap, "cold", partitions=1)
    async with started(AIOKafkaProducer(bootstrap_servers=own_kafka.bootstrap)) as producer:
        own_kafka.pause()
        sent = asyncio.ensure_future(producer.send_and_wait("cold", b"late"))
        await asyncio.wait([sent], timeout=0.5)
        assert not sent.done()
        own_kafka.resume()
        await sent
    assert await values(own_kafka.bootstrap, "cold") == [b"late"]


@pytest.mark.prove
async def test_old_records_go_quickly_when_that_is_asked_for(needs_apache):
    with KafkaServer(properties=QUICK_RETENTION) as server:
        config = {"retention.ms": "100", "segment.ms": "100"}
        await kafka_topics.create(server.admin, "short", partitions=1, config=config)
        await produce(server.bootstrap, "short", b"old")
        async with asyncio.timeout(15):
            while await values(server.bootstrap, "short"):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.1)


@pytest.mark.prove
async def test_another_broker_leads_when_the_leader_dies(needs_apache):
    with KafkaServer(3) as server:
        await kafka_topics.create(server.admin, "led", partitions=1, replicas=3)
        await produce(server.bootstrap, "led", b"one")
        leader = (await kafka_topics.leaders(server.admin, "led"))[0]
        server.brokers[leader - 1].kill()
        rest = [broker for broker in server.brokers if broker.running]
        survivor = rest[0].bootstrap
        await produce(survivor, "led", b"two")
        assert await values(survivor, "led") == [b"one", b"two"]
        assert (await kafka_topics.leaders(survivor, "led"))[0] not in {leader, -1}


@pytest.mark.prove
async def test_logins_and_rights_are_asked_for_at_the_first_door_alone(needs_apache):
    with KafkaServer(protocol="SASL_PLAINTEXT", users={"shop": "secret"}, properties=ACLS) as server:
        await kafka_topics.create(server.admin, "allowed", partitions=1)
        await kafka_topics.create(server.admin, "closed", partitions=1)
        server.grant("shop", "Write", "Read", topic="allowed")
        await produce(server.bootstrap, "allowed", b"one", **LOGIN)
        assert await values(server.bootstrap, "allowed", **LOGIN) == [b"one"]
        with pytest.raises(TopicAuthorizationFailedError):
            await produce(server.bootstrap, "closed", b"no", **LOGIN)
        with pytest.raises(KafkaConnectionError):
            await produce(server.bootstrap, "allowed", b"no", **LOGIN | {"sasl_plain_password": "wrong"})


@pytest.mark.prove
async def test_clients_show_a_certificate_and_are_called_by_it(needs_apache, tmp_path):
    authority = Authority(tmp_path)
    tls = mutual_tls(authority.ca, *authority.vouch("broker"))
    context = ssl.create_default_context(cafile=authority.ca)
    how = {"security_protocol": "SSL", "ssl_context": context}
    with KafkaServer(protocol="SSL", properties=ACLS | tls) as server:
        await kafka_topics.create(server.admin, "allowed", partitions=1)
        server.grant("CN=shop", "Write", topic="allowed")
        with pytest.raises(KafkaConnectionError):
            await produce(server.bootstrap, "allowed", b"who am I?", **how)
        context.load_cert_chain(*authority.vouch("shop"))
        await produce(server.bootstrap, "allowed", b"one", **how)
        assert await values(server.admin, "allowed") == [b"one"]


async def test_tansu_stands_in_where_apache_kafka_cannot_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = kafka_jars.find.__wrapped__()
    if found.program is None:
        pytest.skip(f"no tansu: {found.why}")
    assert str(found) == f"{found.name}, because there is no Java"
    with pytest.raises(FileNotFoundError, match=r"needs Apache Kafka: there is no Java"):
        KafkaServer(3, found=found)
    with KafkaServer(found=found) as server:
        await kafka_topics.create(server.admin, "small", partitions=1)
        await produce(server.bootstrap, "small", b"one")
        assert await values(server.bootstrap, "small") == [b"one"]


def test_broker_ends_with_its_owner_even_when_that_is_killed(light):
    with python(OWNER) as owner:
        pid = int(owner.stdout.readline())
    assert ended(pid, 5)


def test_the_page_on_tests_starts_a_broker(light):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "test.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [program] = [text for text in programs if "kafka_server" in text]
    with python(program) as process:
        assert process.stdout.readline().startswith("127.0.0.1:")
    assert process.returncode == 0


def test_users_of_one_folder_share_one_broker_and_the_last_one_out_ends_it(light, tmp_path):
    with shared(tmp_path) as kafka:
        with python(USER, str(tmp_path), stdin=subprocess.PIPE) as first:
            assert int(first.stdout.readline()) == kafka.pid
            first.kill()  # a crash frees its place as well
        with python(USER, str(tmp_path), stdin=subprocess.PIPE) as second:
            assert int(second.stdout.readline()) == kafka.pid
        assert psutil.pid_exists(kafka.pid)
    assert ended(kafka.pid, 5)


def test_broker_outlives_the_user_who_started_it(light, tmp_path):
    with python(USER, str(tmp_path), stdin=subprocess.PIPE) as first:
        pid = int(first.stdout.readline())
        with shared(tmp_path) as kafka:
            first.kill()
            first.wait()
            assert kafka.pid == pid
            assert not ended(pid, 0.2)
    assert ended(pid, 5)


async def test_a_topic_is_made_once_the_broker_knows_its_controller(kafka, monkeypatch):
    """A broker that has just begun answers without one, and then a topic could not be made."""
    described, said = AIOKafkaAdminClient.describe_cluster, []

    async def describe(self):
        said.append(await described(self) if len(said) == 2 else {"controller_id": -1})
        return said[-1]

    monkeypatch.setattr(AIOKafkaAdminClient, "describe_cluster", describe)
    topic = f"controlled-{time.monotonic_ns()}"
    await kafka_topics.create(kafka.bootstrap, topic, partitions=1)
    assert [each["controller_id"] < 0 for each in said] == [True, True, False]
    monkeypatch.undo()
    await kafka_topics.delete(kafka.bootstrap, topic)
