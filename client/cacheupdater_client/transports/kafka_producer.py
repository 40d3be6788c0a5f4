"""aiokafka's producer, as far as the client needs it: the only module of the client that knows the library.

A link makes one for each connection to a cluster and calls it within its pump. Importing this module imports nothing:
aiokafka comes with the first `start`, in the sender's thread.

REQUEST_S bounds connecting, sending and aiokafka's own retries. (Idempotence is off: its batches never expire.) aiokafka's
accumulator holds only what is not acknowledged, so the outbox's window of frames under way bounds it too: 4 MiB, and as much
again while batches are compressed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater_client.protocol.broker import Address, connection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

REQUEST_S = 10.0  # connecting, or one request; then the batch has failed
RETRY_S = 0.2  # between aiokafka's own attempts, and between questions for a topic that is not there
TOPIC_S = 2.0  # a cluster that answers knows its topics; after this time we start anew and say so
METADATA_S = 30.0  # within this time new partitions are noticed
IMPORT_S = 2.0  # the longest that a fork waits for the import, which takes some 0.2 s, once in a process
SAID_MAX = 200  # characters of trouble
_ROOM = 1024 * 1024  # of one batch; the link makes them smaller

_importing = threading.Lock()
_listening: ContextVar[Producer | None] = ContextVar("_listening", default=None)


class Destination(NamedTuple):
    """A topic, and how hints go there."""

    address: Address
    acks: str  # 0, 1 or all
    compression: str  # zstd or none; aiokafka's lz4 costs five times as much


class Producer:
    """One connection to one cluster. All of it is awaited in one loop."""

    def __init__(self, destination: Destination) -> None:
        self._topic = destination.address.topic
        self._destination = destination
        self.said = ""  # the last warning of aiokafka, unless the application has silenced it

    async def start(self) -> None:
        """Returns when the topic's partitions are known."""
        _listening.set(self)
        library = _library()
        address, acks, compression = self._destination
        self._refusals = (
            library.errors.MessageSizeTooLargeError,
            library.errors.RecordListTooLargeError,
            library.errors.InvalidTimestampError,
        )
        self._inner = library.AIOKafkaProducer(
            **connection(address),
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            max_batch_size=_ROOM,
            request_timeout_ms=int(REQUEST_S * 1000),
            retry_backoff_ms=int(RETRY_S * 1000),
            metadata_max_age_ms=int(METADATA_S * 1000),
        )
        await self._inner.start()
        try:
            async with asyncio.timeout(TOPIC_S):
                await self._inner.partitions_for(self._topic)
        except TimeoutError as e:
            raise LookupError(f"the brokers know no topic {self._topic}") from e

    @property
    def partitions(self) -> int:
        """The number of partitions; 0 if the topic is gone."""
        return len(self._inner.client.cluster.partitions_for_topic(self._topic) or ())

    async def deliver(self, partition: int, packs: Sequence[bytes]) -> bool:
        """True when the broker has taken them, False if it never will. Raises if a later attempt may succeed."""
        _listening.set(self)
        batch = self._inner.create_batch()
        for pack in packs:
            batch.append(key=None, value=pack, timestamp=None)
        try:
            taken = await self._inner.send_batch(batch, self._topic, partition=partition)
            await taken
        except self._refusals:
            return False
        return True

    async def stop(self) -> None:
        """Waits for all frames under way. The caller bounds the time."""
        _listening.set(self)
        inner = getattr(self, "_inner", None)
        if inner is not None:
            await inner.stop()


class _Ear(logging.Filter):
    """Keeps aiokafka's lines about our connections out of the application's logs: they may hold keys."""

    def filter(self, record: logging.LogRecord) -> bool:
        producer = _listening.get()
        if producer is None:
            return True  # the application's own use of aiokafka
        if record.levelno >= logging.WARNING:
            producer.said = record.getMessage()[:SAID_MAX]
        return False


_ear = _Ear()


def _library() -> ModuleType:
    with _importing:
        import aiokafka  # noqa: PLC0415  here and not in the application's thread: it takes 0.2 s
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "aiokafka":
            logging.getLogger(name).addFilter(_ear)
    module: ModuleType = aiokafka
    return module


def _before_fork() -> None:
    """A child that is forked during our import would wait for the import's end for ever, once it imports the same."""
    global _held  # noqa: PLW0603  one process, one fork at a time
    _held = _importing.acquire(timeout=IMPORT_S)


def _after_fork() -> None:
    if _held:
        _importing.release()


_held = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
