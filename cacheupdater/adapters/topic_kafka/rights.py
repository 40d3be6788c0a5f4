"""Finds out by trying whether we may read a topic and join a group. The tries leave no trace.

`inspect` calls `read` and `join` once each. A fetch of nothing needs the right to read. A heartbeat of a member that does not
exist needs the right to join. A request for a group's committed offsets would need fewer rights, so it would prove less.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest

from cacheupdater.adapters.topic_kafka.groups import COMING, POLL_S, SETTLE_S
from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.adapters.topic_kafka.cluster import Cluster

LEAD_S = 3.0  # until a broker knows that it leads a partition, which others may know earlier
_NOBODY = "cacheupdater-check"  # a member that no group has

_Error: TypeAlias = Any
"""A class of aiokafka's errors, which has no types."""


async def read(cluster: Cluster, name: str, leaders: Mapping[int, int]) -> Misconfigured | Unavailable | None:
    """Reads from one partition. Returns the error, or None."""
    if not leaders:
        return None  # already reported
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LEAD_S
    while True:
        try:
            error = await _fetched(cluster, name, *next(iter(leaders.items())))
        except Unavailable as e:
            return e
        if error is TopicAuthorizationFailedError:
            return Misconfigured(f"this user may not read the topic {name}: allow Read on it")
        if error in {NoError, OffsetOutOfRangeError}:
            return None
        if not error.retriable or loop.time() > deadline:
            return Unavailable(f"reading fails: {error.description}")
        await asyncio.sleep(POLL_S)


async def _fetched(cluster: Cluster, name: str, partition: int, leader: int) -> _Error:
    """The broker's error code for the smallest fetch, without a wait. The offset does not matter."""
    request = FetchRequest(0, 0, 1, 0, [(name, [(partition, 0, 1)])])
    answer = await cluster.ask(request, broker=leader)
    if not answer.topics:
        raise Unavailable(
            f"a quota of the brokers (consumer_byte_rate) holds this user off for {answer.throttle_time_ms} ms; try again"
        )
    [(_, [(_, code, *_)])] = answer.topics
    return for_code(code)


async def join(cluster: Cluster, group: str) -> Misconfigured | Unavailable | None:
    """Tries whether we may join the group. Returns the error, or None."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        try:
            error = await _beaten(cluster, group)
        except Unavailable as e:
            return e
        if error is GroupAuthorizationFailedError:
            return Misconfigured(f"this user may not join the group {group}: allow Read on the group")
        if error not in COMING:  # "unknown member" is the expected answer
            return None
        if loop.time() > deadline:
            return Unavailable(f"no broker coordinates the group {group} now: {error.description}")
        await asyncio.sleep(POLL_S)


async def _beaten(cluster: Cluster, group: str) -> _Error:
    """The error for a heartbeat: the only request that needs the right to join and changes nothing."""
    found = await cluster.ask(FindCoordinatorRequest(group, 0))
    if found.error_code:
        return for_code(found.error_code)
    answer = await cluster.ask(HeartbeatRequest(group, 0, _NOBODY), broker=found.coordinator_id)
    return for_code(answer.error_code)
