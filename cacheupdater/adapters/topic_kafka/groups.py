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
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cacheupdater.adapters.topic_kafka.cluster import Cluster

SETTLE_S = 10.0  # until a new cluster has made the topic with the offsets of its groups, at the first group
POLL_S = 0.1  # between two requests meanwhile
COMING = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
_LIVING = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)
_NO_GENERATION, _NO_MEMBER, _BROKERS_DECIDE = -1, "", -1


async def owners(cluster: Cluster, group: str, topic: str) -> Mapping[int, str]:
    """By partition, the member that owns it: its instance or client, and its host."""
    answer, _ = await _asked(cluster, group, DescribeGroupsRequest([group]), lambda said: [said.groups[0][0]])
    [(_, _, _, _, _, members, *_)] = answer.groups
    return {partition: _named(each) for each in members for partition in _owned(each, topic)}


async def committed(cluster: Cluster, group: str, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
    """The committed offsets, without partitions that have none."""

    def codes(said: Any) -> Iterable[int]:
        return (getattr(said, "error_code", 0), *(code for _, rows in said.topics for _, _, _, code in rows))

    request = OffsetFetchRequest(group, [(topic, list(partitions))])
    answer, _ = await _asked(cluster, group, request, codes)
    rows = [row for _, rows in answer.topics for row in rows]
    return {partition: offset for partition, offset, _, _ in rows if offset >= 0}


async def commit(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
    """Commits for a group without members. False: it has some, which commit for themselves."""

    def codes(said: Any) -> Iterable[int]:
        return [code for _, rows in said.topics for _, code in rows]

    places = [(partition, offset, "") for partition, offset in offsets.items()]
    request = OffsetCommitRequest(group, _NO_GENERATION, _NO_MEMBER, _BROKERS_DECIDE, [(topic, places)])
    _, living = await _asked(cluster, group, request, codes)
    return not living


async def _asked(
    cluster: Cluster, group: str, request: Any, codes: Callable[[Any], Iterable[int]]
) -> tuple[Any, bool]:
    """The coordinator's answer, and whether it refuses because the group has members. Waits a while for a new cluster."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        found = await cluster.ask(FindCoordinatorRequest(group, 0))
        answer, said = None, {found.error_code}
        if not found.error_code:
            answer = await cluster.ask(request, broker=found.coordinator_id)
            said = {code for code in codes(answer) if code}
        errors = {for_code(code) for code in said}
        if not errors.intersection(COMING) or loop.time() > deadline:
            break
        await asyncio.sleep(POLL_S)
    if errors and errors.issubset(_LIVING):
        return answer, True
    for code in said:
        _check(code, group)
    return answer, False


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
