"""The four applications. Their code is one function, `product`; they differ in the Redis client that they pass to it.

Each runs in a process of its own, as real applications do, so that none waits for another's interpreter lock. Its threads
read products at a steady pace, in the same order as the other applications, whether the last read has ended or not. It
reports its reads to the conductor, which knows the true values.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import Catalogue
from cacheupdater.demo.ledger import Read
from cacheupdater.demo.shop import Database
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from cacheupdater.demo.shop import Product

_LAG_MAX_S = 10.0  # a machine that stalls for longer cannot carry the load: reads are then left out


@dataclass(frozen=True, slots=True)
class Lane:
    """One application."""

    name: str  # also its namespace and its source: its keys are "<name>:product:<number>"
    title: str
    words: str  # what it is, for the legend
    served: bool = True  # whether it imports our client, and an updater refreshes its keys

    def key(self, product: int) -> str:
        return f"{self.name}:product:{product}"


TTL = Lane("ttl", "TTL", "redis-py, cache-aside, with a TTL that costs the same rows", served=False)
FIXED = Lane("fixed", "fixed", "our client; keys that are read are refreshed at a fixed interval")
PRICE = Lane("price", "price", "our client; the policy learns which keys are read and which change")
TOLD = Lane("told", "price + invalidate", "the same, and the back office announces each change")
LANES = (TTL, FIXED, PRICE, TOLD)
SERVED = (FIXED, PRICE, TOLD)


class Cache(Protocol):
    """The part of a Redis client that cache-aside needs."""

    def get(self, name: str) -> bytes | None: ...
    def set(self, name: str, value: str, *, px: int) -> object: ...


def product(cache: Cache, key: str, database: Database, *, number: int, ttl: float) -> tuple[Product, bool]:
    """The code of all four applications: ordinary cache-aside. Also returns whether the reader had to wait."""
    body = cache.get(key)
    if body is not None:
        return json.loads(body), False
    row = database.product(number)
    cache.set(key, json.dumps(row), px=round(ttl * 1000))
    return row, True


class Report(NamedTuple):
    """A message of an application to the conductor."""

    reads: list[Read]
    delivered: int  # hints that have reached an updater since the beginning


@dataclass(frozen=True, slots=True)
class Premises:
    """The arguments of an application."""

    redis_url: str
    database: Path
    emit: str
    seed: int
    ttl: float  # seconds, at first


class Application:
    """The conductor's end of one application's process."""

    def __init__(self, lane: Lane, premises: Premises) -> None:
        self.lane = lane
        self.delivered = 0
        spawn = multiprocessing.get_context("spawn")  # a fork would take threads and sockets along
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(
            target=_serve, args=(lane, premises, theirs), name=lane.name, daemon=True
        )
        self._process.start()
        theirs.close()

    def wait_ready(self) -> None:
        """Returns when its cache is warm."""
        if not self._pipe.poll(plan.START_TIMEOUT_S):
            raise CacheUpdaterError(f"the application {self.lane.name!r} does not start")
        self._receive()

    def open(self, at: float) -> None:
        """Starts the reads at the time `at`."""
        self._pipe.send(at)

    def keep(self, ttl: float) -> None:
        """Gives it another TTL."""
        with suppress(BrokenPipeError):  # `reads` says that it has ended
            self._pipe.send(ttl)

    def reads(self) -> list[Read]:
        """What has been read since the last call."""
        reads: list[Read] = []
        while self._pipe.poll():
            report = self._receive()
            if isinstance(report, Report):
                reads += report.reads
                self.delivered = report.delivered
        return reads

    def _receive(self) -> Report | str:
        try:
            message: Report | str = self._pipe.recv()
        except EOFError:
            raise CacheUpdaterError(f"the application {self.lane.name!r} has ended; see above") from None
        return message

    def close(self) -> None:
        """Ends it in order, or by SIGKILL if that takes too long."""
        self._pipe.close()
        self._process.join(plan.EOF_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(lane: Lane, premises: Premises, pipe: Connection) -> None:
    """The process of one application. It ends when the conductor's end of the pipe closes, for whatever reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the conductor
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _read_on(lane, premises, pipe)


def _read_on(lane: Lane, premises: Premises, pipe: Connection) -> None:
    cache, database = _client(lane, premises), Database(premises.database)
    for number in range(1, plan.PRODUCTS + 1):  # a shop that opens with a warm cache
        product(cache, lane.key(number), database, number=number, ttl=premises.ttl)
    pipe.send("ready")
    opening = pipe.recv()
    counter = Counter(lane, premises, cache)
    for at in range(plan.READERS):
        threading.Thread(target=counter.serve, args=(at, opening), daemon=True).start()
    while True:
        time.sleep(plan.BATCH_S)
        while pipe.poll():
            counter.ttl = pipe.recv()
        pipe.send(Report(counter.taken(), _delivered(lane)))


class Counter:
    """The threads in which an application serves its shoppers."""

    def __init__(self, lane: Lane, premises: Premises, cache: Cache) -> None:
        self.ttl = premises.ttl
        self._lane = lane
        self._premises = premises
        self._cache = cache
        self._reads: SimpleQueue[Read | Exception] = SimpleQueue()  # emptied every BATCH_S

    def serve(self, at: int, due: float) -> None:
        """One thread, which serves every `READERS`-th shopper at a steady pace. `taken` raises its errors."""
        try:
            self._serve(at, due + at / plan.READS_PER_S)
        except Exception as e:  # noqa: BLE001  nothing may end a thread unseen: `taken` raises it
            self._reads.put(e)

    def _serve(self, at: int, due: float) -> None:
        lane, database = self._lane, Database(self._premises.database)
        shoppers = Catalogue(self._premises.seed).shoppers()
        for number in islice(shoppers, at, None, plan.READERS):
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            value, waited = product(self._cache, lane.key(number), database, number=number, ttl=self.ttl)
            took = time.monotonic() - began
            self._reads.put(Read(number, value["id"], value["version"], began, waited, took))
            due = max(due + plan.READERS / plan.READS_PER_S, began - _LAG_MAX_S)

    def taken(self) -> list[Read]:
        """What has been read since the last call."""
        reads = []
        while not self._reads.empty():
            read = self._reads.get()
            if isinstance(read, Exception):
                raise read
            reads.append(read)
        return reads


def _client(lane: Lane, premises: Premises) -> Cache:
    """The only difference between the applications: the package that `Redis` is imported from."""
    if lane.served:
        from cacheupdater_client import Redis

        return cast("Cache", Redis.from_url(premises.redis_url, emit=premises.emit))
    from redis import Redis as PlainRedis

    return cast("Cache", PlainRedis.from_url(premises.redis_url))


def _delivered(lane: Lane) -> int:
    if not lane.served:
        return 0
    from cacheupdater_client import stats

    return stats()["delivered"]
