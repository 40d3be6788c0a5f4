"""A user's program: it reads through the client's logic, changes rows and announces them. It may die at any point.

`SimClient` is the client library without its thread and its socket: the real `Buffer` and `Outbox`, driven by the virtual
clock, over a connection that may be lost. The hints of a dead application are gone, as in reality.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from cacheupdater_client.buffer import Buffer
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol import fence, wire
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH
from cacheupdater_client.sender import DRAIN_S, HURRY_S
from simulated.history import CacheEvent, Read
from simulated.lost import Lost
from simulated.topic import TICK

RECONNECT_S = (0.02, 0.5)
SLOW_S = (0.05, 0.4)
BURST = 40  # actions one after the other
QUIET_S = 0.5  # between two bursts


@dataclass(slots=True, eq=False)
class Change:
    """How an application announced one commit of its own."""

    key: bytes
    at: float
    how: str
    fenced: float = inf  # the moment of an invalidation or write_through that Redis has acknowledged
    covers: float = (
        -inf
    )  # commits until then are announced by it; a write_through that has set a value covers its own


class _Encoder:
    encoding, encoding_errors = "utf-8", "strict"

    def encode(self, value):
        return value if isinstance(value, bytes) else value.encode()


class SimClient:
    """Hints from one application to the queue."""

    def __init__(self, process, world):
        self.buffer = Buffer(_Encoder(), self)
        self.outbox = Outbox([b"a:", b"b:"])
        self._process = process
        self._world = world
        self._hurried = asyncio.Event()
        self._connections = 0
        self._arrives = self._acks_arrive = 0.0
        self.look_again()

    def attend(self, buffer):
        """There is always a sender."""
        return buffer is self.buffer

    def look_again(self):
        """Looks at the topic's number of partitions. A new number means a new connection."""
        self._hello = wire.Hello(self._world.broker.partitions, [b"a:", b"b:"])
        self._connection = 0

    def hurry(self):
        self._hurried.set()

    @property
    def idle(self):
        return not (self.buffer or self.outbox)

    async def run(self):
        """The sender's turns."""
        while True:
            if not self._connection:
                await self._connect()
            self._turn()
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self._hurried.wait()
                await asyncio.sleep(HURRY_S)
            except TimeoutError:
                pass
            self._hurried.clear()

    async def _connect(self):
        await asyncio.sleep(self._world.slow(RECONNECT_S) if self._connections else 0.001)
        self._connections += 1
        self._connection = self._connections
        self._accepted = 0
        self._arrives = self._acks_arrive = 0.0  # late frames of an old connection may arrive after the new
        self.outbox.greet(self._hello)

    def _turn(self):
        for kind, counts in self.buffer.drain():
            self.outbox.add(kind, counts)
        while self._connection and (frame := self.outbox.next_frame(0)) is not None:
            self._send(wire.encode_frame(frame.partition, frame.pack))

    def _send(self, frame):
        world, loop = self._world, asyncio.get_running_loop()
        connection, cut = self._connection, world.faults("client_cut")
        delay = world.slow(SLOW_S) if world.faults("client_delay") else world.latency()
        self._arrives = max(self._arrives + TICK, loop.time() + delay)
        if not cut or world.random.random() < 0.5:
            loop.call_at(self._arrives, self._arrive, frame, connection)
        if cut:
            self._connection = 0

    def _arrive(self, frame, connection):
        """The updater's side: puts a frame on the queue, then acknowledges it."""
        world, loop = self._world, asyncio.get_running_loop()
        [(partition, pack)] = wire.FrameReader().feed(frame)
        world.broker.accept(partition, pack)
        if world.faults("queue_duplicate"):
            world.broker.accept(partition, pack)
        if world.faults("queue_garbage"):
            world.broker.accept(partition, world.random.choice((b"", b"\xc1", pack[:-1], b"\x95" + pack)))
        if world.faults("queue_foreign"):  # what the adapter makes of it
            record = wire.encode_pack(TOUCH, 0, [world.random.choice(world.keys)], ())
            world.broker.accept(world.random.randrange(world.broker.partitions), record)
        self._acks_arrive = max(self._acks_arrive + TICK, loop.time() + world.latency())
        loop.call_at(self._acks_arrive, self._acknowledge, connection)

    def _acknowledge(self, connection):
        if connection == self._connection:
            self._accepted += 1
            self.outbox.acknowledge(self._accepted)


