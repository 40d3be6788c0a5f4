"""A queue that moves single partitions: a living owner is notified and may settle first, a silent one loses them.

The other kind is `group`. After the session timeout a silent owner is a zombie: its commits have an older epoch and are
ignored. A `Consumer` is one updater's `ports.Queue`.
"""

from __future__ import annotations

import asyncio

from cacheupdater.errors import Unavailable
from cacheupdater.ports import Assignment, Gained
from simulated.history import Owner
from simulated.topic import FORGOTTEN, SLOW_S, Reader, Topic

SETTLE_S = 6.0  # a living owner may take so long to hand over: longer than the supervisor needs


class Broker(Topic):
    """The queue's server."""

    def __init__(self, partitions, world):
        super().__init__(partitions, world)
        self.epochs = [0] * partitions
        self.owners = [None] * partitions
        self._moving = set()
        self._shift = 0

    def store(self, partition, done):
        self.done[partition] = done

    def forget(self, partition, offsets):
        for offset in offsets:
            self.logs[partition][offset] = FORGOTTEN

    def stored(self, partition):
        at, log = self.done[partition], self.logs[partition]
        while at < len(log) and log[at] is FORGOTTEN:
            at += 1
        return at

    # --- members ----------------------------------------------------------------------------------------

    def join(self, consumer):
        self._members.append(consumer)
        self.balance()

    rejoin = join

    def leave(self, consumer):
        """A member has ended, or has been silent for too long."""
        if consumer in self._members:
            self._members.remove(consumer)
        for partition, owner in enumerate(self.owners):
            if owner is consumer:
                self._moving.discard(partition)
                self._take(partition)
        self.balance()

    def expel(self, consumer):
        """Expels a member that was silent for too long. If it comes back, it learns what it has lost."""
        lost = tuple(p for p, owner in enumerate(self.owners) if owner is consumer)
        self.leave(consumer)
        consumer.tell(Assignment((), lost, lambda: None))

    def move(self):
        """Gives partitions to other owners."""
        self._shift += 1
        self.balance()

    def balance(self):
        """Gives every partition to its assigned member."""
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

        def end():
            for partition, epoch in zip(lost, epochs, strict=True):
                if owner.holds(partition, epoch):
                    self._moving.discard(partition)
                    self._take(partition)
            self.balance()

        def settle():
            for partition, epoch in zip(lost, epochs, strict=True):
                if owner.holds(partition, epoch):
                    owner.judge_hand_over(partition, epoch)
            end()

        owner.tell(Assignment((), lost, settle))
        asyncio.get_running_loop().call_later(SETTLE_S, end)

    def _take(self, partition):
        self.owners[partition] = None
        self.epochs[partition] += 1

    def _give(self, partition):
        consumer = self._target(partition)
        self.owners[partition] = consumer
        self.epochs[partition] += 1
        gained = Gained(partition, self.epochs[partition], self.done[partition])
        self.holders[partition] = Owner(consumer.name, partition, gained.epoch)
        self._world.seen.note(consumer.name, "gains", partition, "epoch", gained.epoch, "from", gained.offset)
        consumer.tell(Assignment((gained,), (), lambda: None))


class Consumer(Reader):
    """`ports.Queue` of one updater process."""

    instance = None
    takes_back = True

    def begin(self):
        self._broker.join(self)

    def holds(self, partition, epoch):
        """Whether this ownership holds, by the server."""
        return self._broker.owners[partition] is self and self._broker.epochs[partition] == epoch

    async def ticket(self, partition, epoch):
        """The server itself knows epochs."""
        return lambda: self.holds(partition, epoch)

    async def put_back(self, partition, *, epoch, packs):
        """As the port says. The server asks for no epoch: another owner may have the same packs already."""
        seen, owner = self._world.seen, self.owner(partition, epoch)
        since = seen.clock()
        try:
            return await self._put_back(owner, packs)
        finally:
            seen.putting_back[owner].append((since, seen.clock()))

    async def _put_back(self, owner, packs):
        world = self._world
        self._process.check()
        if world.faults("queue_commit_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        await asyncio.sleep(world.slow(SLOW_S) if world.faults("queue_commit_delay") else world.latency())
        offsets = self._broker.accept_back(owner, packs)
        await asyncio.sleep(world.latency())
        if world.faults("queue_commit_cut"):
            world.seen.put_back |= dict.fromkeys(self._broker.hints_at(owner, offsets))
            raise Unavailable("the connection to the broker was lost")
        return offsets

    async def close(self):
        for partition, inbox in self._inboxes.items():
            if self.holds(partition, inbox.epoch):
                self.judge_hand_over(partition, inbox.epoch)
        self._broker.leave(self)
        self.end()
