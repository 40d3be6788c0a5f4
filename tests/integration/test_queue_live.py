"""`cacheupdater queue lag` and `purge` as an operator uses them, on each shared queue: with no updater, and beside one that is held up."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiokafka import AIOKafkaProducer
from depots.files import freeze
from live.updater_process import config, eventually

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.cli import main
from cacheupdater.core import depot_url
from cacheupdater.pipeline.untold import UNTOLD
from cacheupdater_client.protocol import broker, streams
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack, partition_of

# the commands run in this process: their answers are judged, not their times
pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("patient"),
]

PARTITIONS = 3
SESSION_S = 120.0  # an updater that is held up keeps its partitions, however slow the commands are beside it
LOAD = {"source": "main", "python": "live.bad_rows:rows"}
KEYS = [b"item:%d" % number for number in range(40)]
CHANGED, READ = KEYS[:20], KEYS[20:]


@pytest.fixture(
    params=[
        "streams",
        *(pytest.param(each, marks=pytest.mark.prove) for each in ("sqlite", "postgresql")),
        "kafka",
    ]
)
def url(request, tmp_path):
    if request.param == "streams":
        return f"{request.getfixturevalue('redis_url')}?stream=hints&partitions={PARTITIONS}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hints.db?partitions={PARTITIONS}"
    if request.param == "kafka":
        request.getfixturevalue("needs_apache")
        kafka, topic = request.getfixturevalue("kafka"), request.getfixturevalue("kafka_topic")
        return kafka.url(topic, f"?group={topic}")  # a group for each test: killed members stay for a session
    base = request.getfixturevalue("pg_url")
    return f"{base}{'&' if '?' in base else '?'}partitions={PARTITIONS}"


@pytest.fixture
def settings(redis_url, url):
    items = {"item": {"key": "item:{id:int}", "load": LOAD}}
    said = config(redis_url, {"main": {"budget": "1000/s"}}, items, every="200ms")
    return said | {"queue": {"url": f"{url}&session_timeout={SESSION_S:g}s"}, "listen": None}


def hint(url, kind, keys):
    """Puts a pack of this kind for each key, as a producer in any language may."""
    packs = [
        (partition_of(key, PARTITIONS), encode_pack(kind, time.time_ns() // 1_000_000, [key])) for key in keys
    ]
    asyncio.run(_sent(url, packs) if url.startswith("kafka") else _put(url, packs))


async def _sent(url, packs):
    address = broker.parse(url, options=("group",))
    async with AIOKafkaProducer(**broker.connection(address)) as producer:
        for partition, pack in packs:
            await producer.send(address.topic, pack, partition=partition)
        await producer.flush()


async def _put(url, packs):
    if "stream=" in url:
        depot = RedisDepot(streams.parse(url), observer=UNTOLD, notices=UNTOLD)
    else:
        depot = depot_at(depot_url.parse(url))
    await depot.open()
    await depot.put(packs)
    await depot.close()


@pytest.fixture
def queue(updaters, settings, capsys):
    """Runs the command with the updaters' file."""
    file = updaters.make(settings).file

    def queue(*arguments):
        code = main(["queue", arguments[0], "-c", str(file), *arguments[1:]])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return queue


def waiting(queue):
    return [each["packs"] for each in json.loads(queue("lag", "-o", "json")[1])]


def fill(url, plain):
    """Misses, again and again: a miss within the gap after a refresh is declined."""
    eventually(lambda: None not in plain.mget(KEYS) or hint(url, MISS, KEYS), every=0.5)


def test_what_nobody_has_refreshed_is_seen_and_purged_and_no_reader_keeps_an_old_value(
    url, settings, updaters, queue, plain
):
    updater = updaters.make(settings).start()
    fill(url, plain)
    eventually(lambda: sum(waiting(queue)) == 0, every=0.2)  # the last round of misses too
    updater.terminate()
    assert updater.wait() == 0
    assert sum(waiting(queue)) == 0

    hint(url, CHANGE, CHANGED)
    hint(url, TOUCH, READ)
    code, out, _ = queue("lag")
    assert code == 0
    assert f"{len(KEYS)} packs in {PARTITIONS} of {PARTITIONS} partitions" in out

    code, out, err = queue("purge", "--yes")
    assert code == 0
    assert "not purged" not in err  # a slow purge tells its progress there
    assert "purged 3 partitions: 40 packs (20 of changes, 20 of touches)" in out
    assert "20 removals of changed keys" in out
    assert not any(plain.mget(CHANGED))
    assert all(plain.mget(READ))
    assert queue("lag") == (0, f"nothing waits in {PARTITIONS} partitions\n", "")

    heir = updaters.make(settings).start()
    hint(url, MISS, CHANGED[:1])
    eventually(lambda: plain.get(CHANGED[0]))
    assert heir.metric("hints_total") == 1
    assert heir.metric("lost_packs_total") == 0


def test_a_purge_beside_a_living_updater_takes_nothing_from_it(url, settings, updaters, queue, plain):
    updater = updaters.make(settings).start()
    fill(url, plain)
    eventually(lambda: sum(waiting(queue)) == 0, every=0.2)
    rebalances = updater.metric("rebalances_total")
    assert rebalances > 0
    freeze(url, updater.pause, updater.resume)
    try:
        hint(url, CHANGE, CHANGED)
        assert sum(waiting(queue)) == len(CHANGED)
        owners = {each["owner"] for each in json.loads(queue("lag", "-o", "json")[1])}
        assert len(owners) == 1
        assert None not in owners
        assert queue("purge", "--yes")[0] == 0
        assert not any(plain.mget(CHANGED))
    finally:
        updater.resume()
    eventually(lambda: None not in plain.mget(CHANGED) or hint(url, MISS, CHANGED), every=0.5)
    eventually(lambda: sum(waiting(queue)) == 0, every=0.2)
    assert updater.metric("rebalances_total") == rebalances
