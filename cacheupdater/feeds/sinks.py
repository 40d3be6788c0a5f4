"""Where a feed's changes go: onto the queue of this updater, as changes that a feed told.

The reader puts keys into a `Sink` and asks later whether they are safe. In a queue that updaters share, keys are safe once the queue
has them (`SharedSink`, by a collector's own parts). A memory queue is lost with its process, so its keys are safe only once they
are refreshed or removed (`MemorySink`). Both live as long as the process.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from cacheupdater.collector.forwarder import Forwarder
from cacheupdater.collector.gathered import Gathered
from cacheupdater.collector.links import made_link
from cacheupdater_client.protocol.wire import CHANGE, encode_pack, partition_of
from cacheupdater_client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cacheupdater.adapters.queue_memory import MemoryQueue
    from cacheupdater.feeds.ledger import Safe
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.protocol.wire import Hello

PACK_KEYS = 500  # of a pack: few enough that others are read between two of them
PACK_BYTES = 64 * 1024  # of the keys of a pack: a quarter of what a pack may have
ORIGIN = (
    "feed"  # of the peer: all feeds of a process are one peer, so that a flood waits behind its own packs
)


class Sink(Protocol):
    """Where keys go."""

    async def put(self, keys: Mapping[bytes, int]) -> Safe:
        """Takes these keys, each with the time of its commit (microseconds since 1970). Waits for room."""
        ...


def _packs(keys: Mapping[bytes, int], partitions: int) -> Iterator[tuple[int, bytes]]:
    """The keys as packs, by partition."""
    now_ms = time.time_ns() // 1_000_000
    parts: dict[int, list[bytes]] = {}
    sizes: dict[int, int] = {}

    def cut(partition: int) -> tuple[int, bytes]:
        part = parts.pop(partition)
        sizes.pop(partition)
        return partition, encode_pack(CHANGE, now_ms, part, tokens=[keys[key] for key in part])

    for key in keys:
        partition = partition_of(key, partitions)
        parts.setdefault(partition, []).append(key)
        sizes[partition] = sizes.get(partition, 0) + len(key)
        if len(parts[partition]) >= PACK_KEYS or sizes[partition] >= PACK_BYTES:
            yield cut(partition)
    for partition in list(parts):
        yield cut(partition)


class _Sent:
    """Packs that were put on the queue together."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = 0

    def is_safe(self) -> bool:
        return not self.open


class MemorySink:
    """The memory queue of this process."""

    def __init__(self, queue: MemoryQueue, partitions: int) -> None:
        self._queue = queue
        self._partitions = partitions
        self._peer = queue.newcomer(ORIGIN)
        self._sent: dict[
            int, tuple[bytes, _Sent]
        ] = {}  # by the identity of a pack, which is kept here until it is finished
        queue.watch(self._peer, self._finished)

    async def put(self, keys: Mapping[bytes, int]) -> Safe:
        """As `Sink`."""
        sent = _Sent()
        for partition, pack in _packs(keys, self._partitions):
            self._sent[id(pack)] = pack, sent
            sent.open += 1
            try:
                await self._queue.put(partition, pack, self._peer)
            except BaseException:
                del self._sent[id(pack)]
                raise
        return sent.is_safe

    def _finished(self, pack: bytes) -> None:
        _, sent = self._sent.pop(id(pack))
        sent.open -= 1


class SharedSink:
    """The queue that this updater shares with others, by a link as a collector has it."""

    def __init__(self, url: str, *, observer: Observer, notices: Notices) -> None:
        """ValueError says what is wrong with the URL."""
        self._gathered = Gathered(observer)
        self._peer = self._gathered.newcomer(ORIGIN)
        self._taken = 0  # packs so far
        self._link = made_link(url)
        self._forwarder = Forwarder(
            self._gathered, self._link, only=(), name=shown(url), observer=observer, notices=notices
        )

    async def run(self) -> None:
        """Forwards until it is cancelled. What is left then was never safe, so it comes again."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="feed") as threads:

            async def aside(work: Callable[[], bool]) -> bool:
                return await loop.run_in_executor(threads, work)

            try:
                await self._forwarder.run(self, aside, lambda: time.time_ns() // 1_000_000)
            finally:
                self._gathered.close()
                await loop.run_in_executor(threads, self._forwarder.close)

    async def put(self, keys: Mapping[bytes, int]) -> Safe:
        """As `Sink`."""
        for partition, pack in _packs(keys, 1):  # the outbox cuts anew
            await self._gathered.put(partition, pack, self._peer)
            self._taken += 1
        upto = self._taken
        return lambda: self._taken - self._gathered.owed(self._peer) >= upto

    def hello(self, hello: Hello) -> None:
        """As `forwarder.Listening`: nobody listens here."""

    def acknowledge(self) -> None:
        """As `forwarder.Listening`: the reader looks for itself."""
