"""The content of the queue: logs with offsets, committed `done` offsets, and records that the retention has removed.

It outlives every process. `Broker` and `Group` add ownership, each in its own way. They share this module: on the server's side
`Topic`, on that of one updater `Inbox` and `Reader`.
"""

from __future__ import annotations

import asyncio

from cacheupdater.core.hints import KIND_OF
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire
from simulated.history import OWNED, CommitCall, Expired, HandOver, Hint, Intake, Owner

SESSION_S = 0.4  # a silent member is given up after this
SLOW_S = (0.05, 0.6)
KIND = ("touch", "miss", "change", "set")
FORGOTTEN = None  # in the place of a record
TICK = 1e-6  # keeps two messages on one connection in order


def a_hint(at, partition, offset, pack, topic):
    """A pack, as the history keeps it."""
    is_set = pack.kind == wire.SET
    return Hint(at, partition, offset, KIND_OF[pack.kind], tuple(pack.keys), topic, is_set)


class Topic:
    """The queue's server, without its members."""

    def __init__(self, partitions, world):
        self.number = 0  # how often the topic has begun anew
        self.logs = [[] for _ in range(partitions)]
        self.starts = [0] * partitions  # older records are gone
        self.skipped = [0] * partitions  # an owner has counted older records as lost
        self.done = [0] * partitions
        self.holders = [None] * partitions  # the last ownership that was granted
        self._members = []
        self._world = world

    @property
    def partitions(self):
        return len(self.logs)

    def accept(self, partition, payload):
        """Appends a pack, or something that claims to be one, to the log."""
        log, seen = self.logs[partition], self._world.seen
        try:
            pack = wire.decode_pack(payload)
        except wire.Malformed:
            hint = None
        else:
            hint = a_hint(seen.clock(), partition, len(log), pack, self.number)
            seen.hints.append(hint)
            seen.note("queued", partition, len(log), KIND[pack.kind], *pack.keys)
        log.append((payload, hint))
        self._wake()

    def accept_back(self, owner, payloads):
        """Appends packs that an owner had read. They are no new hints: those that they repeat are judged."""
        log, seen = self.logs[owner.partition], self._world.seen
        first = len(log)
        for payload in payloads:
            pack, offset = wire.decode_pack(payload), len(log)
            hint = a_hint(seen.clock(), owner.partition, offset, pack, self.number)
            seen.put_back[hint] = owner
            self._world.faults.fired["put_back"] += 1
            seen.note(owner.process, "puts back", owner.partition, offset, KIND[pack.kind], *pack.keys)
            log.append((payload, hint))
        self._wake()
        return range(first, len(log))

    def hints_at(self, owner, offsets):
        """The packs at these places."""
        return [hint for _, hint in self.logs[owner.partition][offsets.start : offsets.stop]]

    def forget(self, partition, offsets):
        """An owner has finished these out of order. A queue with one number per partition cannot forget them."""

    def _wake(self):
        for member in self._members:
            member.wake()

    def stored(self, partition):
        """The offset up to which the living owner need not repeat work."""
        return self.done[partition]

    @property
    def idle(self):
        """Whether everything on the logs is done, or counted as lost."""
        return all(
            max(self.stored(partition), self.skipped[partition]) >= len(log)
            for partition, log in enumerate(self.logs)
        )


class Inbox:
    """One ownership of one partition, as its reader knows it."""

    __slots__ = ("at", "epoch")

    def __init__(self, epoch, offset):
        self.epoch = epoch
        self.at = offset


