"""The real Kafka adapter as a member of the simulated group. Only its one door to aiokafka, `Member`, is fake.

`AdapterConsumer` is one updater's `ports.Queue`: the real `KafkaQueue`, with the records that the checkers need of its
deliveries, commits and hand-overs. `SimMember` does what aiokafka 0.14 does below it: it joins, hears of rebalances with its
heartbeats, calls the listener before it joins again, and keeps a position for each partition.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from brokers import batches as kafka_batches

from cacheupdater.adapters.queue_kafka import queue as queue_kafka
from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.member import MovedOn, OutOfRange
from cacheupdater.adapters.queue_kafka.parcels import parcel
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.notices import Notices
from cacheupdater_client.protocol import broker
from simulated.group import PATIENCE
from simulated.history import OWNED, CommitCall, Expired, HandOver, Intake, Owner
from simulated.topic import SESSION_S, SLOW_S

WATCHED_S = (
    20.0  # a session for the adapter's watch alone: a slow rebalance of these schedules is not a stall
)
ADDRESS = broker.parse("kafka://simulated:9092/hints")


@contextmanager
def hurried(plan):
    """Makes the adapter wait for the service as long as its group can wait, which may be far too short here."""
    settle = settings.SETTLE
    if plan.group:
        settings.SETTLE = min(settle, PATIENCE * plan.group.rebalance)
    try:
        yield
    finally:
        settings.SETTLE = settle


class AdapterConsumer:
    """`ports.Queue` of one updater process."""

    def __init__(self, group, process, world, instance):
        self.name = process.name
        self.instance = instance
        self._group = group
        self._process = process
        self._world = world
        self._said = {}
        self._member = SimMember(self, group, process, world)
        self.queue = _queue_over(self._member)
        self._begin, self.queue._owned._gain = self.queue._owned._gain, self._gain

    def hear(self):
        """Its next heartbeat says that it must join again."""
        self._member.heard.set()

    def wake(self):
        self._member.arrived.set()

    def owner(self, partition, epoch):
        return Owner(self.name, partition, epoch)

    def reassign(self, partitions):
        self._world.seen.reloaded.add(self.name)
        self.queue.reassign(partitions)

    async def assignments(self):
        async for change in self.queue.assignments():
            self._process.check()
            for gained in change.gained:
                owner = self.owner(gained.partition, gained.epoch)
                self._said[owner] = gained.offset
            yield replace(change, settled=partial(self._settle, change))

    def _gain(self, places):
        """The adapter knows where to begin. From now on it is the owner, whenever the service hears of it."""
        self._begin(places)
        for partition in places:
            owner = self.owner(partition, self.queue._owned.inboxes[partition].epoch)
            self._world.seen.note(owner, "begins")
            if self._member.counts:  # otherwise it has slept, and another member owns the partition already
                self._group.holders[partition] = owner

    def _settle(self, change):
        for partition in change.lost:
            self._judge(partition)
        change.settled()

    def _judge(self, partition):
        """Records a hand-over for the checkers, while commits still count: finished work must have been committed."""
        inbox = self.queue._owned.inboxes[partition]
        owner, seen = self.owner(partition, inbox.epoch), self._world.seen
        if inbox.open and owner in self._world.cursors:
            seen.hand_overs.append(
                HandOver(seen.clock(), owner, self._world.cursors[owner].advance(), self._said[owner])
            )

    async def fetch(self, partition, limit, held=()):
        self._world.check_room(self, partition)
        messages = await self.queue.fetch(partition, limit, held)
        self._process.check()
        seen = self._world.seen
        for message in messages:
            hint = self._member.delivered[partition, message.offset]
            if hint is not None:
                seen.intakes.append(Intake(seen.clock(), OWNED.get(), hint))
        if messages:
            seen.note(OWNED.get(), "reads from", messages[0].offset, "to", messages[-1].offset)
        return messages

    async def commit(self, partition, *, epoch, done, finished=()):
        self._process.check()
        owner = self.owner(partition, epoch)
        self._said[owner] = max(done, self._said.get(owner, 0))
        self._member.wanted[partition, done] = CommitCall(
            self._world.seen.clock(), owner, done, accepted=False
        )
        await self.queue.commit(partition, epoch=epoch, done=done, finished=finished)

    async def close(self):
        for partition in self.queue._owned.open:
            self._judge(partition)
        await self.queue.close()


def _queue_over(member):
    """A `KafkaQueue` that gets this member; it would make its own."""
    real, queue_kafka.Member = queue_kafka.Member, lambda *_, **__: member
    try:
        # without its instance id: the search for impostors measures by the session
        return queue_kafka.KafkaQueue(
            ADDRESS, group="simulated", session=WATCHED_S, observer=member, notices=Notices(lambda: 0.0)
        )
    finally:
        queue_kafka.Member = real


class SimMember:
    """`queue_kafka.member.Member`, and the adapter's observer, which sees what the adapter counts as lost."""

    def __init__(self, consumer, group, process, world):
        self.consumer = consumer
        self.heard = asyncio.Event()
        self.arrived = asyncio.Event()
        self.delivered = {}  # (partition, offset): its hint
        self.wanted = {}  # (partition, done): the owner that wanted to commit that
        self.known = group.partitions
        self._group = group
        self._process = process
        self._world = world
        self._generation = -1
        self._positions = {}
        self._paused = set()
        self._gone = 0  # packs that the adapter has just counted as lost
        self._belonging = None

    # --- the observer -----------------------------------------------------------------------------------

    def count(self, metric, amount, *, label="", reason=""):
        if metric == "lost_packs":
            self._gone = amount

    def level(self, metric, value, *, label=""):
        """Not needed."""

    def end(self, metric, *, label=""):
        """Not needed."""

    # --- the group --------------------------------------------------------------------------------------

    @property
    def forgotten(self):
        return self._generation < 0

    @property
    def counts(self):
        """Whether the group would accept a commit of ours."""
        return self._group.accepts(self.consumer, self._generation)

    async def connect(self):
        """Always succeeds."""

    def join(self, *, revoked, assigned):
        self._belonging = self._process.start(self._belong(revoked, assigned))
        self._belonging.add_done_callback(self._say_why)

    def _say_why(self, task):
        if not task.cancelled() and task.exception() is not None:
            seen = self._world.seen
            seen.died.append((seen.clock(), self.consumer.name, f"its membership: {task.exception()!r}"))

    async def _belong(self, revoked, assigned):
        world, group = self._world, self._group
        while True:
            self._positions = {}
            await revoked()
            while (joined := await self._join()) is None:
                self._generation = -1
            self._generation, partitions = joined
            self._positions = dict.fromkeys(partitions)
            self._paused.clear()
            self.known = group.partitions
            assigned(sorted(partitions))
            self.arrived.set()
            await self.heard.wait()
            if not self.counts:
                self._generation = -1
            if world.faults("group_slow_settle"):
                await asyncio.sleep(world.slow((0.5, 1.5)) * world.plan.group.rebalance)

    async def _join(self):
        self.heard.clear()
        joined = await self._group.join(self.consumer)
        await asyncio.sleep(self._world.latency())
        self._process.check()
        return joined

    def rejoin(self):
        self._group.move()

    async def close(self):
        if self._belonging is not None:
            self._belonging.cancel()
        if self.consumer.instance is None:
            self._group.leave(self.consumer)
        else:
            asyncio.get_running_loop().call_later(SESSION_S, self._group.leave, self.consumer)

    async def partitions(self):
        await self._ask()
        return self._group.partitions

    async def refresh(self):
        self.known = await self.partitions()
        return self.known

    # --- places -----------------------------------------------------------------------------------------

    async def _ask(self):
        self._process.check()
        world = self._world
        await asyncio.sleep(world.latency())
        self._process.check()
        if world.faults("queue_fetch_error"):
            raise Unavailable("the broker does not answer")

    async def committed(self, partitions):
        await self._ask()
        return {partition: done for partition in partitions if (done := self._group.done[partition])}

    async def firsts(self, partitions):
        await self._ask()
        return {partition: self._group.starts[partition] for partition in partitions}

    def led(self, partitions):
        return list(partitions)

    async def ends(self, partitions):
        await self._ask()
        return {partition: len(self._group.logs[partition]) for partition in partitions}

    async def position(self, partition):
        await self._ask()
        return self._positions.get(partition) or 0

    def seek(self, partition, offset):
        gone, self._gone = self._gone, 0
        if partition not in self._positions:
            return
        before, seen, group = self._positions[partition], self._world.seen, self._group
        if before is not None and before < offset == group.starts[partition]:
            nobody_knows = before == group.done[partition] == 0
            if gone == offset - before or nobody_knows:
                seen.expired.append(Expired(seen.clock(), partition, before, offset, group.number))
                group.skipped[partition] = max(group.skipped[partition], offset)
        self._positions[partition] = offset
        self.arrived.set()

    def pause(self, partition):
        self._paused.add(partition)

    def resume(self, partition):
        self._paused.discard(partition)
        self.arrived.set()

    # --- packs ------------------------------------------------------------------------------------------

    async def poll(self):
        await self._ask()
        world = self._world
        if world.faults("queue_fetch_delay"):
            await asyncio.sleep(world.slow(SLOW_S))
        try:
            async with asyncio.timeout(settings.POLL_WAIT):
                while not (found := self._ready()):
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            found = {}
        self._process.check()
        return found

    def _ready(self):
        group, found = self._group, {}
        gone = [
            partition
            for partition, at in self._positions.items()
            if at is None or not group.starts[partition] <= at <= len(group.logs[partition])
        ]
        if gone:
            raise OutOfRange(gone)
        for partition, at in self._positions.items():
            records = group.logs[partition][at : at + settings.POLL_PARCELS]
            if records and partition not in self._paused:
                stored = kafka_batches.of(
                    [kafka_batches.record(number, payload) for number, (payload, _) in enumerate(records)],
                    base=at,
                )
                sealed = SimpleNamespace(
                    offset=at + len(records) - 1, key=len(records).to_bytes(8), value=stored
                )
                found[partition] = [parcel(sealed)]
                for number, (_, hint) in enumerate(records):
                    self.delivered[partition, at + number] = hint
                self._positions[partition] = at + len(records)
        return found

    async def commit(self, offsets):
        """Sends one request. Its generation is that of the moment of sending."""
        world, generation = self._world, self._generation
        self._process.check()
        if world.faults("queue_commit_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        delay = world.slow(SLOW_S) if world.faults("queue_commit_delay") else world.latency()
        arrived = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(delay, self._commit, dict(offsets), generation, arrived)
        accepted = await arrived
        self._process.check()
        if world.faults("queue_commit_cut"):
            raise Unavailable("the connection to the broker was lost")
        if not accepted:
            raise MovedOn("the group has moved on")

    def _commit(self, offsets, generation, arrived):
        group, seen = self._group, self._world.seen
        accepted = group.accepts(self.consumer, generation)
        for partition, done in offsets.items():
            call = self.wanted[partition, done]
            now = {"accepted": accepted, "holder": group.holders[partition], "topic": group.number}
            seen.commits.append(call._replace(**now))
            seen.note(
                self.consumer.name, "commits", partition, done, "" if accepted else "(ignored: out of date)"
            )
            if accepted:
                group.store(partition, done)
        if not arrived.done():
            arrived.set_result(accepted)
