"""Rights of users, for tests: which operations a user may do with a topic or a group of a Kafka of one's own.

`KafkaServer.grant` calls `grant`. Kafka's own tool takes a second of Java for each right; a request takes milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest

from cacheupdater.local.kafka_topics import SETTLE_TIMEOUT_S, admin_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.client import AIOKafkaClient

_POLL_S = 0.01
_TOPIC, _GROUP = 2, 3  # Kafka's numbers for kinds of resources
_OPERATIONS = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
}
_THIS_NAME, _ALLOW = 3, 3
_EVERYWHERE = "*"

Right = tuple[int, str, int, str, str, int, int]


def rights(user: str, operations: Sequence[str], *, topic: str | None, group: str | None) -> list[Right]:
    """A right for each operation on each resource, as Kafka spells it."""
    resources = [(_TOPIC, topic), (_GROUP, group)]
    return [
        (kind, name, _THIS_NAME, f"User:{user}", _EVERYWHERE, _OPERATIONS[operation], _ALLOW)
        for kind, name in resources
        if name is not None
        for operation in operations
    ]


async def grant(servers: str, wanted: Sequence[Right]) -> None:
    """Returns when every broker knows these rights."""
    async with admin_of(servers) as admin, asyncio.timeout(SETTLE_TIMEOUT_S):
        client = admin._client  # noqa: SLF001  the admin client has no methods for rights
        for right in wanted:
            await _make(client, right)
        for broker in client.cluster.brokers():
            for right in wanted:
                await _until_known(client, broker.nodeId, right)


async def _make(client: AIOKafkaClient, right: Right) -> None:
    """Any broker hands the right on to the controller."""
    answer = await client.send(client.get_random_node(), CreateAclsRequest(*right))
    for code, said in answer.creation_responses:
        if code:
            raise for_code(code)(said)


async def _until_known(client: AIOKafkaClient, broker: int, right: Right) -> None:
    while not (await client.send(broker, DescribeAclsRequest(*right))).resources:  # noqa: ASYNC110  a broker does not notify
        await asyncio.sleep(_POLL_S)
