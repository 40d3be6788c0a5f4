"""Helpers for stories about the asyncio shell: real partitions over a memory queue, dicts for databases and Redis in memory.

Time is virtual: a test marked `in_virtual_time` may wait for minutes. Small fakes that keep the ports' contracts record what
the stories need to see: the commits, and the loads that began.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import wraps

from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.engine import Engine
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import Partition
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.ports import Assignment, Gained, at_once
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.dict_loader import DictLoader
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.fence import NO_FORMS
from stories.engine import limits, namespace

GARBAGE = b"no pack at all"
NO_RIGHT = Answer(Result.FAILED, why="NOPERM No permissions to access a key")


def in_virtual_time(test):
    """Runs an async test in a virtual-time loop."""

    @wraps(test)
    def run(*args, **named):
        return virtual_loop.run(test(*args, **named))

    return run


def now():
    return asyncio.get_running_loop().time()


class Turns:
    """Counts the turns of the loop, to tell waiting from spinning."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        self.count, turn = 0, loop._run_once

        def counting():
            self.count += 1
            turn()

        loop._run_once = counting


class Rows(DictLoader):
    """A slow table. Statements with some of its keys fail."""

    def __init__(self, rows=None, *, took=0.0, faults=None):
        super().__init__(rows)
        self.took = took
        self.faults = dict(faults or {})

    async def load(self, keys, leaves=at_once):
        values = await super().load(keys, leaves)
        await asyncio.sleep(self.took)
        for key in keys:
            if key in self.faults:
                raise self.faults[key]
        return values


class Writer(MemoryWriter):
    """A Redis that does not answer while `errors` last. `tokens` counts the refreshes that have begun."""

    def __init__(self, server):
        super().__init__(server)
        self.tokens = 0
        self.invalidation_errors = []
        self.refuses = None  # a key that it will not remove
        self.away = set()  # keys of a node that is not there

    async def write(self, token, entries, **options):
        said = await super().write(token, [each for each in entries if each[0] not in self.away], **options)
        there = iter(said)
        gone = Answer(Result.UNAVAILABLE, why="127.0.0.1:7001 failed a moment ago")
        return [gone if key in self.away else next(there) for key, _, _ in entries]

    async def token(self, keys=()):
        self.tokens += 1
        return await super().token(keys)

    async def invalidate(self, keys, forms=NO_FORMS, *, only_ours=()):
        if self.invalidation_errors:
            raise self.invalidation_errors.pop(0)
        said = iter(
            await super().invalidate([key for key in keys if key != self.refuses], forms, only_ours=only_ours)
        )
        return [NO_RIGHT if key == self.refuses else next(said) for key in keys]


class Ledger(MemoryQueue):
    """The memory queue. It records commits, fails on request, and takes partitions away."""

    def __init__(self, partitions=1):
        super().__init__(partitions)
        self.commits = []
        self.finished = []  # out of order
        self.commit_errors = []
        self.fetch_errors = {}
        self.asked = 0

    def send(self, kind, *keys, partition=0):
        assert self.offer(partition, wire.encode_pack(kind, 0, keys))

    def awaited(self, *keys, partition=0):
        """Misses whose readers wait for us."""
        assert self.offer(partition, wire.encode_pack(Kind.MISS, 0, keys, tokens=[1] * len(keys)))

    def touch(self, *keys, partition=0):
        self.send(Kind.TOUCH, *keys, partition=partition)

    def change(self, *keys, partition=0):
        self.send(Kind.CHANGE, *keys, partition=partition)

    async def fetch(self, partition, limit, held=()):
        self.asked += 1
        if self.fetch_errors.get(partition):
            raise self.fetch_errors[partition].pop(0)
        return await super().fetch(partition, limit, held)

    async def commit(self, partition, *, epoch, done, finished=()):
        if self.commit_errors:
            raise self.commit_errors.pop(0)
        if done > max((each[-1] for each in self.commits if each[0] == partition), default=0):
            self.commits.append((partition, epoch, done))
        self.finished += finished
        await super().commit(partition, epoch=epoch, done=done, finished=finished)

    def lose(self, *partitions, settled):
        """Takes these partitions away, for another owner."""
        self._changes.put_nowait(Assignment((), partitions, settled))

    def gain(self, *partitions):
        """Gives these partitions back."""
        self._changes.put_nowait(self._gain(partitions))


class Shell:
    """The surroundings of the partitions. Each namespace has a table in `tables`, by its name."""

    def __init__(self, *namespaces, partitions=1, judged=False, policy=None, log_keys="hash", **changed):
        self.judged = judged
        self.log_keys = log_keys
        self.policy = policy or Fixed()
        loop = asyncio.get_running_loop()
        self.queue = Ledger(partitions)
        self.redis = MemoryRedis(lambda: 1000.0 + loop.time())
        self.writer = Writer(self.redis)
        self.observer = RecordingObserver()
        self.notices = Notices(loop.time)
        self.wall = None  # seconds since 1970
        self.namespaces = namespaces or (namespace(),)
        self.source = self.namespaces[0].source
        self.tables = {each.name: Rows() for each in self.namespaces}
        self.changed = changed

    def make(self, gained, wake_all):
        """Makes a partition as the service does."""
        keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        recipes = {
            each: Recipe(self.tables[each.name], self.writer, encoder("json"), ttl=each.ttl, form="json")
            for each in self.namespaces
        }
        around = self.around = Surroundings(
            self.queue,
            recipes,
            self.writer,
            self.observer,
            random=lambda: 0.5,
            notices=self.notices,
            judged=self.judged,
            log_keys=self.log_keys,
            wall=self.wall,
        )
        engine = Engine(
            keyspace, self.policy, limits=limits(**self.changed), random=lambda: 1.0, offset=gained.offset
        )
        return Partition(gained, engine, around=around, wake_all=wake_all)

    @asynccontextmanager
    async def partition(self):
        """The first partition, executing."""
        change = await anext(self.queue.assignments())
        partition = self.make(change.gained[0], lambda: partition.wake_up())  # noqa: PLW0108  not made yet
        async with executing(partition.execute()):
            yield partition


@asynccontextmanager
async def executing(work):
    """Runs `work` for the time of the block. Its error is raised at the end."""
    task = asyncio.get_running_loop().create_task(work)
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def first_gain(offset=0):
    return Gained(partition=0, epoch=1, offset=offset)
