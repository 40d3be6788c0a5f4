"""The depot of the simulated members, which writes down what it did, and the network before it.

`Ledger` is the tables of `testing.memory_depot` with a judge beside them: it has a record of its own of what was given, finished
and deleted, and notes each violation. A `Line` carries one process's calls. A call that has left is carried out even if its caller
was killed or has given up meanwhile, perhaps much later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.testing.memory_depot import MemoryTables
from cacheupdater_client.protocol.wire import encode_pack

QUICK = (0.001, 0.02)  # s: one way
LATE = (2.0, 4.0)  # s: one way; longer than a queue waits for its commit
SLOWEST = 3.0  # s: one way, longer than a session


class Ledger(MemoryTables):
    """The tables, and what must hold of them at each step."""

    def __init__(self, partitions, clock):
        super().__init__(partitions, clock)
        self.given = [
            (0, "") for _ in range(partitions)
        ]  # the newest epoch of each partition, and whose it is
        self.believers = lambda _: ()  # who believes that a partition is its own; the world says it
        self.worked = set()  # packs that a member has finished
        self.violations = []
        self.refusals = 0
        self.sent = 0
        self.gains = []  # (partition, member), in order
        self.story = []  # when members asked, what, and what they were told

    def renew(self, member, session):
        roster = super().renew(member, session)
        self._tell("{} renews: {}, {}", member, roster.members, roster.owners)
        return roster

    def claim(self, member, partitions):
        gained = super().claim(member, partitions)
        self._tell("{} claims {}: {}", member, partitions, gained)
        for partition, epoch, *_ in gained:
            if epoch <= self.given[partition][0]:
                self.violations.append(f"epoch {epoch} of partition {partition} was given again")
            for other in self.believers(partition):
                if other != member:
                    self.violations.append(
                        f"partition {partition} was given to {member}, and {other} believes that it owns it"
                    )
            self.given[partition] = (epoch, member)
            self.gains.append((partition, member))
        return gained

    def commit(self, member, progress):
        before = {lane: self._place(lane) for each in progress for lane in (each, ~each)}
        refused = super().commit(member, progress)
        self.refusals += len(refused)
        self._tell("{} commits {}: refused {}", member, progress, refused)
        for lane, each in progress.items():
            newest = self.given[partition_of_lane(lane)][0]
            if lane not in refused and each.epoch != newest:
                self.violations.append(
                    f"lane {lane}: a commit of epoch {each.epoch} counted after epoch {newest} was given"
                )
        for lane, place in before.items():  # a commit of one lane must leave the other alone
            self._look(lane, *place)
        return refused

    def send(self, partition, kind):
        self.put([(partition, encode_pack(kind, 0, [b"%d" % self.sent]))])
        self.sent += 1

    @property
    def unfinished(self):
        return sum(len(shelf.packs) for shelf in (*self.shelves, *self.urgent))

    def _tell(self, text, *args):
        self.story.append((asyncio.get_running_loop().time(), text, args))

    def _place(self, lane):
        shelf = self.shelf(lane)
        return shelf.scan, shelf.done, dict(shelf.packs)

    def _look(self, lane, scan, done, packs):
        """What a commit has changed."""
        shelf = self.shelf(lane)
        if shelf.done < done or shelf.scan < scan:
            self.violations.append(f"lane {lane}: a cursor has moved back")
        gone = {pack for offset, pack in packs.items() if offset not in shelf.packs or offset < shelf.done}
        if not gone <= self.worked:
            self.violations.append(f"lane {lane}: packs {sorted(gone - self.worked)} were lost")


class Line:
    """`ports.Depot` over a network that loses and delays."""

    def __init__(self, ledger, process, random):
        self.heal()
        self._ledger, self._process, self._random = ledger, process, random

    def heal(self):
        """No fault lasts any more. Each of these is the time until which it lasts."""
        self.cut = self.deaf = self.unrenewed = self.slow = self.late = 0.0

    async def open(self):
        return await self._call(lambda: len(self._ledger.shelves))

    async def renew(self, member, session):
        return await self._call(
            lambda: self._ledger.renew(member, session), lost=self._now() < self.unrenewed
        )

    async def claim(self, member, partitions):
        return await self._call(lambda: self._ledger.claim(member, partitions))

    async def release(self, member, epochs):
        return await self._call(lambda: self._ledger.release(member, epochs))

    async def leave(self, member):
        return await self._call(lambda: self._ledger.leave(member))

    async def read(self, after, limit):
        return await self._call(lambda: self._ledger.read(after, limit))

    async def commit(self, member, progress):
        late = self._now() < self.late and self._random.random() < 0.5
        after = self._random.uniform(*LATE) if late else 0.0
        return await self._call(lambda: self._ledger.commit(member, progress), after=after)

    async def wait(self, seconds):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ledger.news.wait()

    async def close(self):
        """Nothing is open."""

    def _now(self):
        return asyncio.get_running_loop().time()

    async def _call(self, do, *, lost=False, after=0.0):
        self._process.check()
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        if not lost and loop.time() >= self.cut:
            loop.call_later(after or self._takes(), self._carry_out, do, answer)
        got = await answer
        self._process.check()
        return got

    def _carry_out(self, do, answer):
        loop = asyncio.get_running_loop()
        got = do()
        if loop.time() >= max(self.cut, self.deaf):
            loop.call_later(self._takes(), _arrive, answer, got)

    def _takes(self):
        quick = self._random.uniform(*QUICK)
        slow = self._now() < self.slow and self._random.random() < 0.5
        return self._random.uniform(0.0, SLOWEST) if slow else quick


def _arrive(answer, got):
    if not answer.done():
        answer.set_result(got)
