"""Plays one schedule: real `DepotQueue`s in simulated processes, on one ledger, in virtual time.

A member's work is small: it fetches packs, finishes most of them at once and some later, and commits as a partition of the
pipeline does. When all faults are over, the world must come to rest: each pack is finished, and each partition is its rightful
member's.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from simulated.process import Process, task_factory

from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.core.membership import rightful
from cacheupdater.errors import Unavailable
from cacheupdater.testing.virtual_loop import VirtualLoop
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH
from members.depot import LATE, Ledger, Line
from members.plan import LENGTH, SESSION, draw

SEND_EVERY = 0.5  # s, on average
FETCH_AGAIN = 0.5  # s until open packs are looked at again
LATER = 0.1  # of the packs are finished later
REST_WITHIN = (
    30 * SESSION
)  # s until the world must be at rest, after clocks that were set back and many packs
LOOKS = 300


class Silence:
    """`ports.Observer` and `ports.Troubles` for nobody."""

    def count(self, *_, **__):
        """Nobody looks."""

    level = measure = trouble = over = count


class Member:
    """One process, its queue, and its work."""

    def __init__(self, world, number):
        self.name = f"m{number}"
        self.process = Process(self.name)
        self.wall = 0.0  # how far its wall clock was set
        self.leaving = False
        self._world, self._random = world, Random(f"{world.plan.seed} {number}")
        self._rate = world.plan.rates[number % len(world.plan.rates)]
        self._offset = self._random.uniform(0.0, 1000.0)
        self.line = Line(world.ledger, self.process, self._random)
        self.queue = DepotQueue(
            self.line,
            session=SESSION,
            member=self.name,
            observer=Silence(),
            notices=Silence(),
            clock=self.clock,
        )
        self._work = {}  # by partition
        self.following = self.process.start(self._follow())

    def clock(self):
        """Its monotonic clock."""
        return self._offset + self._rate * asyncio.get_running_loop().time()

    @property
    def owned(self):
        return {
            partition
            for partition, inbox in self.queue._owned.held.items()
            if inbox.open and not inbox.leaving
        }

    def believes(self, partition):
        inbox = self.queue._owned.held.get(partition)
        return inbox is not None and inbox.open and self.queue._session.runs(self.clock())

    @property
    def up_to_date(self):
        given = self._world.ledger.given
        return all(given[partition][0] == inbox.epoch for partition, inbox in self.queue._owned.held.items())

    async def _follow(self):
        await self.queue.start()
        async for change in self.queue.assignments():
            for partition in change.lost:
                await self._end(partition)
            change.settled()
            for gained in () if self.leaving else change.gained:
                self._work[gained.partition] = asyncio.ensure_future(self._serve(gained))

    async def _end(self, partition):
        work = self._work.pop(partition, None)
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def leave(self):
        """As a drain and a close. `leaving` is set, so that nothing is gained meanwhile."""
        for partition in [*self._work]:
            await self._end(partition)
        await self.queue.close()

    async def _serve(self, gained):
        """As `pipeline.partition`: fetch, finish in any order, commit what is finished."""
        partition, epoch, scan = gained
        open_packs, finished, committed = {}, [], scan
        while not self.leaving:
            messages = await self._fetch(partition, None if committed == scan else FETCH_AGAIN)
            if messages:
                self._judge(partition, epoch)
                open_packs |= {message.offset: message.payload for message in messages}
                scan = messages[-1].offset + 1
                await asyncio.sleep(self._random.uniform(0.0, 0.2))
            for offset in [*open_packs]:
                if self._random.random() >= LATER:
                    self._world.ledger.worked.add(open_packs.pop(offset))
                    finished.append(offset)
            done = min(open_packs, default=scan)
            if done == committed and not finished:
                continue
            with suppress(Unavailable):
                finished = [offset for offset in finished if offset >= done]
                await self.queue.commit(partition, epoch=epoch, done=done, finished=finished)
                finished, committed = [], done

    async def _fetch(self, partition, within):
        """The next packs, or none `within` so many seconds."""
        if within is None:
            return await self.queue.fetch(partition, 4)
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self.queue.fetch(partition, 4)
        return ()

    def _judge(self, partition, epoch):
        """Nobody is given work of a partition that is another's by now."""
        newest, owner = self._world.ledger.given[partition]
        if self._world.plan.honest and owner != self.name:
            self._world.ledger.violations.append(
                f"{self.name} works on partition {partition} under epoch {epoch}, and {owner} has epoch {newest}"
            )


