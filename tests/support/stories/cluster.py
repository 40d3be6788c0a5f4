"""Keys on the nodes of a cluster that a test chooses, and their values on one node."""

from __future__ import annotations

from itertools import count

from redis.crc import key_slot

from cacheupdater.ports import Entry
from cacheupdater_client.protocol import fence

TTL_MS = 60_000


def keys_of(cluster, node, number=1):
    """Keys that this node has now."""
    parts = [part for each in cluster.view() if each.server is node for part in each.slots]
    found = (b"k:%d" % i for i in count())
    mine = (key for key in found if any(key_slot(key) in part for part in parts))
    return [next(mine) for _ in range(number)]


def one_of_each(cluster):
    """A key of each primary."""
    return {node: keys_of(cluster, node)[0] for node in cluster.primaries()}


def entries(keys, value=b"v"):
    return [Entry(key, value, TTL_MS) for key in keys]


async def write(writer, keys, value=b"v"):
    """A whole refresh; returns the answer for each key."""
    return await writer.write(await writer.token(keys), entries(keys, value))


async def results(writer, keys, value=b"v"):
    return [answer.result.value for answer in await write(writer, keys, value)]


def floor_of(cluster, node, key):
    return cluster.tell(node, "GET", fence.floor_name(key))
