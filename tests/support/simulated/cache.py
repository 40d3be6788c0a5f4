"""Redis between its users: calls that travel, fail, get cut, arrive late or never; what is stored is `MemoryRedis`.

A call has three moments: it is sent, it happens at the server, its answer comes back. Each can go wrong by itself, and
what has been sent happens even if its sender has died or stopped since. Whoever waits gives up after `CALL_S`.
Writers follow the rule of the real one: after any trouble on a connection, the tokens that it has read are void.
"""

from __future__ import annotations

import asyncio

from cacheupdater.core import answers
from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import Unavailable
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter
from cacheupdater_client.fence import NO_FORMS
from simulated.history import CacheEvent, Removal

CALL_S = 0.2  # as the real writer's second, in the scale of these schedules
LATE_S = (0.2, 1.5)
SLOW_S = (0.03, 0.19)
EPOCH = 1_000.0  # Redis' clock, when ours is at zero
SESSIONS = 3  # connections per writer


class Lost(Exception):
    """The connection failed; whether the command has happened is unknown."""


class Cache:
    """The server, and the way to it."""

    def __init__(self, world):
        self._world = world
        self._ahead = 0.0
        self.server = MemoryRedis(lambda: EPOCH + world.seen.clock() + self._ahead)
        self.down = False
        self.paused = False
        self._generation = 0
        self._queued = []  # arrived while the server was stopped

    async def call(self, effect, *, kind=""):
        """What `effect` answers at the server; raises Lost."""
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
                result = effect()
                if cut:
                    loop.call_later(back, fail, f"{kind}: connection lost")
                else:
                    loop.call_later(back, answer, result)

        gives_up_at = loop.time() + CALL_S
        loop.call_later(there, arrive)
        if there + back >= CALL_S:
            loop.call_at(gives_up_at, fail, f"{kind}: timeout")
        return await reply

    # --- what happens to the server ---------------------------------------------------------------------

    def resume(self):
        """After a pause, what has arrived meanwhile happens now."""
        self.paused = False
        queued, self._queued = self._queued, []
        for arrive in queued:
            arrive()

    def restart(self):
        """Without persistence: all is lost, and so is what was under way."""
        self._generation += 1
        self._queued.clear()
        for key in sorted(self._world.keys):
            self.log(CacheEvent(self._world.seen.clock(), key, "loss"))
        self.server.flush()

    def jump_ahead(self, seconds):
        self._ahead += seconds

    def evict_floor(self, key):
        """maxmemory: the value stays."""
        self.log(CacheEvent(self._world.seen.clock(), key, "loss"))
        self.server.set_floor(key, 0, 0.0)

    def log(self, event):
        """One more change."""
        seen = self._world.seen
        seen.cache.append(event)
        seen.note("redis", event.what, event.key, event.version)
        return event


class SimWriter:
    """`ports.Writer` of one updater process."""

    def __init__(self, cache, process, world):
        self._cache = cache
        self._process = process
        self._world = world
        self._inner = MemoryWriter(cache.server, hold_off_ms=world.plan.hold_off_ms)
        self._session_of = {}
        self._sessions = list(range(SESSIONS))  # numbers; a new one after each trouble

    async def _call(self, effect, *, kind, session=None):
        self._process.check()
        at = self._world.random.randrange(SESSIONS) if session is None else self._sessions.index(session)
        session = self._sessions[at]
        try:
            result = await self._cache.call(effect, kind=kind)
        except Lost as e:
            if self._sessions[at] == session:
                self._sessions[at] = max(self._sessions) + 1
            raise Unavailable(str(e)) from e
        self._process.check()
        return result, session

    async def token(self, keys=()):
        seen = self._world.seen
        flight = seen.begin()
        holder = self._world.broker.holders[flight.owner.partition]
        flight.lost = holder is not None and holder.process != flight.owner.process

        def effect():
            flight.token_at = seen.clock()
            return self._inner.server.token()

        try:
            token, session = await self._call(effect, kind="token")
        except Unavailable:
            flight.ended = seen.clock()
            raise
        while token in self._session_of:  # as the real writer does
            token += 1000
        self._session_of[token] = session
        return token

    async def write(self, token, entries, *, form="type", replace=False):
        world, flight = self._world, self._world.seen.flight()
        session = self._session_of.get(token)
        try:
            if session not in self._sessions:
                said = [answers.TOO_OLD] * len(entries)
            elif len(entries) > 1 and world.faults("redis_partial"):
                await self._call(
                    lambda: self._land(flight, token, entries[:1]), kind="write", session=session
                )
                raise Unavailable("the connection was lost between two parts")
            else:
                said, _ = await self._call(
                    lambda: self._land(flight, token, entries), kind="write", session=session
                )
        finally:
            flight.ended = world.seen.clock()
        flight.answers = {entry.key: answer.result for entry, answer in zip(entries, said, strict=True)}
        return said

    def _land(self, flight, token, entries):
        """At the server."""
        now, said = self._world.seen.clock(), []
        for entry in entries:
            if self._world.faults("redis_key_failed"):
                said.append(Answer(Result.FAILED, why="ERR refused"))
                continue
            answer = self.put(token, entry)
            said.append(answer)
            flight.landed[entry.key] = (now, answer.result)
            if answer.result in {Result.WRITTEN, Result.UNCHANGED}:
                version = None if entry.value is None else int(entry.value)
                self._cache.log(CacheEvent(now, entry.key, "write", version, begun=flight.token_at))
        return said

    def put(self, token, entry):
        """One key, behind the fence."""
        return self._inner.put(token, entry, form="json")

    async def invalidate(self, keys, forms=NO_FORMS):
        world = self._world
        removal = Removal(tuple(keys))
        world.seen.removals.append(removal)

        def effect():
            removal.at = world.seen.clock()
            self._inner.server.invalidate(*keys, hold_off_ms=world.plan.hold_off_ms, forms=forms)
            return [
                self._cache.log(CacheEvent(removal.at, key, "invalidate", covers=removal.at)) for key in keys
            ]

        events, _ = await self._call(effect, kind="invalidate")
        removal.acked = world.seen.clock()
        for event in events:
            event.acked = True
        return [answers.WRITTEN] * len(events)

    async def close(self):
        """Nothing is open."""