class World:
    """One schedule under way."""

    def __init__(self, plan, ledger, member):
        self.plan = plan
        self.jumped = 0.0  # how far the depot's clock was set
        loop = asyncio.get_running_loop()
        self.ledger = ledger(plan.partitions, lambda: 1000.0 + loop.time() + self.jumped)
        if plan.honest:
            self.ledger.believers = self._believers
        self.members = []
        self._make = member
        self._made = 0
        self._random = Random(f"{plan.seed} world")

    @property
    def living(self):
        return [each for each in self.members if not (each.process.dead or each.leaving)]

    def join(self):
        self.members.append(self._make(self, self._made))
        self._made += 1
        return self.members[-1]

    async def run(self):
        """Play all of it."""
        for _ in range(self.plan.members):
            self.join()
        sending = asyncio.ensure_future(self._send())
        await self._suffer()
        sending.cancel()
        self._heal()
        if await self._rest("after the faults") and self.plan.moves:
            await self._move()
        self._bury()

    def _believers(self, partition):
        """Members that would work on this partition now, or at the moment in which they continue."""
        return [each.name for each in self.members if not each.process.dead and each.believes(partition)]

    async def _send(self):
        while True:
            for _ in range(self._random.randint(1, 4)):
                kind = self._random.choice((TOUCH, TOUCH, MISS, CHANGE))
                self.ledger.send(self._random.randrange(self.plan.partitions), kind)
            await asyncio.sleep(self._random.expovariate(1 / SEND_EVERY))

    async def _suffer(self):
        loop = asyncio.get_running_loop()
        for fault in self.plan.faults:
            await asyncio.sleep(fault.at - loop.time())
            living = self.living
            if fault.kind == "join":
                self.join()
            elif fault.kind == "jump":
                self.jumped += fault.seconds
            elif fault.kind == "forced":
                self.ledger.shelves[fault.member % self.plan.partitions].owner = None
            elif living:
                self._strike(living[fault.member % len(living)], fault)
        await asyncio.sleep(LENGTH - loop.time())

    def _strike(self, member, fault):
        loop = asyncio.get_running_loop()
        if fault.kind == "stop":
            member.process.stop()
            loop.call_later(fault.seconds, member.process.resume)
        elif fault.kind == "kill":
            member.process.kill()
        elif fault.kind == "leave":
            member.leaving = True
            member.process.start(member.leave())
        elif fault.kind == "step":
            member.wall += fault.seconds
            member.line.unrenewed = loop.time() + abs(fault.seconds)
        else:
            setattr(member.line, fault.kind, loop.time() + fault.seconds)

    def _heal(self):
        for member in self.members:
            member.process.resume()
            member.line.heal()
        if not self.living:
            self.join()

    async def _rest(self, when):
        """Whether all packs are finished soon, and each partition is its rightful member's."""
        for _ in range(LOOKS):
            await asyncio.sleep(REST_WITHIN / LOOKS)
            missing = self._missing()
            if not missing:
                return True
        self.ledger.violations.append(f"not at rest {when}: {missing}")
        return False

    def _missing(self):
        owned = {partition: each.name for each in self.living for partition in each.owned}
        names = [each.name for each in self.living]
        rightly = {partition: rightful(partition, names) for partition in range(self.plan.partitions)}
        if owned != rightly:
            return f"{owned} are owned, rightful are {rightly}"
        return f"{self.ledger.unfinished} packs are not finished" if self.ledger.unfinished else ""

    async def _move(self):
        """Only partitions to or from the member that joins and leaves move.

        A claim that was carried out late has given its member a newer epoch than the member knows. Such a partition comes back
        to its member once before it moves, so then there is nothing to see here.
        """
        await asyncio.sleep(max(LATE))  # all calls have been carried out by then
        if not await self._rest("after late calls") or not all(each.up_to_date for each in self.living):
            return
        before = [shelf.owner for shelf in self.ledger.shelves]
        one_more, gains = self.join(), len(self.ledger.gains)
        if not await self._rest("after a join"):
            return
        moved = self.ledger.gains[gains:]
        if any(member != one_more.name for _, member in moved):
            self.ledger.violations.append(f"{one_more.name} has joined, and {moved} were gained")
        one_more.leaving = True
        one_more.process.start(one_more.leave())
        gains = len(self.ledger.gains)
        if await self._rest("after a leave") and [shelf.owner for shelf in self.ledger.shelves] != before:
            self.ledger.violations.append(f"{one_more.name} has left, and not all is as before")
        again = self.ledger.gains[gains:]
        if {partition for partition, _ in again} != {partition for partition, _ in moved}:
            self.ledger.violations.append(
                f"{one_more.name} had {moved} and has left, and {again} were gained"
            )

    def _bury(self):
        for member in self.members:
            if member.following.done() and not member.following.cancelled() and member.following.exception():
                self.ledger.violations.append(f"{member.name} has ended: {member.following.exception()!r}")
            member.process.kill()


def play(seed, *, ledger=Ledger, member=Member):
    """The ledger of this seed's schedule, with these kinds of tables and members."""
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_play(draw(seed), ledger, member))


async def _play(plan, ledger, member):
    world = World(plan, ledger, member)
    await world.run()
    return world.ledger