class Application:
    """One process of users' code."""

    def __init__(self, process, world):
        self.process = process
        self.client = SimClient(process, world)
        self._world = world
        process.start(self.client.run())
        process.start(self._work())

    async def _work(self):
        world, random = self._world, self._world.random
        while world.busy:
            await asyncio.sleep(self._pause())
            if not world.busy:
                return
            if world.plan.foreign and random.random() < world.plan.foreign:
                await self._write_own(random.choice(world.keys))
            elif random.random() < world.plan.share_of_changes:
                await self._change(random.choice(world.keys))
            else:
                await self._read(random.sample(world.keys, random.randint(1, min(3, len(world.keys)))))

    def _pause(self):
        """Seconds until the next action. In a crowd it acts in bursts, and budgets have time to fill up between two."""
        plan, random = self._world.plan, self._world.random
        if not plan.crowded:
            return random.expovariate(1.0 / plan.pause)
        return random.uniform(0.0, 2 * QUIET_S) if random.random() < 1 / BURST else 0.0

    async def _read(self, keys):
        """MGET."""
        world, buffer = self._world, self.client.buffer
        try:
            values = await world.cache.call(lambda: self._found(keys), kind="mget")
        except Lost:
            return
        for key, value in zip(keys, values, strict=True):
            if value is None:
                buffer.add(MISS, key)
                if world.plan.fills and world.random.random() < world.plan.fills:
                    await self._fill(key)
            else:
                buffer.touch(key.decode())

    def _found(self, keys):
        """At the server."""
        world = self._world
        values = [world.cache.server.get(key) for key in keys]
        if world.plan.fail_safe:
            now = world.seen.clock()
            world.seen.reads += [
                Read(now, key, value is not None) for key, value in zip(keys, values, strict=True)
            ]
        return values

    async def _fill(self, key):
        """A plain SET of what the row is at this very moment. One that is older may stay old while nothing loads its key."""
        world, hint = self._world, CHANGE

        def effect():
            now = world.seen.clock()
            row = world.database.row_at(key, now)
            if row is not None:
                world.faults.fired["app_fill"] += 1
                world.cache.server.set(key, b"%d" % row.version, world.plan.ttl_ms)
                world.cache.log(CacheEvent(now, key, "fill", row.version))

        try:
            await world.cache.call(effect, kind="set")
            hint = SET
        except Lost:
            pass
        finally:
            self.client.buffer.add(hint, key)

    async def _write_own(self, key):
        """Writes a value in a form of its own, as programs do without our client."""
        world = self._world

        def effect():
            world.faults.fired["app_foreign"] += 1
            world.cache.set_foreign(key)

        with suppress(Lost):
            await world.cache.call(effect, kind="set")

    async def _change(self, key):
        world = self._world
        how = world.random.choices(tuple(world.plan.ways), tuple(world.plan.ways.values()))[0]
        since, server = 0, world.cache.server
        if how == "write_through":
            begun = world.seen.clock()
            try:
                since = await world.cache.call(server.token, kind="token")
            except Lost:
                how = "invalidate"
        await asyncio.sleep(world.latency())
        row = world.database.commit(key, absent=world.random.random() < world.plan.share_of_deletes)
        change = Change(key, row.at, how)
        world.changes.append(change)
        if world.faults("app_crash_between"):
            self.process.kill()
        await asyncio.sleep(world.latency())
        self.process.check()
        if how == "silence":
            return
        hint = CHANGE
        try:
            if how == "invalidate":
                await self._invalidate(change)
            elif how == "write_through":
                hint = SET if await self._write_through(change, row.version, since, begun) else CHANGE
            elif how == "delete":
                await self._delete(key)
        except Lost:
            pass
        finally:
            self.client.buffer.add(hint, key)

    async def _invalidate(self, change):
        world = self._world

        def effect():
            world.cache.server.invalidate(change.key, hold_off_ms=world.plan.hold_off_ms)
            now = world.seen.clock()
            return world.cache.log(CacheEvent(now, change.key, "invalidate", covers=now))

        event = await world.cache.call(effect, kind="invalidate")
        event.acked = True
        change.fenced, change.covers = event.at, event.covers

    async def _write_through(self, change, version, since, begun):
        """Whether it has set the value."""
        world, key = self._world, change.key
        value = None if version is None else b"%d" % version

        def effect():
            now = world.seen.clock()
            said = world.cache.server.write_through(
                key, value, world.plan.ttl_ms, since, hold_off_ms=world.plan.hold_off_ms
            )
            if said == fence.SET:
                event = CacheEvent(now, key, "set_through", version, begun=begun, covers=change.at)
            else:
                event = CacheEvent(now, key, "invalidate", covers=now)
            return world.cache.log(event)

        event = await world.cache.call(effect, kind="write_through")
        event.acked = True
        change.fenced, change.covers = event.at, event.covers
        return event.what == "set_through"

    async def _delete(self, key):
        """Deletes without the fence, as programs do without our client."""
        cache = self._world.cache

        def effect():
            cache.server.delete(key)
            cache.log(CacheEvent(self._world.seen.clock(), key, "delete"))

        await cache.call(effect, kind="del")
