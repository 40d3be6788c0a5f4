"""Redis and the way to it: calls that travel, fail, get cut, arrive late or never. The data is in `MemoryRedis`.

A call has three moments: it is sent, it happens at the server, and its answer comes back. Each may fail alone. A call that was
sent happens even if its sender has died or stopped since. A caller gives up after `CALL_S`. Updaters call it by the real
writer, over `connection`; applications and fleets call it directly.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from math import inf

from cacheupdater.adapters.writer_redis import sessions, standalone
from cacheupdater.adapters.writer_redis.standalone import RedisWriter
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.testing.memory_fleet import MemoryRecords
from cacheupdater.testing.memory_redis import MemoryRedis
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.fence import NO_FORMS
from simulated.connection import SimConnection, SimSession
from simulated.history import OWNED, CacheEvent, ForeignGone, Prolonged, Removal
from simulated.lost import Lost

CALL_S = 0.2  # the real writer's second, in the scale of these schedules
LATE_S = (0.2, 1.5)
SLOW_S = (0.03, 0.19)
EPOCH = 1_000.0  # Redis' clock when ours is at zero
SESSIONS = 3  # connections per writer, at most: with one, calls wait and are sent together
ADDRESS = "redis://simulated:6379"
FOREIGN = b"foreign "  # begins the values that an application wrote itself: it is not JSON


@contextmanager
def hurried(plan):
    """Sets the writer's time per call, and the size of a call, in the scale of these schedules.

    The writer also skips redis-py's parsing of its URL, which takes a millisecond: its connections are ours.
    """
    changes = (
        (sessions, "CALL_TIMEOUT_S", CALL_S),
        (sessions, "Session", SimSession),
        (standalone, "WINDOW", plan.window),
        (standalone, "connector", lambda url: None),
        (fence, "SCRIPT_KEYS_MAX", plan.script_keys),
    )
    real = [getattr(module, name) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(changes, real, strict=True):
            setattr(module, name, value)


class Cache:
    """The server, and the way to it."""

    def __init__(self, world):
        self._world = world
        self._ahead = 0.0
        self.server = MemoryRedis(lambda: EPOCH + world.seen.clock() + self._ahead)
        self.records = MemoryRecords(self.server._clock)
        if world.plan.grown:
            self.records.born["main"] = 0.0  # long ago by its clock
        self.down = False
        self.paused = False
        self._generation = 0
        self._queued = []  # arrived while the server was stopped
        self._foreign = 0
        self.scripts = set()  # the scripts that were sent to it

    async def call(self, effect, *, kind="", patience=CALL_S):
        """Runs `effect` at the server and returns its answer. Raises Lost if the call fails on its way or there."""
        loop, world = asyncio.get_running_loop(), self._world
        reply = loop.create_future()
        cut = world.faults("redis_cut")
        error = not cut and world.faults("redis_error")
        back = world.slow(SLOW_S) if world.faults("redis_delay") else world.latency()
        there = world.slow(LATE_S) if world.faults("redis_late") else world.latency()
        generation = self._generation

        def answer(result):
            if not reply.done():
                reply.set_result(result)

        def fail(why):
            if not reply.done():
                reply.set_exception(Lost(why))

        def arrive():
            if self.down or generation != self._generation or error:
                fail(f"{kind}: connection refused")
            elif self.paused:
                self._queued.append(arrive)
                loop.call_at(gives_up_at, fail, f"{kind}: timeout")
            else:
                try:
                    result = effect()
                except Lost as e:
                    fail(str(e))
                    return
                if cut:
                    loop.call_later(back, fail, f"{kind}: connection lost")
                else:
                    loop.call_later(back, answer, result)

        gives_up_at = loop.time() + patience
        loop.call_later(there, arrive)
        if there + back >= patience:
            loop.call_at(gives_up_at, fail, f"{kind}: timeout")
        return await reply

    # --- what happens to the server ---------------------------------------------------------------------

    def resume(self):
        """Ends a pause: calls that arrived meanwhile happen now."""
        self.paused = False
        queued, self._queued = self._queued, []
        for arrive in queued:
            arrive()

    def restart(self):
        """Restarts without persistence: all data is lost, and so are calls under way."""
        self._generation += 1
        self._queued.clear()
        for key in sorted(self._world.keys):
            self.log(CacheEvent(self._world.seen.clock(), key, "loss"))
        self.server.flush()
        self.scripts.clear()
        self.records.lose()

    def jump_ahead(self, seconds):
        self._ahead += seconds

    def evict_floor(self, key):
        """Evicts a floor, as maxmemory may; the value stays."""
        self.log(CacheEvent(self._world.seen.clock(), key, "loss"))
        self.server.set_floor(key, 0, 0.0)

    def set_foreign(self, key):
        """An application's SET. Each such value is different."""
        self._foreign += 1
        self.server.set(key, FOREIGN + b"%d" % self._foreign, self._world.plan.ttl_ms)
        self.log(CacheEvent(self._world.seen.clock(), key, "foreign"))

    def look_after(self, key, before, process):
        """W1: an updater has just changed this key. The value before may have been an application's."""
        if isinstance(before, bytes) and before.startswith(FOREIGN) and self.server.get(key) != before:
            seen = self._world.seen
            seen.foreign_gone.append(ForeignGone(seen.clock(), key, process))

    def log(self, event):
        """Records one more change."""
        seen = self._world.seen
        seen.cache.append(event)
        seen.note("redis", event.what, event.key, event.version)
        return event


