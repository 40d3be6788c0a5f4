"""Keys of a feed are safe once they are refreshed or removed; never before."""

from __future__ import annotations

import asyncio

from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.feeds import sinks
from cacheupdater.feeds.sinks import MemorySink
from cacheupdater.testing import virtual_loop
from cacheupdater_client.protocol.wire import CHANGE, decode_pack, partition_of

KEYS = {b"product:%d" % n: 1_000_000 + n for n in range(1200)}


def test_a_memory_queue_s_keys_are_safe_once_all_their_packs_are_finished():
    async def story():
        queue = MemoryQueue(3)
        sink = MemorySink(queue, 3)
        safe = await sink.put(KEYS)
        other = await sink.put({b"product:5000": 1})
        found, open_packs = {}, []
        for partition in range(3):
            for message in await queue.fetch(partition, 100):
                pack = decode_pack(message.payload)
                assert pack.kind == CHANGE
                assert len(pack.keys) <= sinks.PACK_KEYS
                assert {partition_of(key, 3) for key in pack.keys} == {partition}
                found.update(zip(pack.keys, pack.tokens, strict=True))
                open_packs.append((partition, message.offset))
        assert found == {**KEYS, b"product:5000": 1}
        for partition, offset in reversed(open_packs):
            assert not (safe() and other())
            await queue.commit(partition, epoch=0, done=0, finished=[offset])
        assert safe()
        assert other()

    virtual_loop.run(story())


def test_packs_that_come_again_after_a_hand_over_are_safe_once_they_are_finished():
    async def story():
        queue = MemoryQueue(1)
        sink = MemorySink(queue, 1)
        safe = await sink.put({b"product:1": 1})
        changes = queue.assignments()
        [gained] = (await anext(changes)).gained
        assert len(await queue.fetch(0, 10)) == 1
        queue.reassign([0])
        (await anext(changes)).settled()
        [again] = (await anext(changes)).gained
        await queue.commit(0, epoch=gained.epoch, done=1)
        assert not safe()
        [message] = await queue.fetch(0, 10)
        await queue.commit(0, epoch=again.epoch, done=message.offset + 1)
        assert safe()

    virtual_loop.run(story())


def test_a_flood_waits_for_room_and_leaves_some_to_clients():
    async def story():
        queue = MemoryQueue(1, undone_max=18)
        sink = MemorySink(queue, 1)
        putting = asyncio.ensure_future(sink.put({b"product:%d" % n: 1 for n in range(10_000)}))
        await asyncio.sleep(1.0)
        assert not putting.done()
        assert queue.offer(0, b"\x95\x01\x00", queue.newcomer("client"))
        putting.cancel()

    virtual_loop.run(story())
