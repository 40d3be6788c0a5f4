"""What a recorder keeps of packs."""

from __future__ import annotations

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Namespace
from cacheupdater.recording.recorder import Recorder
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.patterns import Pattern

SOURCE = Source("main", Bucket(1.0, 1.0, now=0.0), concurrency=1)
PRODUCT, BASKET = (
    Namespace(name, Pattern.compile(f"{name}:{{id:int}}"), SOURCE) for name in ("product", "basket")
)


@pytest.fixture
def recorder():
    return Recorder(Keyspace([(each.pattern, each) for each in (PRODUCT, BASKET)]), most=100)


def test_touches_and_misses_are_reads_and_changes_are_not(recorder):
    recorder.offer(0, wire.encode_pack(wire.TOUCH, 0, [b"product:1", b"basket:1"], [3, 1]))
    recorder.offer(1, wire.encode_pack(wire.MISS, 0, [b"product:1"]))
    recorder.offer(1, wire.encode_pack(wire.CHANGE, 0, [b"product:1", b"product:2"]))
    assert recorder.reads == {PRODUCT: {b"product:1": 4}, BASKET: {b"basket:1": 1}}
    recorder.offer(1, wire.encode_pack(wire.SET, 0, [b"product:3"]))
    assert recorder.announced == {PRODUCT: 3}


async def test_what_is_nobodys_or_no_pack_is_counted(recorder):
    recorder.offer(0, wire.encode_pack(wire.TOUCH, 0, [b"stranger:1"]))
    await recorder.put(0, b"garbage")
    recorder.count("intake_rejected", 2, reason="garbage")
    assert (recorder.foreign, recorder.rejected, recorder.reads) == (1, 3, {})


def test_memory_is_bounded_and_the_least_read_make_way(recorder):
    recorder.offer(0, wire.encode_pack(wire.TOUCH, 0, [b"product:%d" % n for n in range(50)], [9] * 50))
    for first in range(0, 1000, 50):
        keys = [b"basket:%d" % n for n in range(first, first + 50)]
        recorder.offer(0, wire.encode_pack(wire.TOUCH, 0, keys))
        assert sum(map(len, recorder.reads.values())) <= 100
    assert len(recorder.reads[PRODUCT]) == 50
    assert recorder.dropped == 1050 - sum(map(len, recorder.reads.values()))