class Reader:
    """`ports.Queue` of one updater process. Its subclasses decide which reads and commits are allowed."""

    def __init__(self, broker, process, world):
        self.name = process.name
        self._broker = broker
        self._process = process
        self._world = world
        self._changes = asyncio.Queue()
        self._arrived = asyncio.Event()
        self._inboxes = {}
        self._said = {}  # by ownership: the highest done that it wanted to commit
        self._commits_arrive = 0.0
        self._closed = False

    def tell(self, change):
        self._changes.put_nowait(change)

    def wake(self):
        self._arrived.set()

    async def assignments(self):
        """Changes of ownership, until `close`."""
        self.begin()
        while True:
            change = await self._changes.get()
            self._process.check()
            if change is None:
                return
            for gained in change.gained:  # from here on the service knows of it, and asks for this epoch
                self._inboxes[gained.partition] = Inbox(gained.epoch, gained.offset)
                self._said[self.owner(gained.partition, gained.epoch)] = gained.offset
            yield change

    def owner(self, partition, epoch):
        return Owner(self.name, partition, epoch)

    # --- reading ----------------------------------------------------------------------------------------

    async def fetch(self, partition, limit, held=()):
        """As the port says. An owner that has lost the partition waits for ever."""
        world, broker = self._world, self._broker
        inbox = self._inboxes[partition]
        world.check_room(self, partition)
        if world.faults("queue_fetch_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        await asyncio.sleep(world.slow(SLOW_S) if world.faults("queue_fetch_delay") else world.latency())
        while not self._closed:
            self._process.check()
            if self._inboxes[partition] is inbox and self.holds(partition, inbox.epoch):
                if inbox.at < (start := broker.starts[partition]):
                    self.count_lost(partition, inbox.at, start)
                    inbox.at = start
                if taken := self._take(partition, inbox, limit):
                    return taken
            self._arrived.clear()
            await self._arrived.wait()
        return ()

    def count_lost(self, partition, first, end):
        """Out of range: the owner continues at the earliest record, and counts those that it will never see."""
        broker, seen = self._broker, self._world.seen
        seen.expired.append(Expired(seen.clock(), partition, first, end, broker.number))
        seen.note(self.name, "has lost", partition, "from", first, "to", end)
        broker.skipped[partition] = max(broker.skipped[partition], end)

    def _take(self, partition, inbox, limit):
        seen, log, taken = self._world.seen, self._broker.logs[partition], []
        owner = self.owner(partition, inbox.epoch)
        while inbox.at < len(log) and len(taken) < limit:
            if (record := log[inbox.at]) is not FORGOTTEN:
                taken.append((inbox.at, *record))
            inbox.at += 1
        seen.intakes += [
            Intake(seen.clock(), owner, hint)
            for _, _, hint in taken
            if hint is not None and not self._is_own(hint, owner)
        ]
        if taken:
            seen.note(self.name, "reads", partition, "from", taken[0][0], "to", inbox.at)
        return [Message(offset, payload, place=offset) for offset, payload, _ in taken]

    def _is_own(self, hint, owner):
        """Whether the owner has put this pack back, and knows where: then it passes over the pack."""
        return (
            self._world.seen.put_back.get(hint) == owner
            and hint.offset in self._world.cursors[owner]._to_pass
        )

    # --- committing -------------------------------------------------------------------------------------

    async def commit(self, partition, *, epoch, done, finished=()):
        """Commits over one connection: they arrive in the order of sending, and the last one stays."""
        world = self._world
        self._process.check()
        called, owner = world.seen.clock(), self.owner(partition, epoch)
        self._said[owner] = max(done, self._said.get(owner, 0))
        if world.faults("queue_commit_error"):
            await asyncio.sleep(world.latency())
            raise Unavailable("the broker does not answer")
        may_count = await self.ticket(partition, epoch)
        delay = world.slow(SLOW_S) if world.faults("queue_commit_delay") else world.latency()
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        self._commits_arrive = max(loop.time() + delay, self._commits_arrive + TICK)
        call = CommitCall(called, owner, done, accepted=False)
        loop.call_at(self._commits_arrive, self._commit, call, finished, may_count, arrived)
        await arrived
        if world.faults("queue_commit_cut"):
            raise Unavailable("the connection to the broker was lost")

    def _commit(self, call, finished, may_count, arrived):
        broker, seen, partition = self._broker, self._world.seen, call.owner.partition
        accepted = may_count()
        now = {"accepted": accepted, "holder": broker.holders[partition], "topic": broker.number}
        seen.commits.append(call._replace(**now))
        seen.note(self.name, "commits", partition, call.done, "" if accepted else "(ignored: out of date)")
        if accepted:
            broker.store(partition, call.done)
            broker.forget(partition, finished)
        if not arrived.done():
            arrived.set_result(None)

    def judge_hand_over(self, partition, epoch):
        """The owner is ready to hand over: all that is finished must have been committed."""
        owner, seen = self.owner(partition, epoch), self._world.seen
        cursor = self._world.cursors.get(owner)
        if cursor is not None:  # otherwise it was gained too late to begin
            seen.hand_overs.append(HandOver(seen.clock(), owner, cursor.advance(), self._said[owner]))

    def end(self):
        """Ends `assignments` and every waiting `fetch`."""
        self._closed = True
        self._changes.put_nowait(None)
        self.wake()


def own(gained, process):
    """From now on, tasks that the present task starts work for this ownership."""
    OWNED.set(Owner(process.name, gained.partition, gained.epoch))
