"""kafka://host:9092,host:9092/topic: packs straight into the partitions of a topic, without an updater in between.

aiokafka speaks to the brokers, in an event loop that runs only while the sender's thread takes a turn here (`pump`). The
topic's metadata is the hello: its number of partitions, and every key. Acknowledgements come back in any order; the outbox
gets those before which no frame is missing. A fault costs the connection, never a frame. The exception is a frame that the
topic refuses for ever (too large): it is dropped and counted, so that it does not block the others.

A hint in a small record costs an updater and a broker several times as much as in a record of a hundred, so touches linger.
"""

from __future__ import annotations

import importlib.util
import random
from collections import deque
from typing import TYPE_CHECKING, Protocol

from cacheupdater_client.protocol.broker import PACKAGES, parse
from cacheupdater_client.protocol.wire import Hello
from cacheupdater_client.transports.kafka_producer import SAID_MAX, Destination, Producer
from cacheupdater_client.transports.linger import Linger
from cacheupdater_client.transports.pump import Pump
from cacheupdater_client.transports.stream import BACKOFF_FIRST_S, BACKOFF_MAX_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cacheupdater_client.outbox import Outbox

SLICE_S = 0.005  # of a turn for the loop; less when all is acknowledged sooner
BATCH_BYTES = (
    64 * 1024
)  # compressed in one piece, which keeps the application's threads waiting for half a millisecond
HOPE_S = 0.5  # without progress for so long: turns at the usual pace will do
STALL_S = 30.0  # three requests' time without progress: the library waits in vain
_ACKS = ("0", "1", "all")
_COMPRESSIONS = ("zstd", "none")


class Delivering(Protocol):
    """A Producer, as the link sees it."""

    said: str

    @property
    def partitions(self) -> int: ...

    async def start(self) -> None: ...

    async def deliver(self, partition: int, packs: Sequence[bytes]) -> bool: ...

    async def stop(self) -> None: ...


def kafka_to(url: str) -> Callable[[], KafkaLink]:
    """A function that makes a link to this topic. ValueError says what is wrong with the URL, or what is not installed."""
    address = parse(url, options=("acks", "compression"))
    acks, compression = address.options.get("acks", "1"), address.options.get("compression", "zstd")
    if acks not in _ACKS:
        raise ValueError(f"does not know acks={acks}; there are {', '.join(_ACKS)}")
    if compression not in _COMPRESSIONS:
        raise ValueError(f"does not know compression={compression}; there are {', '.join(_COMPRESSIONS)}")
    needed = ("aiokafka",) if compression == "none" else ("aiokafka", "cramjam")  # which brings zstd
    if not all(map(importlib.util.find_spec, needed)):
        raise ValueError(f"needs aiokafka: pip install {PACKAGES}")
    return lambda: KafkaLink(Destination(address, acks, compression))


class _Flight:
    """One frame under way. `taken`: True when it has arrived, False when it never will."""

    __slots__ = ("pack", "taken")

    def __init__(self, pack: bytes) -> None:
        self.pack = pack
        self.taken: bool | None = None


