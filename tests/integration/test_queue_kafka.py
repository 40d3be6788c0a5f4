"""The queue on a real Kafka: topics that come and go, brokers that stop, members that die, twins, stalls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("aiokafka")

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.record.util import calc_crc32c
from brokers.world import KafkaWorld

from cacheupdater.adapters.queue_kafka import KafkaQueue, batches, inboxes, settings, unpacking
from cacheupdater.adapters.topic_kafka.owners import owner_of
from cacheupdater.errors import Misconfigured, Stuck, Unavailable
from cacheupdater.kafka_group import settings as of_group
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_properties import ACLS
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import broker, wire

pytestmark = pytest.mark.usefixtures("needs_apache")

SOON = 60.0  # s: whatever should happen has happened by then, on any machine
SHORT = 1.0  # s of session, where a test waits for its end


@pytest.fixture
def young_metadata(monkeypatch):
    """Added partitions are noticed after a second."""
    monkeypatch.setattr(of_group, "METADATA_AGE", 1.0)


@pytest.fixture
async def world(kafka, new_topic):
    async with opened(KafkaWorld(kafka, new_topic)) as world:
        yield world


@contextlib.asynccontextmanager
async def opened(world):
    await world.start()
    try:
        yield world
    finally:
        await world.close()


class Owner:
    """Follows the assignments as a supervisor does: takes what it gains, hands over what it loses."""

    def __init__(self, queue):
        self.queue = queue
        self.gained = {}  # by partition, the last one
        self.rounds = 0  # how often something was lost
        self.error = None
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self):
        try:
            async for change in self.queue.assignments():
                for partition in change.lost:
                    self.gained.pop(partition)
                self.rounds += bool(change.lost)
                change.settled()
                self.gained.update({gained.partition: gained for gained in change.gained})
        except (Stuck, Misconfigured) as e:
            self.error = e

    async def read(self, partition, packs):
        """So many, each committed."""
        got = []
        while len(got) < packs:
            got += await self.step(partition)
        return got

    async def step(self, partition):
        async with asyncio.timeout(SOON):
            messages = await self.queue.fetch(partition, 10)
        epoch = self.gained[partition].epoch
        async with asyncio.timeout(SOON):
            while True:
                with contextlib.suppress(Unavailable):  # as a partition does: it tries again
                    await self.queue.commit(partition, epoch=epoch, done=messages[-1].offset + 1)
                    break
        return [message.payload for message in messages]


@pytest.fixture
async def owner(world):
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    yield owner
    await world.queue.close()
    await owner.task


async def until(true, *, within=SOON):
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110  what is waited for happens at a broker
            await asyncio.sleep(0.02)


async def second(world, **options):
    queue = world.another(**options)
    world.queues.append(queue)
    await queue.start()
    return Owner(queue)


async def die(queue):
    """As kill -9 looks to the group: the connections break and nobody has left."""
    queue._member._consumer._consumer._coordinator._maybe_leave_group = _nothing
    await queue.close()


async def _nothing():
    return None


# --- the topic ------------------------------------------------------------------------------------------


async def test_start_waits_for_a_missing_topic_and_says_which(world, caplog):
    world.topic += "-not-yet"
    queue = world.another()
    starting = asyncio.ensure_future(queue.start())
    try:
        await until(lambda: f"topic {world.topic}" in caplog.text)
        assert not starting.done()
        assert not queue.joined
        await kafka_topics.create(world.servers, world.topic, partitions=5)
        await asyncio.wait_for(starting, SOON)
        assert queue.partitions == 5
    finally:
        starting.cancel()
        await queue.close()
        with contextlib.suppress(Exception):
            await kafka_topics.delete(world.servers, world.topic)


async def test_joined_tells_whether_the_partitions_are_shared_out(world):
    assert not world.queue.joined
    owner = Owner(world.queue)
    await until(lambda: world.queue.joined)
    await until(lambda: len(owner.gained) == 3)
    await world.queue.close()
    assert not world.queue.joined


async def test_a_member_is_called_by_its_host_and_process(world, owner):
    address = broker.parse(f"kafka://{world.servers}/{world.topic}")
    name = await owner_of(address, world.group, 0)
    assert f"cacheupdater-{socket.gethostname()}-{os.getpid()}-" in name


async def test_packs_that_retention_removed_are_counted_and_the_rest_is_read(world, monkeypatch):
    monkeypatch.setattr(inboxes, "INBOX_PACKS_MAX", 2)  # the consumer is paused after two
    for n in range(2):
        await world.send(0, b"read %d" % n)
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    await until(lambda: world.queue._owned.inboxes[0].held)
    for n in range(10):
        await world.send(0, b"%d" % n)
    await kafka_topics.delete_records(world.servers, world.topic, {0: 7})
    assert await owner.read(0, 7) == [b"read 0", b"read 1", b"5", b"6", b"7", b"8", b"9"]
    assert world.observer.total("lost_packs", reason="retention") == 5
    assert owner.rounds == 0, "the partition stays ours"


async def test_a_cursor_that_retention_has_passed_begins_at_the_earliest(world):
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    await world.send(1, b"done")
    await owner.read(1, 1)
    await world.queue.close()
    for n in range(4):
        await world.send(1, b"%d" % n)
    await kafka_topics.delete_records(world.servers, world.topic, {1: 3})
    observer = RecordingObserver()
    heir = await second(world, observer=observer)
    assert await heir.read(1, 2) == [b"2", b"3"]
    assert observer.total("lost_packs", reason="retention") == 2


async def test_nothing_was_lost_where_nobody_has_read_yet(world):
    for n in range(4):
        await world.send(2, b"%d" % n)
    await kafka_topics.delete_records(world.servers, world.topic, {2: 3})
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    assert await owner.read(2, 1) == [b"3"]
    assert not world.observer.total("lost_packs")


async def test_a_topic_made_anew_is_a_new_epoch(young_metadata, world, owner):
    for n in range(3):
        await world.send(0, b"%d" % n)
    await owner.read(0, 3)
    old = owner.gained[0]
    await kafka_topics.delete(world.servers, world.topic)
    await asyncio.sleep(0.5)
    await kafka_topics.create(world.servers, world.topic, partitions=3)
    await until(lambda: 0 in owner.gained and owner.gained[0].epoch > old.epoch)
    await until(lambda: world.queue.joined)
    await world.producer.client.force_metadata_update()
    await world.send(0, b"new")
    assert await owner.read(0, 1) == [b"new"]
    assert owner.gained[0].offset == 0


async def test_a_log_that_was_cut_is_lost_and_gained_again_from_what_was_committed(world, owner):
    """What the broker says when the election of a new leader has lost the last packs."""
    for n in range(3):
        await world.send(0, b"%d" % n)
    (done,) = await asyncio.wait_for(world.queue.fetch(0, 1), SOON)
    old = owner.gained[0]
    await world.queue.commit(0, epoch=old.epoch, done=done.offset + 1)
    await until(lambda: world.queue._owned.inboxes[0].next == 3)
    world.queue._owned.inboxes[0].next = 100
    await world.queue._owned.back()
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    assert owner.gained[0].offset == 1
    await world.queue.commit(0, epoch=old.epoch, done=1)
    assert await owner.read(0, 2) == [b"1", b"2"]
    assert world.observer.total("lost_packs", reason="reset") >= 1
    assert set(owner.gained) == {0, 1, 2}


async def test_an_end_that_goes_back_is_a_new_epoch_where_the_commits_are_gone_with_the_topic(world, owner):
    await world.send(0, b"a")
    await world.send(0, b"b")
    old = owner.gained[0]
    await until(lambda: world.queue._owned.inboxes[0].next == 2)
    world.queue._owned.inboxes[0].end = 50  # so long it was when we last asked
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    assert await owner.read(0, 2) == [b"a", b"b"]


async def test_a_topic_made_anew_under_a_full_lane_is_read(world, owner, monkeypatch):
    monkeypatch.setattr(inboxes, "INBOX_PACKS_MAX", 2)
    for n in range(4):
        await world.send(0, b"%d" % n)
    inbox, old = world.queue._owned.inboxes[0], owner.gained[0]
    await until(lambda: inbox.held)
    inbox.end = 50  # so long it was when we last asked
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    assert await owner.read(0, 4) == [b"0", b"1", b"2", b"3"]


async def test_a_partition_without_a_leader_blinds_nobody_for_the_others(world, owner, monkeypatch):
    cluster = world.queue._member._consumer._consumer._client.cluster
    leader = cluster.leader_for_partition
    monkeypatch.setattr(cluster, "leader_for_partition", lambda at: -1 if at.partition == 0 else leader(at))
    await world.send(1, b"a")
    await until(lambda: world.observer.levels.get(("lag", "1")) == 1)
    assert set(await world.queue._watch._places()) == {1, 2}


async def test_an_end_that_goes_back_means_nothing_where_commits_still_stand(world, owner):
    """A new leader may know of less for a moment."""
    await world.send(0, b"a")
    await world.send(0, b"b")
    await owner.read(0, 2)
    inbox = world.queue._owned.inboxes[0]
    inbox.end = 50
    await until(lambda: inbox.end == 2 and not world.queue._owned._begun_anew)
    await world.send(0, b"c")
    assert await owner.read(0, 1) == [b"c"]
    assert owner.rounds == 0


async def test_a_partition_whose_records_are_torn_takes_nothing_from_the_others(world, monkeypatch):
    """A checksum may be wrong on the way, and be right when the batch is read again."""
    torn = [True]

    def checksum(data):
        return -1 if torn[0] and marked in bytes(data) else calc_crc32c(data)

    marked = b"torn on the way"
    monkeypatch.setattr(batches, "calc_crc32c", checksum)
    monkeypatch.setattr(unpacking, "TORN_TIMES", 1_000_000)
    for n in range(20):
        for partition in range(3):
            await world.send(partition, b"%d" % n if partition != 1 or n != 10 else marked)
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    await world.send(0, b"last")
    assert await owner.read(0, 21) == [*(b"%d" % n for n in range(20)), b"last"]
    assert await owner.read(2, 20) == [b"%d" % n for n in range(20)]
    assert await owner.read(1, 10) == [b"%d" % n for n in range(10)]
    with pytest.raises(Unavailable, match="checksum"):
        await owner.read(1, 1)
    torn[0] = False
    assert await owner.read(1, 10) == [marked, *(b"%d" % n for n in range(11, 20))]


async def test_a_batch_that_stays_torn_is_passed_over(world, owner, monkeypatch):
    monkeypatch.setattr(
        batches, "calc_crc32c", lambda data: -1 if b"rotten" in bytes(data) else calc_crc32c(data)
    )
    for payload in (b"before", b"rotten", b"after"):
        await world.send(0, payload)
    got = []
    for _ in range(unpacking.TORN_TIMES + 3):
        with contextlib.suppress(Unavailable):
            got += await owner.step(0)
        if len(got) == 3:
            break
    assert got == [b"before", b"", b"after"]
    assert world.observer.total("skipped_batches", reason="torn") == 1


async def test_partitions_that_are_added_under_load_are_gained_and_nothing_is_lost(young_metadata, world):
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    got, sent = set(), set()
    sending = asyncio.ensure_future(send_for(world, sent, seconds=6.0))
    reading = [asyncio.ensure_future(read_on(owner, partition, got)) for partition in range(6)]
    await asyncio.sleep(1.0)
    await kafka_topics.add_partitions(world.servers, world.topic, total=6)
    await until(lambda: len(owner.gained) == 6)
    async with asyncio.timeout(SOON):  # a broker may tell of the new ones before another knows them
        while len(await world.producer.partitions_for(world.topic)) < 6:
            await world.producer.client.force_metadata_update()
    for partition in range(3, 6):
        sent.add(b"new %d" % partition)
        await world.send(partition, b"new %d" % partition)
    await sending
    await until(lambda: got == sent)
    await until(lambda: world.queue.partitions == 6)  # told at the next look of the watch
    assert world.observer.levels["partitions", ""] == 6
    await world.queue.close()
    await asyncio.gather(*reading)


async def send_for(world, sent, *, seconds):
    end = asyncio.get_running_loop().time() + seconds
    n = 0
    while asyncio.get_running_loop().time() < end:
        n += 1
        sent.add(b"%d" % n)
        await world.send(n % 3, b"%d" % n)
        await asyncio.sleep(0.005)


async def read_on(owner, partition, got):
    while messages := await owner.queue.fetch(partition, 10):
        got.update(message.payload for message in messages)
        if partition in owner.gained:
            epoch, done = owner.gained[partition].epoch, messages[-1].offset + 1
            with contextlib.suppress(Unavailable):  # while it closes
                await owner.queue.commit(partition, epoch=epoch, done=done)


@pytest.mark.prove
async def test_added_partitions_are_asked_for_where_no_member_knows_that_it_leads(
    young_metadata, kafka, new_topic, monkeypatch
):
    """A static member that leads and starts again is answered as a follower, and followers do not look."""
    async with opened(KafkaWorld(kafka, new_topic, instance="one")) as world:
        owner = Owner(world.queue)
        await until(lambda: len(owner.gained) == 3)
        await world.queue.close()
        again = await second(world, instance="one")
        await until(lambda: len(again.gained) == 3)
        await asyncio.sleep(2.5)  # a look of the watch
        await kafka_topics.add_partitions(world.servers, world.topic, total=4)
        await until(lambda: len(again.gained) == 4)


@pytest.fixture
def impatient(monkeypatch):
    """Three sessions are enough, although a rebalance might wait for longer: there is none in these stories."""
    monkeypatch.setattr(settings, "patience", lambda session: settings.PATIENCE * session)


# --- brokers --------------------------------------------------------------------------------------------


@pytest.mark.prove
async def test_a_broker_that_stops_and_starts_again_needs_nobody(own_kafka):
    await kafka_topics.create(own_kafka.bootstrap, "hints", partitions=3)
    async with opened(KafkaWorld(own_kafka, lambda partitions: "hints")) as world:
        owner = Owner(world.queue)
        await until(lambda: len(owner.gained) == 3)
        await world.send(0, b"before")
        (before,) = await world.queue.fetch(0, 1)
        await asyncio.to_thread(own_kafka.stop)
        with pytest.raises(Unavailable):
            await world.queue.commit(0, epoch=owner.gained[0].epoch, done=before.offset + 1)
        assert world.observer.total("commit_failures", reason="unavailable") == 1
        await asyncio.sleep(world.session * settings.PATIENCE / 3)
        await asyncio.to_thread(own_kafka.start)
        await asyncio.wait_for(world.send(1, b"after"), SOON)
        assert await owner.read(1, 1) == [b"after"]
        assert owner.error is None


async def test_close_ends_within_its_bound_when_the_broker_hangs(own_kafka):
    await kafka_topics.create(own_kafka.bootstrap, "hints", partitions=3)
    world = await KafkaWorld(own_kafka, lambda partitions: "hints").start()
    owner = Owner(world.queue)
    await until(lambda: len(owner.gained) == 3)
    await world.producer.stop()
    own_kafka.pause()
    try:
        async with asyncio.timeout(SOON):
            await world.queue.close()
            await owner.task
    finally:
        own_kafka.resume()


async def test_start_waits_for_a_broker_that_is_not_there(unused_tcp_port, caplog):
    queue = KafkaQueue(
        broker.parse(f"kafka://127.0.0.1:{unused_tcp_port}/hints"),
        group="g",
        observer=RecordingObserver(),
        notices=Notices(lambda: 0.0),
    )
    starting = asyncio.ensure_future(queue.start())
    await until(
        lambda: f"waiting for the brokers of kafka://127.0.0.1:{unused_tcp_port}/hints" in caplog.text
    )
    assert not starting.done()
    await queue.close()
    await asyncio.wait_for(starting, SOON)


# --- members --------------------------------------------------------------------------------------------


async def test_two_members_share_and_the_other_takes_over_when_one_dies(kafka, new_topic):
    async with opened(KafkaWorld(kafka, new_topic)) as world:
        mine = Owner(world.queue)
        await until(lambda: len(mine.gained) == 3)
        other = await second(world)
        await until(lambda: len(mine.gained) + len(other.gained) == 3 and other.gained and mine.gained)
        assert not mine.gained.keys() & other.gained.keys()
        (partition, *_) = other.gained
        await world.send(partition, b"read, not done")
        assert len(await asyncio.wait_for(other.queue.fetch(partition, 1), SOON)) == 1
        await die(other.queue)
        await until(lambda: len(mine.gained) == 3)
        assert await mine.read(partition, 1) == [b"read, not done"]


async def test_a_static_member_that_restarts_within_its_session_moves_nothing(kafka, new_topic):
    async with opened(KafkaWorld(kafka, new_topic, instance="a")) as world:
        mine = Owner(world.queue)
        await until(lambda: len(mine.gained) == 3)
        other = await second(world, instance="b")
        await until(lambda: len(mine.gained) + len(other.gained) == 3 and other.gained and mine.gained)
        had, rounds, epochs = set(other.gained), mine.rounds, dict(mine.gained)
        await other.queue.close()
        again = await second(world, instance="b")
        await until(lambda: set(again.gained) == had)
        await asyncio.sleep(world.session / of_group.HEARTBEATS * 3)
        assert mine.rounds == rounds
        assert mine.gained == epochs


async def test_a_twin_with_the_same_instance_ends_one_of_them_with_a_clear_error(kafka, new_topic):
    async with opened(KafkaWorld(kafka, new_topic, instance="same")) as world:
        first = Owner(world.queue)
        await until(lambda: len(first.gained) == 3)
        twin = await second(world, instance="same")
        await until(lambda: first.error or twin.error)
        error = first.error or twin.error
        assert isinstance(error, Misconfigured)
        assert "another process is a member of this group as instance 'same'" in str(error)


async def test_a_member_that_a_twin_replaced_while_it_joined_ends_with_the_same_error(kafka, new_topic):
    """The broker says so to a join (code 82), for a join carries the instance. aiokafka has no name for this code."""
    async with opened(KafkaWorld(kafka, new_topic, instance="same")) as world:
        first = Owner(world.queue)
        await until(lambda: len(first.gained) == 3)
        twin = await second(world, instance="same")
        await until(lambda: len(twin.gained) == 3)
        world.queue._member.rejoin()  # before a heartbeat says that we are unknown
        await until(lambda: first.error or twin.error)
        assert "another process is a member of this group as instance 'same'" in str(
            first.error or twin.error
        )


async def test_a_member_that_the_group_forgot_cannot_commit_and_joins_again(world, owner):
    await world.send(0, b"a")
    (message,) = await asyncio.wait_for(world.queue.fetch(0, 1), SOON)
    old = owner.gained[0]
    coordinator = world.queue._member._consumer._consumer._coordinator
    coordinator.member_id = "nobody"  # as after a pause that was longer than the session
    await world.queue.commit(0, epoch=old.epoch, done=message.offset + 1)
    assert world.observer.total("commit_failures", reason="rebalance") == 1
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    assert await owner.read(0, 1) == [b"a"], "it was not committed, so it comes again"


async def test_a_commit_that_a_rebalance_overtakes_sets_nobody_back(world, owner, monkeypatch):
    """As of an updater that was frozen: its coordinator is taken for dead, and is found when the partitions belong to others."""
    monkeypatch.setattr(of_group, "COMMIT_WITHIN", SOON)
    tried = unreachable(world.queue, monkeypatch)
    await world.send(0, b"a")
    (message,) = await asyncio.wait_for(world.queue.fetch(0, 1), SOON)
    old = owner.gained[0]
    committing = asyncio.ensure_future(world.queue.commit(0, epoch=old.epoch, done=message.offset + 1))
    await asyncio.wait_for(tried.wait(), SOON)
    await world.move(1)
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    monkeypatch.undo()
    await asyncio.wait_for(committing, SOON)
    assert await world.queue._member.committed([0]) == {}
    assert world.observer.total("commit_failures", reason="rebalance") == 1


def unreachable(queue, monkeypatch):
    """No commit reaches the coordinator; set once one was tried."""
    tried = asyncio.Event()
    coordinator = queue._member._consumer._consumer._coordinator
    send = coordinator._send_req

    async def failing(request):
        if isinstance(request, OffsetCommitRequest):
            tried.set()
            raise GroupCoordinatorNotAvailableError
        return await send(request)

    monkeypatch.setattr(coordinator, "_send_req", failing)
    return tried


async def test_a_coordinator_that_still_loads_the_group_has_not_forgotten_it(world, owner, monkeypatch):
    for n in range(3):
        await world.send(0, b"%d" % n)
    await owner.read(0, 3)
    old = owner.gained[0]
    coordinator = world.queue._member._consumer._consumer._coordinator
    send, loaded, asked = coordinator._send_req, asyncio.Event(), asyncio.Event()

    async def failing(request):
        if isinstance(request, OffsetFetchRequest) and not loaded.is_set():
            asked.set()
            return SimpleNamespace(topics=[], error_code=GroupLoadInProgressError.errno)
        return await send(request)

    monkeypatch.setattr(coordinator, "_send_req", failing)
    await world.move(1)
    await asyncio.wait_for(asked.wait(), SOON)
    await asyncio.sleep(2 * settings.AGAIN)
    loaded.set()
    await until(lambda: owner.gained.get(0, old).epoch > old.epoch)
    assert owner.gained[0].offset == 3
    assert not world.observer.total("lost_packs")


async def test_a_right_that_was_gone_for_one_heartbeat_costs_a_rebalance_and_no_more(
    world, owner, monkeypatch
):
    coordinator = world.queue._member._consumer._consumer._coordinator
    beat, denied = coordinator._do_heartbeat, asyncio.Event()

    async def failing():
        if denied.is_set():
            return await beat()
        denied.set()
        raise GroupAuthorizationFailedError(world.group)

    monkeypatch.setattr(coordinator, "_do_heartbeat", failing)
    await asyncio.wait_for(denied.wait(), SOON)
    await until(lambda: owner.rounds == 1 and len(owner.gained) == 3)
    await world.send(0, b"a")
    assert await owner.read(0, 1) == [b"a"]


async def test_nothing_is_fetched_while_a_partition_is_handed_over(world):
    assignments = world.queue.assignments()
    gained = await asyncio.wait_for(anext(assignments), SOON)
    epoch = gained.gained[0].epoch
    await world.send(0, b"before")
    (message,) = await asyncio.wait_for(world.queue.fetch(0, 1), SOON)
    await world.send(0, b"read by the poller, fetched by nobody")
    await until(lambda: world.queue._owned.inboxes[0].parcels)
    await world.move([0])
    lost = await asyncio.wait_for(anext(assignments), SOON)
    assert set(lost.lost) == {0, 1, 2}
    fetching = asyncio.ensure_future(world.queue.fetch(0, 10))
    await world.send(0, b"while handing over")
    await asyncio.sleep(0.1)
    assert not fetching.done()
    await world.queue.commit(0, epoch=epoch, done=message.offset + 1)  # still counts
    lost.settled()
    again = await asyncio.wait_for(anext(assignments), SOON)
    assert {each.partition: each.offset for each in again.gained}[0] == message.offset + 1
    async with asyncio.timeout(SOON):
        got = [*await fetching]
        while len(got) < 2:
            got += await world.queue.fetch(0, 10)
    assert [each.payload for each in got] == [b"read by the poller, fetched by nobody", b"while handing over"]


async def test_a_hand_over_that_never_settles_does_not_hold_up_the_group(world, monkeypatch):
    monkeypatch.setattr(settings, "SETTLE", 0.5)
    assignments = world.queue.assignments()
    old = (await asyncio.wait_for(anext(assignments), SOON)).gained[0]
    await world.send(0, b"a")
    (message,) = await asyncio.wait_for(world.queue.fetch(0, 1), SOON)
    await world.move([0])
    await asyncio.wait_for(anext(assignments), SOON)
    again = await asyncio.wait_for(anext(assignments), SOON)
    assert not again.lost
    await world.queue.commit(0, epoch=old.epoch, done=message.offset + 1)
    assert {each.partition: each.offset for each in again.gained}[0] == 0, "too late"


# --- packs ----------------------------------------------------------------------------------------------


async def test_a_full_lane_is_held_back_and_goes_on_when_half_is_taken(world, owner, monkeypatch):
    monkeypatch.setattr(inboxes, "INBOX_PACKS_MAX", 10)
    inbox = world.queue._owned.inboxes[0]
    for n in range(100):
        await world.send(0, b"%d" % n)
        if n == 20:
            await until(lambda: inbox.held)
    assert inbox.packs < 100, "the rest waits at the broker"
    await world.send(1, b"others go on")
    assert await owner.read(1, 1) == [b"others go on"]
    got = []
    while len(got) < 100:
        got += await owner.step(0)
    assert got == [b"%d" % n for n in range(100)]
    await world.send(0, b"and on")
    assert await owner.read(0, 1) == [b"and on"]
    assert not inbox.held


async def test_plain_records_of_a_foreign_producer_are_touches(world, owner):
    await world.send(0, b"", key=b"product:7")
    await world.send(0, None, key=b"product:8")
    await world.send(0, b"", key=None)
    await world.send(0, b"payload", key=b"key of a pack")
    got = await owner.read(0, 4)
    packs = [wire.decode_pack(payload) for payload in got[:2]]
    assert [(pack.kind, pack.keys) for pack in packs] == [
        (wire.TOUCH, [b"product:7"]),
        (wire.TOUCH, [b"product:8"]),
    ]
    assert got[2:] == [b"", b"payload"]


async def test_commits_of_all_partitions_go_in_few_requests(world, owner, monkeypatch):
    sent = []
    commit = GroupCoordinator._do_commit_offsets

    async def counted(self, assignment, offsets):
        sent.append(len(offsets))
        await commit(self, assignment, offsets)

    monkeypatch.setattr(GroupCoordinator, "_do_commit_offsets", counted)
    for n in range(10):
        for partition in range(3):
            await world.send(partition, b"%d" % n)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(slowly(owner, partition, 10) for partition in range(3)))
    took = asyncio.get_running_loop().time() - began
    assert len(sent) <= took / settings.COMMIT_EVERY + 2
    assert max(sent) == 3


async def slowly(owner, partition, packs):
    for _ in range(packs):
        (message,) = await asyncio.wait_for(owner.queue.fetch(partition, 1), SOON)
        epoch = owner.gained[partition].epoch
        await owner.queue.commit(partition, epoch=epoch, done=message.offset + 1)


async def test_lag_says_what_is_not_finished(kafka, new_topic):
    async with opened(KafkaWorld(kafka, new_topic)) as world:
        owner = Owner(world.queue)
        await until(lambda: len(owner.gained) == 3)
        for n in range(5):
            await world.send(0, b"%d" % n)
        await until(lambda: world.observer.levels.get(("lag", "0")) == 5)
        await owner.read(0, 5)
        await until(lambda: world.observer.levels["lag", "0"] == 0)
        # a second more is one in which the machine stood still for the whole session
        assert world.observer.total("rebalances") == 1 + owner.rounds


# --- stalls ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_join_that_is_never_answered_ends_the_process(kafka, new_topic, monkeypatch):
    send = GroupCoordinator._send_req

    async def swallowed(self, request):
        if isinstance(request, JoinGroupRequest):
            await asyncio.sleep(3600)
        return await send(self, request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", swallowed)
    async with opened(KafkaWorld(kafka, new_topic, session=SHORT)) as world:
        owner = Owner(world.queue)
        await until(lambda: owner.error)
        assert isinstance(owner.error, Stuck)
        assert "no partitions were assigned" in str(owner.error)


@pytest.mark.prove
@pytest.mark.usefixtures("impatient")
async def test_fetches_that_are_never_answered_end_the_process_where_something_waits(
    kafka, new_topic, monkeypatch
):
    async def swallowed(self, assignment, node_id, request):
        await asyncio.sleep(3600)

    monkeypatch.setattr(Fetcher, "_proc_fetch_request", swallowed)
    async with opened(KafkaWorld(kafka, new_topic, session=SHORT)) as world:
        owner = Owner(world.queue)
        await until(lambda: len(owner.gained) == 3)
        await asyncio.sleep(SHORT * (settings.PATIENCE + 1))
        assert owner.error is None, "nothing to read is no stall"
        await world.send(2, b"a")
        await until(lambda: owner.error)
        assert isinstance(owner.error, Stuck)
        assert "partition 2 has 1 packs to read" in str(owner.error)


@pytest.mark.usefixtures("impatient")
async def test_a_missing_right_is_waited_for_and_named(monkeypatch, caplog, tmp_path):
    users = {"updater": "secret"}
    password = tmp_path / "password"
    password.write_text("secret")
    with KafkaServer(protocol="SASL_PLAINTEXT", users=users, properties=ACLS) as server:
        await kafka_topics.create(server.admin, "hints", partitions=3)
        server.grant("updater", "Read", "Describe", topic="hints")
        url = f"kafka://{server.bootstrap}/hints?sasl=SCRAM-SHA-512&username=updater&password_file={password}"
        queue = KafkaQueue(
            broker.parse(url),
            group="g",
            session=SHORT,
            observer=RecordingObserver(),
            notices=Notices(lambda: 0.0),
        )
        await queue.start()
        owner = Owner(queue)
        try:
            await until(lambda: "waiting for a right on topic hints or its group" in caplog.text)
            await asyncio.sleep(SHORT * (settings.PATIENCE + 2))
            assert owner.error is None
            server.grant("updater", "Read", group="g")
            await until(lambda: len(owner.gained) == 3)
        finally:
            await queue.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.prove
async def test_a_broker_that_is_away_is_no_stall(own_kafka, caplog):
    caplog.set_level(logging.CRITICAL, logger="aiokafka")
    await kafka_topics.create(own_kafka.bootstrap, "hints", partitions=3)
    async with opened(KafkaWorld(own_kafka, lambda partitions: "hints", session=SHORT)) as world:
        owner = Owner(world.queue)
        await until(lambda: len(owner.gained) == 3)
        await world.send(0, b"a")
        await asyncio.to_thread(own_kafka.stop)
        await asyncio.sleep(SHORT * settings.PATIENCE * 2)
        assert owner.error is None
        await asyncio.to_thread(own_kafka.start)
        assert b"a" in await owner.read(0, 1)
        assert owner.error is None
