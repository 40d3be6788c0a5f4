"""The contract of every queue with the partitions that read from it.

A world stands for one queue technology: it sends packs in, takes partitions away and gives them back. To test another
adapter, or a fake, add its world to `WORLDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.core import depot_url
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack

PARTITIONS = 3
SOON = 60.0  # s: on any machine, expected events have happened by then
QUIET = 0.02  # s: long enough for a loop to finish all that it had begun


class MemoryWorld:
    """The queue of one process."""

    never = QUIET  # s: an event that has not happened by then never will

    def __init__(self):
        self.queue = MemoryQueue(PARTITIONS)

    async def start(self):
        return self

    async def send(self, partition, payload):
        await self.queue.put(partition, payload)

    async def move(self, partitions):
        self.queue.reassign(partitions)

    async def close(self):
        await self.queue.close()


class Untroubled:
    """`ports.Troubles` of a queue that must not meet any."""

    def trouble(self, event, subject, text):
        raise AssertionError(f"{event} {subject}: {text}")

    def over(self, event, subject):
        """None has begun."""


class DepotWorld:
    """The queue on a depot. `make` opens one more connection to it: for the queue, and for the sender."""

    never = 5 * QUIET  # s: what is put is read within a few pauses of `reading.GATHER`

    def __init__(self, make):
        self.make = make

    async def start(self):
        self.sender = self.make()
        await self.sender.open()
        self.queue = DepotQueue(self.make(), session=SOON, observer=RecordingObserver(), notices=Untroubled())
        await self.queue.start()
        return self

    async def send(self, partition, payload):
        await self.sender.put([(partition, payload)])

    async def move(self, partitions):
        self.queue.reassign(partitions)

    async def close(self):
        await self.queue.close()
        await self.sender.close()


@pytest.fixture
def memory_world():
    return MemoryWorld


@pytest.fixture
def memory_depot_world():
    tables = MemoryTables(PARTITIONS, time.monotonic)
    return lambda: DepotWorld(lambda: MemoryDepot(tables))


@pytest.fixture
def redis_depot_world(redis_url, patient):
    address = streams.parse(f"{redis_url}?stream=hints&partitions={PARTITIONS}")
    return lambda: DepotWorld(lambda: RedisDepot(address, observer=RecordingObserver(), notices=Untroubled()))


@pytest.fixture
def sqlite_depot_world(tmp_path, patient):
    address = depot_url.parse(f"sqlite:///{tmp_path}/hints.db?partitions={PARTITIONS}")
    return lambda: DepotWorld(lambda: depot_at(address))


@pytest.fixture
def postgres_depot_world(pg_url, patient):
    address = depot_url.parse(f"{pg_url}{'&' if '?' in pg_url else '?'}partitions={PARTITIONS}")
    return lambda: DepotWorld(lambda: depot_at(address))


@pytest.fixture
def kafka_world(kafka, new_topic):
    from brokers.world import KafkaWorld

    return lambda: KafkaWorld(kafka, new_topic, partitions=PARTITIONS)


WORLDS = [
    pytest.param("memory_world", id="memory"),
    pytest.param("kafka_world", id="kafka"),
    pytest.param("memory_depot_world", id="memory depot"),
    pytest.param("redis_depot_world", id="redis depot"),
    pytest.param("sqlite_depot_world", id="sqlite depot"),
    pytest.param("postgres_depot_world", id="postgres depot"),
]


@pytest.fixture(params=WORLDS)
def make_world(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def world(make_world):
    world = await make_world().start()
    yield world
    await world.close()


async def soon(awaitable):
    async with asyncio.timeout(SOON):
        return await awaitable


async def gain(assignments):
    """The next assignment's gains by partition."""
    assignment = await soon(anext(assignments))
    assert not assignment.lost
    return {gained.partition: gained for gained in assignment.gained}


async def move(world, assignments, partitions):
    """Loses these partitions, settles, and gains them again, maybe as another owner would. Others may move with them."""
    await world.move(partitions)
    lost = await soon(anext(assignments))
    assert set(lost.lost) >= set(partitions)
    lost.settled()
    gained = await gain(assignments)
    assert set(gained) == set(lost.lost)
    return gained


async def send(world, partition, *payloads):
    for payload in payloads:
        await world.send(partition, payload)


async def take(world, partition, count):
    """The next `count` messages, in as many fetches as needed."""
    got = []
    while len(got) < count:
        got += await soon(world.queue.fetch(partition, count - len(got)))
    return got