class KafkaLink:
    """One connection at a time to the cluster of one topic."""

    def __init__(
        self, destination: Destination, make: Callable[[Destination], Delivering] = Producer
    ) -> None:
        self._make = make
        self._destination = destination
        self._pump: Pump | None = None
        self._producer: Delivering
        self._partitions = 0
        self._flights: deque[_Flight] = deque()
        self._settled = 0  # frames of this connection, as the outbox counts them
        self._more = False  # the window was full, and more hints waited
        self._moved_at = 0.0
        self._linger = Linger()
        self._retry_at = 0.0
        self._backoff = BACKOFF_FIRST_S
        self.connected = False
        self.trouble = ""

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """Connects, sends and hears acknowledgements, as far as one slice of time allows."""
        try:
            return self._turn(outbox, now, now_ms)
        except Exception as e:  # noqa: BLE001  asyncio, TLS, aiokafka, files: each of their faults costs the connection
            said = self._producer.said if self._pump is not None else ""
            self.close()
            self.trouble = said or str(e)[:SAID_MAX] or type(e).__name__
            # between half and whole, so that many processes do not come back in step
            self._retry_at = now + self._backoff * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, guards nothing
            self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
            return False

    def _turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        if self._pump is None:
            if now < self._retry_at or not outbox.calls:
                return False
            self._open(now)
        assert self._pump is not None
        if self.connected:
            self._greet(outbox)
            self._fill(outbox, now, now_ms)
        self._pump.run(SLICE_S)
        self._settle(outbox, now)
        if self._pump.error is not None:
            raise self._pump.error
        if not self.connected and not self._pump.busy:
            self._greet(outbox)
            self.connected, self._moved_at = True, now
            return True
        if self._pump.busy and now - self._moved_at > STALL_S:
            raise TimeoutError("the brokers do not answer")
        return (self._pump.busy or self._more) and now - self._moved_at < HOPE_S

    def _open(self, now: float) -> None:
        self._pump, self._producer = Pump(), self._make(self._destination)
        self._moved_at = now
        self._pump.start(self._producer.start())

    def _greet(self, outbox: Outbox) -> None:
        """Passes on the number of partitions. Frames cut for another number may still arrive too, which is harmless."""
        partitions = self._producer.partitions
        if not partitions:
            raise LookupError(f"topic {self._destination.address.topic} is gone")
        if partitions != self._partitions:
            self._partitions = partitions
            self._flights.clear()
            self._settled = 0
            outbox.greet(Hello(partitions, []))

    def _fill(self, outbox: Outbox, now: float, now_ms: int) -> None:
        """Hands over as many frames as the window has room for."""
        assert self._pump is not None
        weakest = self._linger.weakest(outbox, now, self._partitions, hurried=self._more)
        if not self._flights:
            self._moved_at = now
        shares: dict[int, list[_Flight]] = {}
        while frame := outbox.next_frame(now_ms, weakest=weakest):
            flight = _Flight(frame.pack)
            self._flights.append(flight)
            shares.setdefault(frame.partition, []).append(flight)
        for partition, flights in shares.items():
            for batch in _batches(flights):
                self._pump.start(_deliver(self._producer, partition, batch))
        self._more = outbox.blocked

    def _settle(self, outbox: Outbox, now: float) -> None:
        """Tells the outbox of all frames before the first that is still under way."""
        before = self._settled
        while self._flights and self._flights[0].taken is not None:
            flight = self._flights.popleft()
            self._settled += 1
            if flight.taken:
                outbox.acknowledge(self._settled)
                self.trouble = self._producer.said = ""
                self._backoff = BACKOFF_FIRST_S
            else:
                outbox.refuse()
                self.trouble = f"the topic refuses a record of {len(flight.pack)} bytes"
        if self._settled > before:
            self._moved_at = now
        elif self._producer.said:
            self.trouble = self._producer.said

    def close(self) -> None:
        """Leaves the cluster within a bounded time; in a forked child, without sending a byte."""
        pump, self._pump = self._pump, None
        self._flights.clear()
        self._settled = self._partitions = 0
        self.connected = self._more = False
        if pump is not None:
            pump.close(self._producer.stop)


def _batches(flights: Iterable[_Flight]) -> Iterator[list[_Flight]]:
    """Frames that go together, at least one."""
    batch: list[_Flight] = []
    size = 0
    for flight in flights:
        if batch and size + len(flight.pack) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(flight)
        size += len(flight.pack)
    yield batch


async def _deliver(producer: Delivering, partition: int, flights: list[_Flight]) -> None:
    """A refused batch is sent again frame by frame, so that one bad frame does not cost the others."""
    taken = await producer.deliver(partition, [flight.pack for flight in flights])
    if taken or len(flights) == 1:
        for flight in flights:
            flight.taken = taken
        return
    for flight in flights:
        await _deliver(producer, partition, [flight])
