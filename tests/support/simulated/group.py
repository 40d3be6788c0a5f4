"""A queue that is a Kafka consumer group, as an updater sees it through aiokafka.

`Group` is the coordinator. Every join, leave and expiry starts a rebalance. Rebalances are eager: each member gives up all its
partitions and joins again, and all partitions are assigned anew under a new generation. A member that does not join in time is
thrown out. A commit counts if it comes from a member and carries the present generation; the coordinator checks neither its
partition nor the ownership of it. A static member that comes back under its instance id before its session ends gets its
partitions back, and no other member notices.

A `GroupConsumer` is one updater's `ports.Queue` and does what the adapter does: it turns generations into epochs, gives the
service a bounded time to settle, does not send commits of an older epoch, and ignores refusals.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from cacheupdater.ports import Assignment, Gained
from simulated.history import Expired
from simulated.topic import SESSION_S, Reader, Topic

HEARTBEAT_S = 0.05  # a member learns of a rebalance with its next heartbeat
PATIENCE = 0.8  # share of the rebalance timeout that the service gets to settle


class Seat:
    """A member, as the coordinator knows it."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.joined = None  # None: it has yet to join this rebalance
        self.partitions = ()


class Group(Topic):
    """The server."""

    def __init__(self, partitions, world):
        super().__init__(partitions, world)
        self.generation = 0
        self.stable = True
        self._seats = []
        self._rebalances = 0
        self._shift = 0
        self._recent_ends = False  # the topic, with this generation
        self._instances = set()  # all that there have ever been
        self._before = [0] * partitions  # what was stored before the last commit
        self._said = [0] * partitions  # what is stored, as this generation knows it

    # --- commits ----------------------------------------------------------------------------------------

    def accepts(self, consumer, generation):
        """Whether this is a member of the present generation."""
        return generation == self.generation and self.seat_of(consumer) is not None

    def store(self, partition, done):
        self._before[partition] = self.done[partition]
        self.done[partition] = self._said[partition] = done

    def stored(self, partition):
        return self._said[partition]

    def forget_commits(self):
        """Forgets the last commits, although they were acknowledged: the next owner repeats their work."""
        self.done = list(self._before)

    # --- records ----------------------------------------------------------------------------------------

    def retain(self):
        """Removes the oldest records of one partition, done or not."""
        random = self._world.random
        partition = random.randrange(self.partitions)
        start, end = self.starts[partition], len(self.logs[partition])
        if start < end:
            self.starts[partition] = random.randint(start + 1, end)
            self._world.seen.note("retention of", partition, "up to", self.starts[partition])
            self._wake()

    def grow(self):
        """Doubles the partitions. Records on the old ones stay there; members see the new ones at their next look."""
        more = self.partitions
        self.logs.extend([] for _ in range(more))
        for column in (self.starts, self.skipped, self.done, self._before, self._said):
            column.extend([0] * more)
        self.holders.extend([None] * more)
        self._world.seen.note("topic has now", self.partitions, "partitions")
        asyncio.get_running_loop().call_later(self._world.slow((0.0, 0.3)), self._rebalance)

    def begin_anew(self):
        """Deletes the topic and makes it again: offsets begin at zero, and all members join again."""
        self._recent_ends = True
        self._rebalance()

    def _end_topic(self):
        self._recent_ends, seen = False, self._world.seen
        for partition, log in enumerate(self.logs):
            seen.expired.append(Expired(seen.clock(), partition, 0, len(log), self.number))
            log.clear()
        self.number += 1
        for column in (self.starts, self.skipped, self.done, self._before):
            column[:] = [0] * self.partitions
        self.holders = [None] * self.partitions
        seen.note("the topic begins anew")

    # --- members ----------------------------------------------------------------------------------------

    def seat_of(self, consumer):
        return next((seat for seat in self._seats if seat.consumer is consumer), None)

    def join(self, consumer):
        """Answers, in time, with a generation and its partitions; with None to a member that was thrown out meanwhile."""
        seat = self.seat_of(consumer) or self._take_over(consumer)
        if seat is not None and self.stable:
            seat.joined = _resolved((self.generation, seat.partitions))
            return seat.joined
        self._rebalance()
        if seat is None:
            seat = Seat(consumer)
            self._seats.append(seat)
            self._members.append(consumer)
        joined = seat.joined = asyncio.get_running_loop().create_future()
        self._complete_if_all_joined()
        return joined

    def _take_over(self, consumer):
        """The seat of the member that had this instance id before."""
        if consumer.instance is None:
            return None
        seat = next((seat for seat in self._seats if seat.consumer.instance == consumer.instance), None)
        if seat is not None:
            self._members[self._members.index(seat.consumer)] = seat.consumer = consumer
            seat.joined = None
        if consumer.instance in self._instances and (seat is None or self.stable):
            when = "static_late" if seat is None else "static_return"
            self._world.faults.fired[when] += 1
            self._world.seen.note(consumer.name, "is back as", consumer.instance, when)
        self._instances.add(consumer.instance)
        return seat

    def rejoin(self, consumer):
        """Does nothing: the member joins again by itself, as soon as it hears."""

    def leave(self, consumer):
        """A member has ended, or its session has."""
        seat = self.seat_of(consumer)
        if seat is None:
            return
        self._remove(seat)
        self._rebalance()
        self._complete_if_all_joined()

    def expel(self, consumer):
        """Expels a member that was silent for too long. If it comes back, it learns what it has lost."""
        self._world.faults.fired["thrown_out"] += self.seat_of(consumer) is not None
        self.leave(consumer)

    def move(self):
        """Gives partitions to other owners."""
        self._shift += 1
        self._rebalance()

    def _remove(self, seat):
        self._seats.remove(seat)
        self._members.remove(seat.consumer)
        self._tell_soon(seat.consumer)
        if seat.joined is not None and not seat.joined.done():
            seat.joined.set_result(None)

    # --- rebalances -------------------------------------------------------------------------------------

    def _rebalance(self):
        if not self.stable:
            return
        self.stable = False
        self._rebalances += 1
        self._world.seen.note("rebalance", self._rebalances)
        for seat in self._seats:
            seat.joined = None
            self._tell_soon(seat.consumer)
        loop = asyncio.get_running_loop()
        loop.call_later(self._world.plan.group.rebalance, self._complete, self._rebalances)

    def _tell_soon(self, consumer):
        loop = asyncio.get_running_loop()
        loop.call_later(self._world.random.random() * HEARTBEAT_S, self._tell, consumer)

    def _tell(self, consumer):
        """The answer to a heartbeat: join again, unless the member just has."""
        seat = self.seat_of(consumer)
        if seat is None or seat.joined is None:
            consumer.hear()

    def _complete_if_all_joined(self):
        if all(seat.joined is not None for seat in self._seats):
            self._complete(self._rebalances)

    def _complete(self, rebalance):
        """Begins a new generation. Late members are thrown out; static ones keep their seats until their session ends."""
        if self.stable or rebalance != self._rebalances:
            return
        for seat in [seat for seat in self._seats if seat.joined is None]:
            self._world.faults.fired["thrown_out"] += 1
            self._world.seen.note(seat.consumer.name, "has not joined in time")
            if seat.consumer.instance is None:
                self._remove(seat)
            else:
                self._tell_soon(seat.consumer)
        if self._recent_ends:
            self._end_topic()
        self.generation += 1
        self.stable = True
        self._said = list(self.done)
        for number, seat in enumerate(self._seats):
            mine = range((number + self._shift) % len(self._seats), self.partitions, len(self._seats))
            seat.partitions = tuple(mine)
            self._world.seen.note(seat.consumer.name, "generation", self.generation, "has", seat.partitions)
            if seat.joined is not None and not seat.joined.done():  # otherwise the member has died meanwhile
                seat.joined.set_result((self.generation, seat.partitions))