def payloads(messages):
    return [message.payload for message in messages]


async def test_assignments_gains_every_partition_when_alone(world):
    gained = await gain(world.queue.assignments())
    assert set(gained) == set(range(PARTITIONS))
    await send(world, 1, b"the first")
    (message,) = await take(world, 1, 1)
    assert gained[1].offset <= message.offset, "offsets may have gaps"


async def test_fetch_gives_packs_in_order_of_arrival_and_at_most_limit(world):
    await gain(world.queue.assignments())
    await send(world, 1, b"a", b"b", b"c")
    first = await take(world, 1, 1)
    await asyncio.sleep(world.never)
    second = await soon(world.queue.fetch(1, 1))
    third = await soon(world.queue.fetch(1, 2))
    assert payloads(first) == [b"a"]
    assert payloads(second) == [b"b"]
    assert payloads(third) == [b"c"]
    offsets = [message.offset for message in (*first, *second, *third)]
    assert offsets == sorted(set(offsets))


async def test_fetch_waits_for_the_first_pack_of_its_own_partition(world):
    await gain(world.queue.assignments())
    fetching = asyncio.ensure_future(world.queue.fetch(1, 10))
    await send(world, 0, b"another partition")
    await asyncio.sleep(world.never)
    assert not fetching.done()
    await send(world, 1, b"mine")
    assert payloads(await soon(fetching)) == [b"mine"]


async def test_fetch_loses_nothing_when_cancelled_at_any_moment(world):
    await gain(world.queue.assignments())
    rng, got, sent = random.Random(7), [], [b"%d" % n for n in range(300)]
    sending = asyncio.ensure_future(send_slowly(world, sent, rng))
    while len(got) < len(sent):
        fetching = asyncio.ensure_future(world.queue.fetch(0, 3))
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if not sending.done():
            fetching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            got += payloads(await soon(fetching))
    assert got == sent


async def send_slowly(world, sent, rng):
    for payload in sent:
        await world.send(0, payload)
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)


async def test_what_is_not_done_comes_again_when_the_partition_moves(world):
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[1].epoch
    await send(world, 1, b"done", b"fetched", b"unread")
    fetched = await take(world, 1, 2)
    await world.queue.commit(1, epoch=epoch, done=fetched[1].offset)
    gained = (await move(world, assignments, [1]))[1]
    assert gained.offset == fetched[1].offset
    assert gained.epoch > epoch
    again = await take(world, 1, 2)
    assert payloads(again) == [b"fetched", b"unread"]
    assert again[0].offset == fetched[1].offset


async def test_commit_counts_while_the_lost_partition_is_handed_over(world):
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[2].epoch
    await send(world, 2, b"a")
    (message,) = await soon(world.queue.fetch(2, 10))
    await world.move([2])
    lost = await soon(anext(assignments))
    await world.queue.commit(2, epoch=epoch, done=message.offset + 1)
    lost.settled()
    assert (await gain(assignments))[2].offset == message.offset + 1


async def test_commit_of_an_older_epoch_changes_nothing(world):
    assignments = world.queue.assignments()
    old = (await gain(assignments))[0].epoch
    await send(world, 0, b"a")
    await soon(world.queue.fetch(0, 1))
    await move(world, assignments, [0])
    (message,) = await soon(world.queue.fetch(0, 1))
    await world.queue.commit(0, epoch=old, done=message.offset + 1)
    assert (await move(world, assignments, [0]))[0].offset <= message.offset


async def test_commit_never_moves_back(world):
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[0].epoch
    await send(world, 0, b"a", b"b")
    first, second = await take(world, 0, 2)
    await world.queue.commit(0, epoch=epoch, done=second.offset + 1)
    await world.queue.commit(0, epoch=epoch, done=first.offset + 1)
    assert (await move(world, assignments, [0]))[0].offset == second.offset + 1


async def test_what_was_finished_out_of_order_may_come_again_and_all_else_does(world):
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[1].epoch
    await send(world, 1, b"a", b"b", b"c", b"d")
    first, second, third, _ = await take(world, 1, 4)
    await world.queue.commit(1, epoch=epoch, done=first.offset, finished=[third.offset])
    await world.queue.commit(1, epoch=epoch, done=first.offset, finished=[second.offset])
    gained = (await move(world, assignments, [1]))[1]
    assert gained.offset == first.offset
    await send(world, 1, b"e")
    got = []
    while b"e" not in got:
        got += payloads(await soon(world.queue.fetch(1, 9)))
    assert [each for each in got if each not in {b"b", b"c"}] == [b"a", b"d", b"e"]


