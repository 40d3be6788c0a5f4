"""Whether we may read a topic and join a group, found out by trying, without a trace.

`inspect` asks both once. A fetch of nothing needs the right to read, and a heartbeat of a member that does not exist
the right to join; asking for a group's committed places would need less, so it would prove less.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NoError,
    NotCoordinatorForGroupError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import HeartbeatRequest

from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.adapters.topic_kafka.cluster import Cluster

SETTLE_S = 10.0  # until a cluster has made the topic that holds its groups' places, at its very first group
LEAD_S = 3.0  # until a broker knows that it leads a partition, of which others have heard before
POLL_S = 0.1  # between two questions for what will soon be so
_NOBODY = "cacheupdater-check"  # a member that no group has
_COMING = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)

_Error: TypeAlias = Any
"""A class of aiokafka's errors, which has no types."""


async def read(cluster: Cluster, name: str, leaders: Mapping[int, int]) -> Misconfigured | Unavailable | None:
    """Reads from one partition; what stood in the way."""
    if not leaders:
        return None  # said already
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
    """How it goes to fetch the least, at once. Where reading begins does not matter."""
    request = FetchRequest(0, 0, 1, 0, [(name, [(partition, 0, 1)])])
    answer = await cluster.ask(request, broker=leader)
    [(_, [(_, code, *_)])] = answer.topics
    return for_code(code)


async def join(cluster: Cluster, group: str) -> Misconfigured | Unavailable | None:
    """Whether we might join the group; what stood in the way."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        try:
            error = await _beaten(cluster, group)
        except Unavailable as e:
            return e
        if error is GroupAuthorizationFailedError:
            return Misconfigured(f"this user may not join the group {group}: allow Read on the group")
        if error not in _COMING:  # that nobody knows such a member is the answer that was hoped for
            return None
        if loop.time() > deadline:
            return Unavailable(f"no broker looks after the group {group} now: {error.description}")
        await asyncio.sleep(POLL_S)


async def _beaten(cluster: Cluster, group: str) -> _Error:
    """A heartbeat is the one question that needs the right to join and changes nothing."""
    found = await cluster.ask(FindCoordinatorRequest(group, 0))
    if found.error_code:
        return for_code(found.error_code)
    answer = await cluster.ask(HeartbeatRequest(group, 0, _NOBODY), broker=found.coordinator_id)
    return for_code(answer.error_code)
