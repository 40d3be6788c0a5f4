"""Asks the coordinator of a group which member owns a partition.

`cacheupdater explain` asks an updater about a key. An updater that does not own the key names the owner by `owner_of`. Each
call has its own connections to the cluster, for a limited time. It changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import NoError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from cacheupdater.adapters.topic_kafka.cluster import reached
from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from cacheupdater.adapters.topic_kafka.cluster import Cluster
    from cacheupdater_client.protocol.broker import Address

ASK_S = 4.0  # for the whole call; a person waits


async def owner_of(address: Address, group: str, partition: int) -> str | None:
    """The member that owns this partition: its instance or client, and its host. None: no member does. Raises Unavailable."""
    try:
        async with asyncio.timeout(ASK_S), reached(address) as cluster:
            members = await _members(cluster, group)
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {ASK_S:g} s") from e
    return next((_named(each) for each in members if partition in _owned(each, address.topic)), None)


async def _members(cluster: Cluster, group: str) -> Any:
    found = await cluster.ask(FindCoordinatorRequest(group, 0))
    _check(found.error_code)
    answer = await cluster.ask(DescribeGroupsRequest([group]), broker=found.coordinator_id)
    [(code, _, _, _, _, members, *_)] = answer.groups
    _check(code)
    return members


def _check(code: int) -> None:
    error: Any = for_code(code)
    if error is not NoError:
        raise Unavailable(f"the brokers do not list the members of the group: {error.description}")


def _owned(member: Any, topic: str) -> set[int]:
    _, _, _, _, assignment = member
    if not assignment:  # the member has just joined
        return set()
    decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    return {number for name, numbers in decoded.assignment if name == topic for number in numbers}


def _named(member: Any) -> str:
    name, client, host, _, _ = member
    return f"{client} ({name}) at {host.lstrip('/')}"
