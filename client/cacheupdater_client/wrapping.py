"""`wrap` makes an existing client leave hints: one of redis-py's, or of a user's subclass of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster

from cacheupdater_client import asyncio, calls, cluster
from cacheupdater_client import redis as single
from cacheupdater_client.asyncio import cluster as asyncio_cluster
from cacheupdater_client.asyncio import redis as asyncio_single
from cacheupdater_client.instrumented import PIPELINES
from cacheupdater_client.observe import Emitting, observed

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Kind(NamedTuple):
    plain: type
    ours: type  # what a plain one becomes
    observed: type  # the mixin before a user's subclass


_KINDS = (
    _Kind(redis.Redis, single.Redis, single.Observed),
    _Kind(redis.RedisCluster, cluster.RedisCluster, cluster.Observed),
    _Kind(redis.asyncio.Redis, asyncio.Redis, asyncio_single.Observed),
    _Kind(redis.asyncio.RedisCluster, asyncio.RedisCluster, asyncio_cluster.Observed),
)


def wrap(client: Any, *, emit: str | None = "auto", only: Sequence[str | bytes] | None = None) -> Any:
    """Makes an existing client, sync or asyncio, of one Redis or a cluster, leave hints.

    Returns the same object, which otherwise stays as it was.
    """
    if isinstance(client, PIPELINES):
        raise TypeError("wrap the client that makes the pipelines")
    kind = next((kind for kind in _KINDS if isinstance(client, kind.plain)), None)
    if kind is None:
        raise TypeError(
            f"wrap takes redis-py's Redis and RedisCluster clients, sync and asyncio, not {type(client).__name__}"
        )
    if not isinstance(client, Emitting):
        cls: Any = type(client)
        client._traced = "execute_command" in vars(client)  # noqa: SLF001  as Traceable would have seen it
        client.__class__ = kind.ours if cls is kind.plain else observed(cls, kind.observed)
    client.emit_to(calls.hints_for(client.get_encoder(), emit, only))
    return client