def _resolved(answer):
    future = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class GroupConsumer(Reader):
    """`ports.Queue` of one updater process."""

    def __init__(self, broker, process, world, instance):
        super().__init__(broker, process, world)
        self.instance = instance
        self._generation = 0
        self._epochs = Counter()
        self._held = {}  # partition -> epoch, until it is handed over
        self._heard = asyncio.Event()

    def hear(self):
        """The member must join again."""
        self._heard.set()

    def begin(self):
        self._process.start(self._belong()).add_done_callback(self._say_why)

    def _say_why(self, task):
        if not task.cancelled() and task.exception() is not None:
            seen = self._world.seen
            seen.died.append((seen.clock(), self.name, f"its membership: {task.exception()!r}"))

    async def _belong(self):
        world, group = self._world, self._broker
        while not self._closed:
            self._heard.clear()
            joined = await group.join(self)
            await asyncio.sleep(world.latency())
            if joined is not None and not self._closed:
                self._gain(*joined)
                await self._heard.wait()
                await self._revoke()
                await asyncio.sleep(world.latency())

    def _gain(self, generation, partitions):
        group, gained = self._broker, []
        self._generation = generation
        for partition in partitions:
            self._epochs[partition] += 1
            self._held[partition] = epoch = self._epochs[partition]
            gained.append(Gained(partition, epoch, self.first_offset(partition)))
            self._world.seen.note(self.name, "gains", *gained[-1])
            if group.accepts(
                self, generation
            ):  # otherwise it has slept, and another member owns the partition already
                group.holders[partition] = self.owner(partition, epoch)
        if gained:
            self.tell(Assignment(tuple(gained), (), lambda: None))

    def first_offset(self, partition):
        """The committed offset, or the earliest if there is none."""
        return self._broker.done[partition]

    async def _revoke(self):
        """Lets the service hand over, but not for longer than the others wait for us."""
        world, held = self._world, dict(self._held)
        rebalance = world.plan.group.rebalance
        if held and not self._closed:
            if world.faults("group_slow_settle"):
                await asyncio.sleep(world.slow((0.5, 1.5)) * rebalance)
            settled = asyncio.Event()
            self.tell(Assignment((), tuple(held), partial(self._settle, held, settled)))
            try:
                async with asyncio.timeout(PATIENCE * rebalance):
                    await settled.wait()
            except TimeoutError:
                world.seen.note(self.name, "has not settled in time")
        self._held.clear()

    def _settle(self, held, settled):
        for partition, epoch in held.items():
            if self.holds(partition, epoch):
                self.judge_hand_over(partition, epoch)
        settled.set()

    def holds(self, partition, epoch):
        """Whether this ownership holds, as far as this process knows."""
        return self._held.get(partition) == epoch

    async def ticket(self, partition, epoch):
        """Gathers commits for a moment. They then carry the generation of the moment of sending."""
        may_send = self.may_commit(partition, epoch)
        await asyncio.sleep(self._world.latency())
        may_send = may_send and self.may_commit(partition, epoch)
        generation = self._generation
        return lambda: may_send and self._broker.accepts(self, generation)

    def may_commit(self, partition, epoch):
        """Whether this ownership is the present one. The coordinator would accept commits of an older one too."""
        return self.holds(partition, epoch)

    async def close(self):
        """Ends the member. A static one only falls silent."""
        for partition, epoch in self._held.items():
            self.judge_hand_over(partition, epoch)
        self._held.clear()
        self.end()
        if self.instance is None:
            self._broker.leave(self)
        else:
            asyncio.get_running_loop().call_later(SESSION_S, self._broker.leave, self)
