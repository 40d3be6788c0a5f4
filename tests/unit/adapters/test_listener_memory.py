"""Hints that come from the updater's own process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cacheupdater.adapters import listener_memory
from cacheupdater.adapters.listener_memory import MemoryListener
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.errors import Misconfigured
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.mailbox import mailbox

HELLO = wire.Hello(2, [b"product:"])
SOON = 60.0  # s: whatever should happen has happened by then, on any machine


@pytest.fixture
def observer():
    return RecordingObserver()


@pytest.fixture
async def queue():
    queue = MemoryQueue(HELLO.partitions, packs_max=2)
    await anext(queue.assignments())
    yield queue
    await queue.close()


@pytest.fixture
async def listener(queue, observer, request):
    listener = MemoryListener(queue.put, queue.newcomer(), hello=HELLO, observer=observer)
    await listener.start(f"memory://{request.node.name}")
    yield listener
    await listener.close()


@pytest.fixture
def box(listener, request):
    return mailbox(request.node.name)


async def taken(queue, count, partition=0):
    """So many packs from the queue, committed as they come."""
    got = []
    while len(got) < count:
        async with asyncio.timeout(SOON):
            messages = await queue.fetch(partition, count - len(got))
        await queue.commit(partition, epoch=1, done=messages[-1].offset + 1)
        got += [message.payload for message in messages]
    return got


async def test_what_a_thread_puts_reaches_the_queue_in_order_through_a_full_queue(box, queue):
    packs = [b"%d" % n for n in range(500)]
    thread = threading.Thread(target=lambda: [box.put(0, pack) for pack in packs])
    thread.start()
    assert await taken(queue, len(packs)) == packs
    thread.join()


async def test_senders_learn_partitions_and_prefixes_while_it_is_open(box, listener):
    assert box.hello == HELLO
    await listener.close()
    assert box.hello is None
    assert not box.put(0, b"too late")


async def test_close_takes_what_was_accepted(box, listener, queue, observer):
    box.put(0, b"a")
    box.put(1, b"b")
    await listener.close()
    assert [queue.backlog(0), queue.backlog(1)] == [1, 1]
    assert observer.total("intake_rejected") == 0


async def test_close_is_bounded_and_counts_what_found_no_room(box, listener, queue, observer, monkeypatch):
    monkeypatch.setattr(listener_memory, "GRACE_S", 0.05)
    for n in range(5):
        box.put(0, b"%d" % n)
    async with asyncio.timeout(SOON):
        await listener.close()
    assert queue.backlog(0) == 2
    assert observer.total("intake_rejected", reason="closed") == 3


async def test_a_closed_queue_ends_it_and_counts_what_it_held(box, listener, queue, observer):
    await queue.close()
    box.put(0, b"a")
    await listener.close()
    assert observer.total("intake_rejected", reason="closed") == 1


async def test_a_frame_for_another_number_of_partitions_is_counted(box, queue, observer):
    box.put(7, b"lost")
    box.put(1, b"b")
    assert await taken(queue, 1, partition=1) == [b"b"]
    assert observer.total("intake_rejected", reason="partition_out_of_range") == 1


async def test_two_updaters_cannot_share_a_name(box, queue, observer, request):
    second = MemoryListener(queue.put, queue.newcomer(), hello=HELLO, observer=observer)
    with pytest.raises(Misconfigured, match="another updater of this process"):
        await second.start(f"memory://{request.node.name}")
    await second.close()
    assert box.hello == HELLO


async def test_another_kind_of_address_is_refused(queue, observer):
    with pytest.raises(Misconfigured, match="is not memory://name"):
        await MemoryListener(queue.put, queue.newcomer(), hello=HELLO, observer=observer).start("unix:///x")