async def test_what_an_older_epoch_has_finished_comes_again(world):
    assignments = world.queue.assignments()
    old = (await gain(assignments))[0].epoch
    await send(world, 0, b"a", b"b")
    first, second = await take(world, 0, 2)
    await move(world, assignments, [0])
    await world.queue.commit(0, epoch=old, done=first.offset, finished=[second.offset])
    assert payloads(await take(world, 0, 2)) == [b"a", b"b"]


async def test_of_urgent_packs_and_touches_each_comes_again_that_is_not_finished_and_no_other(world):
    """Whatever order the queue gives them: in that order they are committed."""
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[1].epoch
    packs = [encode_pack(kind, 1, [b"%d" % n]) for n in range(4) for kind in (TOUCH, CHANGE, MISS)]
    await send(world, 1, *packs)
    fetched = await take(world, 1, 9)
    rising = [message.offset for message in fetched]
    assert rising == sorted(set(rising))
    kept = [each for number, each in enumerate(fetched) if number in {2, 5, 8}]
    finished = [each.offset for each in fetched[3:] if each not in kept]
    await world.queue.commit(1, epoch=epoch, done=kept[0].offset, finished=finished)
    gained = (await move(world, assignments, [1]))[1]
    left = set(packs) - {each.payload for each in fetched if each not in kept}
    again, lasting = set(), (await take(world, 1, 1))
    while again | {each.payload for each in lasting} < left:
        again |= {each.payload for each in lasting}
        lasting = await soon(world.queue.fetch(1, 9))
    again |= {each.payload for each in lasting}
    assert left <= again <= set(packs) - {each.payload for each in fetched[:2]}
    if isinstance(world, DepotWorld):
        assert again == left
    await world.queue.commit(1, epoch=gained.epoch, done=lasting[-1].offset + 1)


async def test_other_partitions_keep_their_place_when_one_moves(world):
    assignments = world.queue.assignments()
    epoch = (await gain(assignments))[1].epoch
    await send(world, 1, b"a", b"b")
    first = await soon(world.queue.fetch(1, 1))
    await world.queue.commit(1, epoch=epoch, done=first[0].offset + 1)
    moved = await move(world, assignments, [0])
    again = moved.get(1)  # a queue that takes a partition may take all
    assert again is None or (again.offset == first[0].offset + 1 and again.epoch > epoch)
    (second,) = await soon(world.queue.fetch(1, 1))
    assert second.payload == b"b"
    epoch = again.epoch if again else epoch
    await world.queue.commit(1, epoch=epoch, done=second.offset + 1)
    assert (await move(world, assignments, [1]))[1].offset == second.offset + 1


async def test_a_hand_over_to_ourselves_brings_back_what_is_not_done_and_nothing_else(world):
    assignments = world.queue.assignments()
    first = (await gain(assignments))[0]
    await send(world, 0, b"1", b"2", b"3")
    fetched = await take(world, 0, 3)
    assert payloads(fetched) == [b"1", b"2", b"3"]
    await send(world, 0, b"4")

    world.queue.reassign([0])
    lost = await soon(anext(assignments))
    assert (lost.lost, lost.back) == ((0,), True)
    await soon(world.queue.commit(0, epoch=first.epoch, done=fetched[1].offset))
    lost.settled()
    again = (await gain(assignments))[0]

    assert (again.epoch > first.epoch, again.offset) == (True, fetched[1].offset)
    rest = await take(world, 0, 3)
    assert payloads(rest) == [b"2", b"3", b"4"]
    await soon(world.queue.commit(0, epoch=first.epoch, done=rest[1].offset))  # too late
    await soon(world.queue.commit(0, epoch=again.epoch, done=rest[2].offset + 1))


async def test_close_ends_every_wait(world):
    assignments = world.queue.assignments()
    await gain(assignments)
    fetching = asyncio.ensure_future(world.queue.fetch(0, 1))
    changing = asyncio.ensure_future(anext(assignments, None))
    await asyncio.sleep(0)
    await world.queue.close()
    assert list(await soon(fetching)) == []
    assert await soon(changing) is None
    assert list(await soon(world.queue.fetch(1, 1))) == []
