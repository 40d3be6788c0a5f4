"""A stranger writes into a topic: a real updater on a real Kafka skips his records and commits past them, in bounded memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("aiokafka")

import redis
from brokers import batches as made
from live.updater_process import config, eventually

from cacheupdater.local.kafka_topics import done
from cacheupdater_client.protocol import wire

pytestmark = pytest.mark.usefixtures("needs_apache")

MIB = 1024 * 1024
GIB = 1024 * MIB
# What an updater that reads the worst may take beyond what it took before: the body of a batch and what is made of it,
# a fetch, and what was never given back to the system.
GROWTH_MIB = 48


def memory(pid, what):
    """MiB."""
    said = Path(f"/proc/{pid}/status").read_text()
    return int(said.split(what + ":")[1].split()[0]) / 1024


def miss(slot):
    now = int(time.time() * 1000)  # noqa: TID251  the updater compares it with its own clock
    pack = wire.encode_pack(wire.MISS, now, [b"banner:%s" % slot])
    return made.of([made.record(0, pack)], "zstd")


def bombs():
    """Kind, how many records it stands for, and the batch. Sent one by one: the largest is 1 GiB in the sender."""
    yield "zstd", 1, made.of([made.record(0, bytes(GIB))], "zstd")
    block = bytes(MIB)
    for codec in ("gzip", "lz4", "zstd"):
        yield f"{codec}, many", 100, made.of([made.record(n, block) for n in range(100)], codec)
    body = made.record(0, b"x", headers=[(b"", None)] * MIB)
    yield "headers", 1, made.batch(made.compressed(body, "zstd"), codec="zstd")
    rows = [made.record(n, b"") for n in range(400_000)]
    yield "many records", len(rows), made.of(rows, "zstd")


@pytest.mark.prove
@pytest.mark.timeout(400)
def test_bombs_are_passed_over_and_the_next_owner_does_not_meet_them(kafka, new_topic, redis_url, updaters):
    topic = new_topic(partitions=1)
    sources, namespaces = (
        {"code": {"budget": "500/s"}},
        {"banner": {"key": "banner:{slot}", "load": {"source": "code", "python": "live.loaders:banners"}}},
    )
    settings = config(redis_url, sources, namespaces)
    url = f"kafka://{kafka.bootstrap}/{topic}?group={topic}&session_timeout=6s"
    updater = updaters.start({**settings, "queue": {"url": url}, "listen": None})
    before, sent = memory(updater.pid, "VmRSS"), 0
    with redis.Redis.from_url(redis_url) as plain:
        for kind, records, batch in bombs():
            assert len(batch) < MIB, kind
            slot = kind.replace(" ", "-").encode()
            assert done(made.produce(kafka.bootstrap, topic, [batch, miss(slot)])) == [0, 0], kind
            sent += records + 1
            eventually(lambda slot=slot: plain.get(b"banner:%s" % slot), within=120.0)
        eventually(lambda: updater.metric("done_offset") == sent)
        assert updater.metric("skipped_batches_total", reason="too_large") == 4
        grown = memory(updater.pid, "VmHWM") - before
        print(f"grown by {grown:.0f} MiB from {before:.0f}")
        assert grown < GROWTH_MIB
        assert any("passed over" in message for message in updater.messages)
        pid = updater.pid
        updater.terminate()
        assert updater.wait() == 0
        updater.start()
        assert updater.pid != pid
        done(made.produce(kafka.bootstrap, topic, [miss(b"heir")]))
        eventually(lambda: plain.get(b"banner:heir"), within=60.0)
        assert updater.metric("skipped_batches_total") == 0
