"""The port `Waiting` on a topic of Kafka: the packs behind the offsets that a group has committed.

`service.waiting` makes one `TopicWaiting` for a command. It joins no group, so it causes no rebalance. `drop` deletes records, which
works beside a living group: its members find that these offsets are gone, go on behind them, and count them as lost. Where the group
has no members, the offsets are committed too, so the next updater misses nothing.

Batches are unpacked by `queue_kafka`'s function, which is an argument here.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka.errors import (
    NoError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from cacheupdater.adapters.topic_kafka import groups
from cacheupdater.adapters.topic_kafka.cluster import ANSWER_S, reached
from cacheupdater.adapters.topic_kafka.topic import described
from cacheupdater.depot_ports import Lag
from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.adapters.topic_kafka.cluster import Cluster
    from cacheupdater.ports import Message
    from cacheupdater_client.protocol.broker import Address

    Unpack: TypeAlias = Callable[[bytes, int, int], tuple[list[Message], int]]
    """The packs in these batches from an offset on, at most so many, and the offset from which to go on."""

FETCH_BYTES = 1024 * 1024  # of one partition, as stored; the first batch comes whole, however large
HELD_OFF_S = 30.0  # in which one fetch must get an answer under a quota; a broker holds us off for 11 s at a time, by default
_BREATH_S = 0.1  # seconds before we ask again, if the broker names no time
_FIRST, _END = -2, -1  # what OffsetRequest calls them
_NO_LEADER = -1
_EVERYBODY = -1  # no replica asks
_SEEN = 0  # isolation: packs of transactions under way count, as for an updater


class _Moving(Unavailable):
    """Brokers differ about the leader of a partition, as they do for a moment after an election and in a new topic."""


class TopicWaiting:
    """The waiting packs of one topic, for one group."""

    def __init__(self, address: Address, group: str, *, unpack: Unpack) -> None:
        self._address = address
        self._topic = address.topic
        self._group = group
        self._unpack = unpack
        self._stack = AsyncExitStack()
        self._reached: Cluster | None = None
        self._leaders: dict[int, int] = {}
        self._ends: Mapping[int, int] = {}

    async def lag(self) -> Sequence[Lag]:
        """As the port says. Where nothing is committed, everything waits. Asks again while a partition gets another leader."""
        clock = asyncio.get_running_loop().time
        ends = clock() + ANSWER_S
        while True:
            try:
                return await self._lag()
            except _Moving:
                if clock() > ends:
                    raise
                await asyncio.sleep(_BREATH_S)

    async def _lag(self) -> Sequence[Lag]:
        cluster = await self._cluster()
        found = await described(cluster, self._topic)
        if found is None:
            raise Misconfigured(f"there is no topic {self._topic}: `cacheupdater topic create` makes it")
        self._leaders = {number: leader for number, leader, _, _ in found}
        if away := [number for number, leader in self._leaders.items() if leader == _NO_LEADER]:
            raise Unavailable(f"partition {away[0]} has no leader: its brokers are down; try again")
        # in this order: what comes and is finished between the answers can then move no commit behind its end
        done = await groups.committed(cluster, self._group, self._topic, list(self._leaders))
        firsts = await self._offsets(cluster, _FIRST)
        self._ends = ends = await self._offsets(cluster, _END)
        owners = await groups.owners(cluster, self._group, self._topic)
        lags = []
        for number in sorted(self._leaders):
            first, end = firsts[number], ends[number]
            wanted = done.get(number, first)
            # outside of the topic: retention has taken some, or the topic was made again
            at = wanted if first <= wanted <= end else first
            lags.append(Lag(number, at, end, end - at, owners.get(number)))
        return lags

    async def _offsets(self, cluster: Cluster, which: int) -> Mapping[int, int]:
        """The first offset of each partition, or the one behind its last."""
        offsets: dict[int, int] = {}
        for leader in sorted(set(self._leaders.values())):
            asked = [(number, which) for number, led in self._leaders.items() if led == leader]
            answer = await cluster.ask(
                OffsetRequest(_EVERYBODY, _SEEN, [(self._topic, asked)]), broker=leader
            )
            for number, code, *_, offset in answer.topics[0][1]:
                self._check(number, for_code(code))
                offsets[number] = offset
        return offsets

    async def read(self, after: Mapping[int, int], limit: int) -> Mapping[int, Sequence[Message]]:
        """As the port says, by one request for each partition."""
        cluster = await self._cluster()
        found = {each: await self._read_one(cluster, each, at, limit) for each, at in after.items()}
        return {partition: messages for partition, messages in found.items() if messages}

    async def _read_one(self, cluster: Cluster, partition: int, at: int, limit: int) -> list[Message]:
        """Passes batches that hold no packs, such as the marks of transactions; each round goes on behind them."""
        while True:
            error, raw = await self._fetched(cluster, partition, at)
            messages: list[Message] = []
            if error is OffsetOutOfRangeError:
                # retention, or another purge, has taken some; else we are behind the end
                further = max(at, (await self._offsets(cluster, _FIRST))[partition])
            else:
                self._check(partition, error)
                messages, further = self._unpack(raw, at, limit)
            if messages:
                return messages
            if further == at:
                self._check_end(partition, at)
                return []
            at = further

    def _check_end(self, partition: int, at: int) -> None:
        """Behind every offset before the end lies a batch, if only an empty one. So nothing there is no answer."""
        if at < self._ends[partition]:
            raise Unavailable(
                f"partition {partition} shows nothing from offset {at} on, but had packs up to {self._ends[partition]}:"
                " its leader has just changed, or the topic was made again; try again"
            )

    async def _fetched(self, cluster: Cluster, partition: int, at: int) -> tuple[Any, bytes]:
        """The answer of the partition's leader. Under a quota the leader may name no topic, but a time for which we must wait."""
        request = FetchRequest(0, 0, FETCH_BYTES, _SEEN, [(self._topic, [(partition, at, FETCH_BYTES)])])
        left = HELD_OFF_S
        while not (answer := await cluster.ask(request, broker=self._leaders[partition])).topics:
            held_off = max(_BREATH_S, answer.throttle_time_ms / 1000)
            left -= held_off
            if left < 0:
                raise Unavailable(
                    f"a quota of the brokers (consumer_byte_rate) holds this user off for more than {HELD_OFF_S:g} s"
                )
            await asyncio.sleep(held_off)
        [(_, [(_, code, *_, raw)])] = answer.topics
        return for_code(code), bytes(raw or b"")

    async def drop(self, partition: int, end: int) -> None:
        """As the port says."""
        cluster = await self._cluster()
        request = DeleteRecordsRequest([(self._topic, [(partition, end)])], int(ANSWER_S * 1000))
        answer = await cluster.ask(request, broker=self._leaders[partition])
        [(_, [(_, _, code, *_), *_], *_), *_] = answer.topics
        self._check_deletion(partition, for_code(code))
        done = await groups.committed(cluster, self._group, self._topic, [partition])
        if done.get(partition, -1) < end:
            await groups.commit(cluster, self._group, self._topic, {partition: end})

    def _check_deletion(self, partition: int, error: Any) -> None:
        if error is TopicAuthorizationFailedError:
            raise Misconfigured(f"this user may not delete records: allow Delete on the topic {self._topic}")
        if error is PolicyViolationError:
            raise Misconfigured(
                f"the topic {self._topic} is compacted, so its records cannot be deleted: set cleanup.policy to delete"
            )
        self._check(partition, error)

    def _check(self, partition: int, error: Any) -> None:
        if error is TopicAuthorizationFailedError:
            raise Misconfigured(f"this user may not read the topic {self._topic}: allow Read on it")
        if error is not NoError:
            kind = _Moving if error.retriable else Unavailable
            raise kind(f"partition {partition} cannot be used now: {error.description}")

    async def _cluster(self) -> Cluster:
        if self._reached is None:
            self._reached = await self._stack.enter_async_context(reached(self._address))
        return self._reached

    async def close(self) -> None:
        """Nothing of Kafka's changes."""
        await self._stack.aclose()
