"""The queue of a single machine: each updater has the real `MemoryQueue`, which dies with its process.

There is no server. `MemoryQueues` stands in the place of one: it gives each pack to one of the living updaters, as a socket would.
Hints of a dead process are nobody's any more, and the checkers count them as vanished.
"""

from __future__ import annotations

from math import inf

from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol import wire
from simulated.history import CommitCall, Expired, Intake, Owner
from simulated.topic import KIND, a_hint


class MemoryQueues:
    """All updaters' queues."""

    number = 0

    def __init__(self, partitions, world):
        self.partitions = partitions
        self.holders = [None] * partitions  # each process owns all of its own
        self.done = [0] * partitions
        self.logs = [()] * partitions
        self.members = []
        self._world = world

    def accept(self, partition, payload):
        """A pack has arrived at the socket of one of the updaters. If there is no room, its sender waits in vain."""
        alive = [each for each in self.members if not each.closed]
        if alive:
            self._world.random.choice(alive).offer(partition, payload)

    @property
    def idle(self):
        """Whether nothing waits in a queue."""
        return not any(
            each.queue.backlog(partition)
            for each in self.members
            if not each.closed
            for partition in range(self.partitions)
        )

    def leave(self, consumer):
        """Its process has ended."""
        consumer.end()

    def expel(self, consumer):
        """Nobody is a member of anything."""

    rejoin = expel

    def move(self):
        """Partitions stay where they are."""


class MemoryConsumer:
    """`ports.Queue` of one updater process."""

    instance = None

    def __init__(self, queues, process, world):
        self.name = process.name
        self.closed = False
        self._process = process
        self._world = world
        queues.members.append(self)
        self._topic = len(queues.members)  # offsets of two processes have nothing to do with each other
        self.queue = MemoryQueue(queues.partitions, undone_max=world.plan.fed.room)
        self._clients = self.queue.newcomer("clients")
        self._epochs = {}  # by partition

    def offer(self, partition, payload):
        self.queue.offer(partition, payload, self._clients)

    def owner(self, partition, epoch):
        return Owner(self.name, partition, epoch)

    async def assignments(self):
        async for change in self.queue.assignments():
            self._process.check()
            self._epochs = {gained.partition: gained.epoch for gained in change.gained}
            yield change

    async def fetch(self, partition, limit, held=()):
        """The real queue's packs. The engine knows nothing of them before, so they count as queued now."""
        self._world.check_room(self, partition)
        taken = await self.queue.fetch(partition, limit, held)
        self._process.check()
        owner = self.owner(partition, self._epochs[partition])
        for message in taken:
            self._note(partition, message, owner)
        return taken

    def _note(self, partition, message, owner):
        seen, pack = self._world.seen, wire.decode_pack(message.payload)
        hint = a_hint(seen.clock(), partition, message.offset, pack, self._topic)
        seen.hints.append(hint)
        seen.intakes.append(Intake(seen.clock(), owner, hint))
        seen.note(self.name, "reads", partition, message.offset, KIND[pack.kind], *pack.keys)

    async def commit(self, partition, *, epoch, done, finished=()):
        self._process.check()
        if self.closed:
            raise Unavailable("the process has ended")
        seen, owner = self._world.seen, self.owner(partition, epoch)
        seen.commits.append(
            CommitCall(seen.clock(), owner, done, accepted=True, holder=owner, topic=self._topic)
        )
        await self.queue.commit(partition, epoch=epoch, done=done, finished=finished)

    async def close(self):
        await self.queue.close()
        self.end()

    def end(self):
        """What is here is lost."""
        if not self.closed:
            self.closed = True
            seen = self._world.seen
            seen.expired += [
                Expired(seen.clock(), partition, 0, inf, self._topic) for partition in self._epochs
            ]
