"""The durable queue: partitions with offsets, owners with epochs, redelivery from what was committed as done.

`Broker` is the server; it outlives every process. A `Consumer` is one updater's `ports.Queue`. Partitions move between
members: a living owner is told and may settle first, a silent one loses them after the session timeout and becomes
a zombie, whose commits are of an older epoch and ignored.
"""

from __future__ import annotations

import asyncio

from cacheupdater.errors import Unavailable
from cacheupdater.ports import Assignment, Gained, Message
from cacheupdater_client import wire
from simulated.history import OWNED, CommitCall, Hint, Intake, Owner

SETTLE_S = 6.0  # an owner that lives may take so long to hand over: longer than the supervisor wants
SESSION_S = 0.4  # a silent one is given up after this
SLOW_S = (0.05, 0.6)
TICK = 1e-6  # what keeps two things in order that travel on one connection


class Broker:
    """The queue's server."""

    def __init__(self, partitions, world):
        self.logs = [[] for _ in range(partitions)]
        self.done = [0] * partitions
        self.epochs = [0] * partitions
        self.owners = [None] * partitions
        self._members = []
        self._moving = set()
        self._shift = 0
        self._world = world

    # --- producers --------------------------------------------------------------------------------------

    def accept(self, partition, payload):
        """A pack, or something that claims to be one, is on the log from now on."""
        log, seen = self.logs[partition], self._world.seen
        try:
            pack = wire.decode_pack(payload)
        except wire.Malformed:
            hint = None
        else:
            hint = Hint(seen.clock(), partition, len(log), pack.kind, tuple(pack.keys))
            seen.hints.append(hint)
            seen.note("queued", partition, len(log), ("touch", "miss", "change")[pack.kind], *pack.keys)
        log.append((payload, hint))
        for member in self._members:
            member.wake()

    # --- members ----------------------------------------------------------------------------------------

    def join(self, consumer):
        self._members.append(consumer)
        self.balance()

    def leave(self, consumer):
        """A member has ended, or nobody hears of it any more."""
        if consumer in self._members:
            self._members.remove(consumer)
        for partition, owner in enumerate(self.owners):
            if owner is consumer:
                self._moving.discard(partition)
                self._take(partition)
        self.balance()

    def expel(self, consumer):
        """Too silent for too long. It may come back and then learns what it has lost."""
        lost = tuple(p for p, owner in enumerate(self.owners) if owner is consumer)
        self.leave(consumer)
        consumer.tell(Assignment((), lost, lambda: None))

    def move(self):
        """Partitions change their owners."""
        self._shift += 1
        self.balance()

    def balance(self):
        """Give every partition to the member that it is meant for."""
        if not self._members:
            return
        losses = {}
        for partition, owner in enumerate(self.owners):
            target = self._target(partition)
            if partition in self._moving or owner is target:
                continue
            if owner is None:
                self._give(partition)
            else:
                losses.setdefault(owner, []).append(partition)
        for owner, lost in losses.items():
            self._ask_back(owner, tuple(lost))

    def _target(self, partition):
        return self._members[(partition + self._shift) % len(self._members)]

    def _ask_back(self, owner, lost):
        self._moving.update(lost)
        epochs = [self.epochs[partition] for partition in lost]

        def settle():
            for partition, epoch in zip(lost, epochs, strict=True):
                if self.owners[partition] is owner and self.epochs[partition] == epoch:
                    self._moving.discard(partition)
                    self._take(partition)
            self.balance()

        owner.tell(Assignment((), lost, settle))
        asyncio.get_running_loop().call_later(SETTLE_S, settle)

    def _take(self, partition):
        self.owners[partition] = None
        self.epochs[partition] += 1

    def _give(self, partition):
        consumer = self._target(partition)
        self.owners[partition] = consumer
        self.epochs[partition] += 1
        gained = Gained(partition, self.epochs[partition], self.done[partition])
        self._world.seen.note(consumer.name, "gains", partition, "epoch", gained.epoch, "from", gained.offset)
        consumer.tell(Assignment((gained,), (), lambda: None))


class Consumer:
    """`ports.Queue` of one updater process."""

    def __init__(self, broker, process, world):
        self.name = process.name
        self._broker = broker
        self._process = process
        self._world = world
        self._changes = asyncio.Queue()
        self._arrived = asyncio.Event()
        self._epochs = {}
        self._positions = {}
        self._commits_arrive = 0.0
        self._closed = False

    def tell(self, change):
        self._changes.put_nowait(change)

    def wake(self):
        self._arrived.set()

    async def assignments(self):
        """Until `close`."""
        self._broker.join(self)
        while True:
            change = await self._changes.get()
            self._process.check()
            if change is None:
                return
            for gained in change.gained:
                self._epochs[gained.partition] = gained.epoch
                self._positions[gained.partition] = gained.offset
            yield change

    async def fetch(self, partition, limit):
        """As the port says. Whoever has lost the partition waits for ever."""
        world, broker = self._world, self._broker
        epoch = self._epochs[partition]
        world.check_room(self, partition)
        if world.faults("queue_fetch_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        await asyncio.sleep(world.slow(SLOW_S) if world.faults("queue_fetch_delay") else world.latency())
        while not self._closed:
            self._process.check()
            log, at = broker.logs[partition], self._positions[partition]
            owned = broker.owners[partition] is self and broker.epochs[partition] == epoch
            if owned and self._epochs[partition] == epoch and at < len(log):
                return self._take(partition, log[at : at + limit], at)
            self._arrived.clear()
            await self._arrived.wait()
        return ()

    def _take(self, partition, records, at):
        seen = self._world.seen
        owner = Owner(self.name, partition, self._epochs[partition])
        self._positions[partition] = at + len(records)
        seen.intakes += [Intake(seen.clock(), owner, hint) for _, hint in records if hint is not None]
        seen.note(self.name, "reads", partition, "from", at, "to", at + len(records))
        return [Message(at + number, payload) for number, (payload, _) in enumerate(records)]

    async def commit(self, partition, *, epoch, done):
        """One connection: commits arrive in the order in which they were sent, the last one stays."""
        world = self._world
        self._process.check()
        called = world.seen.clock()
        if world.faults("queue_commit_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        delay = world.slow(SLOW_S) if world.faults("queue_commit_delay") else world.latency()
        self._commits_arrive = max(called + delay, self._commits_arrive + TICK)
        loop, arrived = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        loop.call_at(self._commits_arrive, self._commit, partition, epoch, done, called, arrived)
        await arrived
        if world.faults("queue_commit_cut"):
            raise Unavailable("the connection to the broker was lost")

    def _commit(self, partition, epoch, done, called, arrived):
        broker, seen = self._broker, self._world.seen
        accepted = broker.owners[partition] is self and broker.epochs[partition] == epoch
        seen.commits.append(CommitCall(called, Owner(self.name, partition, epoch), done, accepted))
        seen.note(self.name, "commits", partition, done, "" if accepted else "(ignored: of an older epoch)")
        if accepted:
            broker.done[partition] = done
        if not arrived.done():
            arrived.set_result(None)

    async def close(self):
        self._closed = True
        self._broker.leave(self)
        self._changes.put_nowait(None)
        self.wake()


def own(gained, process):
    """From here on, tasks that the present one starts work for this ownership."""
    OWNED.set(Owner(process.name, gained.partition, gained.epoch))
