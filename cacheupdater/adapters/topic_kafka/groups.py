"""What a group says about one topic: which offsets are committed, and which member owns which partition.

`owners` and `waiting` ask here, over their own connections. Nothing here joins a group. Only `commit` changes anything, and only
where the group has no members: a group with members refuses the commits of others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    NoError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.topic_kafka.cluster import Cluster

SETTLE_S = 10.0  # until a new cluster has made the topic with the offsets of its groups, at the first group
POLL_S = 0.1  # between two requests meanwhile
_COMING = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
_LIVING = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)
_NO_GENERATION, _NO_MEMBER, _BROKERS_DECIDE = -1, "", -1


async def coordinator_of(cluster: Cluster, group: str) -> int:
    """The broker that coordinates the group. Waits a while for a new cluster, which may have none yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        found = await cluster.ask(FindCoordinatorRequest(group, 0))
        if for_code(found.error_code) not in _COMING or loop.time() > deadline:
            _check(found.error_code, group)
            return int(found.coordinator_id)
        await asyncio.sleep(POLL_S)


async def owners(cluster: Cluster, group: str, topic: str) -> Mapping[int, str]:
    """By partition, the member that owns it: its instance or client, and its host."""
    answer = await cluster.ask(DescribeGroupsRequest([group]), broker=await coordinator_of(cluster, group))
    [(code, _, _, _, _, members, *_)] = answer.groups
    _check(code, group)
    return {partition: _named(each) for each in members for partition in _owned(each, topic)}


async def committed(cluster: Cluster, group: str, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
    """The committed offsets, without partitions that have none."""
    request = OffsetFetchRequest(group, [(topic, list(partitions))])
    answer = await cluster.ask(request, broker=await coordinator_of(cluster, group))
    rows = [row for _, rows in answer.topics for row in rows]
    for code in (getattr(answer, "error_code", 0), *(code for _, _, _, code in rows)):
        _check(code, group)
    return {partition: offset for partition, offset, _, _ in rows if offset >= 0}


async def commit(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
    """Commits for a group without members. False: it has some, which commit for themselves."""
    places = [(partition, offset, "") for partition, offset in offsets.items()]
    request = OffsetCommitRequest(group, _NO_GENERATION, _NO_MEMBER, _BROKERS_DECIDE, [(topic, places)])
    answer = await cluster.ask(request, broker=await coordinator_of(cluster, group))
    codes = [code for _, rows in answer.topics for _, code in rows]
    if any(for_code(code) in _LIVING for code in codes):
        return False
    for code in codes:
        _check(code, group)
    return True


def _check(code: int, group: str) -> None:
    error: Any = for_code(code)
    if error is GroupAuthorizationFailedError:
        raise Misconfigured(f"this user may not look at the group {group}: allow Read on the group")
    if error is not NoError:
        raise Unavailable(f"the brokers do not answer for the group {group} now: {error.description}")


def _owned(member: Any, topic: str) -> set[int]:
    _, _, _, _, assignment = member
    if not assignment:  # the member has just joined
        return set()
    decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    return {number for name, numbers in decoded.assignment if name == topic for number in numbers}


def _named(member: Any) -> str:
    name, client, host, _, _ = member
    return f"{client} ({name}) at {host.lstrip('/')}"
