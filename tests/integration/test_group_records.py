"""A topic that any producer may write to: bad records among good ones, and the plain records of foreign producers.

Bad records are counted by reason and skipped, and their neighbours are served. The group's cursor passes all of them.
"""

from __future__ import annotations

import json

import confluent_kafka
import msgspec
import pytest
from group.rows import Rows
from group.story import Group
from group.topic import Topic
from live.updater_process import eventually

from cacheupdater.local import kafka_jars, kafka_topics
from cacheupdater_client.protocol.wire import CHANGE, KEY_BYTES_MAX, MISS, PACK_BYTES_MAX, TOUCH, encode_pack

PARTITIONS = 3
RECORDS = 600
BAD_EVERY = 10
WITHIN_S = 30.0

_pack = msgspec.msgpack.encode
GOOD = encode_pack(MISS, 1, [b"item:99999"])
BAD = [
    ("garbage", b"\xc1 not a pack"),
    ("garbage", GOOD[:-3]),  # cut short
    ("garbage", json.dumps({"key": "item:1"}).encode()),  # another program's
    ("garbage", b"[1,2,3]"),
    ("garbage", _pack([1, 7, 1, [b"item:99999"], []])),  # a kind that there is not
    ("garbage", _pack([1, TOUCH, 1, [b"k" * (KEY_BYTES_MAX + 1)], []])),
    ("garbage", _pack([1, TOUCH, 1, [], []])),
    ("garbage", _pack([1, TOUCH, 1, [b"item:99999"], [1, 2]])),
    ("garbage", b""),  # no key and no value
    ("too_large", encode_pack(TOUCH, 1, [b"item:99999"] * 1000) + b"\0" * PACK_BYTES_MAX),
    ("unknown_version", _pack([2, "what we do not know yet"])),
    ("unknown_version", _pack([99, MISS, 1, [b"item:99999"], []])),
]


@pytest.fixture
def group(needs_apache, tmp_path, kafka, new_topic, pg_url, redis_url, updaters):
    topic = new_topic(partitions=PARTITIONS)
    return Group(
        tmp_path, updaters, queue=Topic(kafka.bootstrap, topic), rows=Rows(pg_url), redis_url=redis_url
    )


async def send(servers, topic, records):
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number, (key, value) in enumerate(records):
            await producer.send(topic, key=key, value=value, partition=number % PARTITIONS)


def served(plain, numbers):
    return lambda: None not in plain.mget([f"item:{n}" for n in numbers])


def test_one_bad_record_in_ten_is_counted_and_skipped_and_the_others_are_served(group, plain):
    (updater,) = group.start(1)
    records, good, bad = [], [], []
    for number in range(RECORDS):
        if number % BAD_EVERY == BAD_EVERY - 1:
            reason, value = BAD[len(bad) % len(BAD)]
            bad.append(reason)
            records.append((None, value))
        else:
            kind = (MISS, CHANGE, TOUCH)[number % 3]
            records.append((None, encode_pack(kind, 1, [b"item:%d" % number])))
            good.append(number)
    kafka_topics.done(send(group.queue.servers, group.queue.name, records))
    eventually(served(plain, good), WITHIN_S)
    group.rest()

    counted = {
        reason: updater.metric("intake_rejected_total", reason=reason)
        for reason in ("garbage", "too_large", "unknown_version", "other")
    }
    assert counted == {reason: bad.count(reason) for reason in counted}
    eventually(lambda: updater.metric("hints_total") == len(good))  # reported every second
    assert group.behind == 0
    assert updater.running


def test_plain_records_of_other_client_libraries_are_served_wherever_they_lie(group, plain):
    """By their own partitioner, which knows nothing of ours."""
    group.start(2)
    producer = confluent_kafka.Producer({"bootstrap.servers": group.queue.servers})
    for number in range(100):
        producer.produce(group.queue.name, key=f"item:{number}", value=b"" if number % 2 else None)
    assert producer.flush(WITHIN_S) == 0
    eventually(served(plain, range(100)), WITHIN_S)
    group.rest()
    assert group.metric("intake_rejected_total") == 0


@pytest.mark.prove
def test_what_kafkas_own_console_producer_types_is_served(needs_apache, group, plain):
    (updater,) = group.start(1)
    lines = [f"item:{number}|" for number in range(10)] + ["item:10|NULL", "no key and no pack"]
    kafka_jars.console_produce(
        group.queue.servers,
        group.queue.name,
        lines[:-1],
        {"parse.key": "true", "key.separator": "|", "null.marker": "NULL"},
    )
    kafka_jars.console_produce(group.queue.servers, group.queue.name, lines[-1:])
    eventually(served(plain, range(11)), WITHIN_S)
    eventually(lambda: updater.metric("intake_rejected_total", reason="garbage") == 1)
    group.rest()