class Task:
    """One task of an updater at Redis: a refresh with its flight, a removal, or a request for more time."""

    def __init__(self, seen, flight=None, removal=None, request=None):
        self._seen = seen
        self._flight = flight
        self._removal = removal
        self._request = request  # (owner, when it was sent)

    @property
    def token_at(self):
        return self._flight.token_at

    def timed(self, now):
        self._flight.token_at = now

    def land(self, key, now, result):
        self._flight.landed[key] = (now, result)

    def prolonged(self, key, now):
        owner, sent = self._request
        self._seen.prolonged.append(Prolonged(now, key, owner, sent))

    def remove(self, events, now):
        """Records a removal. Two attempts may both arrive; the acknowledged one counts."""
        if self._removal.acked == inf:
            self._removal.at = now
            self._removal.events += events


class SimWriter:
    """`ports.Writer` of one updater process: the real one, over connections of ours, with the checkers' records."""

    def __init__(self, cache, process, world):
        self._cache = cache
        self.process = process
        self._world = world
        self._removals = {}  # by task
        self._requests = {}
        self.redis = RedisWriter(
            ADDRESS, connections=1 + world.plan.seed % SESSIONS, hold_off_ms=world.plan.hold_off_ms
        )
        self.redis._where._connect = lambda: SimConnection(cache, self, world)

    def task_of(self, sender):
        """What this asyncio task does at Redis now."""
        seen = self._world.seen
        return Task(seen, seen.flight_of(sender), self._removals.get(sender), self._requests.get(sender))

    def put(self, stamp, entry, life, *, form):
        """Writes one key at the server, behind the fence."""
        return self._cache.server._commit(stamp, entry, life, form=form)

    def prolong_one(self, key, grace, form):
        """Gives one value more time at the server."""
        return self._cache.server.prolong(key, grace=grace, form=form)[0]

    async def token(self, keys=()):
        self.process.check()
        seen = self._world.seen
        flight = seen.begin()
        try:
            token = await self.redis.token(keys)
        except CacheUpdaterError:
            flight.ended = seen.clock()
            raise
        self.process.check()
        return token

    async def write(self, token, entries, *, form="type", replace=False):
        self.process.check()
        seen = self._world.seen
        flight = seen.flight()
        try:
            said = await self.redis.write(token, entries, form=form, replace=replace)
        finally:
            flight.ended = seen.clock()
        self.process.check()
        flight.answers = {key: answer.result for (key, _, _), answer in zip(entries, said, strict=True)}
        return said

    async def invalidate(self, keys, forms=NO_FORMS, *, only_ours=()):
        self.process.check()
        seen, task = self._world.seen, asyncio.current_task()
        removal = self._removals[task] = Removal(tuple(keys))
        seen.removals.append(removal)
        try:
            said = await self.redis.invalidate(keys, forms, only_ours=only_ours)
        finally:
            del self._removals[task]
        self.process.check()
        removal.acked = seen.clock()
        for event in removal.events:
            event.acked = True
        return said

    async def prolong(self, keys, grace, form=None):
        self.process.check()
        task = asyncio.current_task()
        self._requests[task] = (OWNED.get(), self._world.seen.clock())
        try:
            said = await self.redis.prolong(keys, grace, form)
        finally:
            del self._requests[task]
        self.process.check()
        return said

    async def look(self, keys, *, values=False):
        self.process.check()
        found = await self.redis.look(keys, values=values)
        self.process.check()
        return found

    async def scan(self, prefix):
        self.process.check()
        async for page in self.redis.scan(prefix):
            self.process.check()
            yield page

    async def close(self):
        await self.redis.close()
