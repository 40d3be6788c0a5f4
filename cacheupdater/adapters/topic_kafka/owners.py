"""Asks the coordinator of a group which member owns a partition.

`cacheupdater explain` asks an updater about a key. An updater that does not own the key names the owner by `owner_of`. Each
call has its own connections to the cluster, for a limited time. It changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.topic_kafka import groups
from cacheupdater.adapters.topic_kafka.cluster import reached
from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from cacheupdater_client.protocol.broker import Address

ASK_S = 4.0  # for the whole call; a person waits


async def owner_of(address: Address, group: str, partition: int) -> str | None:
    """The member that owns this partition: its instance or client, and its host. None: no member does. Raises Unavailable."""
    try:
        async with asyncio.timeout(ASK_S), reached(address) as cluster:
            owners = await groups.owners(cluster, group, address.topic)
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {ASK_S:g} s") from e
    return owners.get(partition)
