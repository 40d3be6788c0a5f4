"""The drop-in `redis.asyncio.cluster.RedisCluster`. Built like `cacheupdater_client.cluster`; only the waiting differs.

Where a slot has moved, redis-py's asyncio pipeline repeats a command through its client. The client's own calls leave hints
too. So while a pipeline runs, the client leaves none (`_in_pipeline`), and the pipeline alone does.
"""
# redis-py types its commands, but not the seams that are used here
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import redis.asyncio.cluster
from redis.exceptions import RedisClusterException, RedisError

from cacheupdater_client import calls
from cacheupdater_client.asyncio.redis import ObservedCommands, ObservedQueue
from cacheupdater_client.observe import came, length_of
from cacheupdater_client.signatures import like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_in_pipeline: ContextVar[bool] = ContextVar("in_pipeline", default=False)


@contextmanager
def in_pipeline() -> Iterator[None]:
    """While a pipeline runs, its client leaves no hints."""
    before = _in_pipeline.set(True)
    try:
        yield
    finally:
        _in_pipeline.reset(before)


def pipeline_runs() -> bool:
    """Whether the present call is one that a pipeline makes."""
    return _in_pipeline.get()


async def unlinked(pipe: Any, call: Callable[..., Any], names: Sequence[Any]) -> Any:
    """Calls redis-py's `call`, the `unlink` of a pipeline."""
    at = length_of(pipe)
    reply = await call(*names)
    came(pipe, at, ("UNLINK", *names), reply)
    return reply


def set_apart(pipe: Any, call: Callable[..., Any], mapping: Any) -> Any:
    """Calls redis-py's `call`, the `mset_nonatomic` of a pipeline, slot by slot: each part gets a reply of its own."""
    slots: dict[int, dict[Any, Any]] = {}
    for key, value in mapping.items():
        slots.setdefault(pipe.cluster_client.keyslot(key), {})[key] = value
    for part in slots.values():
        at = length_of(pipe)
        call(part)
        came(pipe, at, ("MSET", *(word for pair in part.items() for word in pair)), reply=None)
    return pipe


class ObservedPipeline(ObservedQueue, redis.asyncio.cluster.ClusterPipeline):  # type: ignore[misc]  # redis-py's own bases disagree, unseen until there are two
    """`redis.asyncio.cluster.ClusterPipeline`. Two of its commands bypass `execute_command`."""

    async def execute(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        with in_pipeline():
            return await super().execute(*args, **options)

    async def unlink(self, *names: Any) -> Any:
        """As redis-py's."""
        return await unlinked(self, super().unlink, names)

    def mset_nonatomic(self, mapping: Any) -> Any:
        """As redis-py's."""
        return set_apart(self, super().mset_nonatomic, mapping)


class Observed(ObservedCommands, redis.asyncio.cluster.RedisCluster):  # type: ignore[misc]  # redis-py's own bases disagree, unseen until there are two
    """`redis.asyncio.cluster.RedisCluster`, or a subclass of it, whose commands leave hints."""

    _pipes = ObservedPipeline

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; hints follow the reply."""
        if pipeline_runs():
            plain: Any = super(ObservedCommands, self)
            return await plain.execute_command(*args, **options)
        return await super().execute_command(*args, **options)

    async def token(self, *keys: Any) -> int:
        """As `cacheupdater_client.RedisCluster.token`, which says why keys should be named."""
        names = calls.names_of(self.get_encoder(), keys)
        if not names:
            return calls.earliest(calls.times_of(await self.time(target_nodes=self.PRIMARIES)))
        return calls.earliest([await self.execute_command("EVAL", calls.TIME, 1, name) for name in names])

    async def _invalidate(self, names: Sequence[bytes]) -> None:
        """Calls every node, even after one has failed. The first error is raised at the end."""
        failure: Exception | None = None
        refusals = calls.Refusals()
        for owner, share in calls.by_owner(names, self.get_node_from_key):
            try:  # the owner is named, or redis-py would ask the server where a script's keys stand
                await self._invalidate_apart(share, refusals, target_nodes=owner)
            except (RedisError, RedisClusterException) as e:
                failure = failure or e
        if failure is not None:
            raise failure
        refusals.tell()


class RedisCluster(Observed):
    """`redis.asyncio.cluster.RedisCluster` that leaves hints. `emit` and `only` as for `Redis`."""

    @like(redis.asyncio.cluster.RedisCluster.__init__)
    def __init__(
        self, *args: Any, emit: str | None = "auto", only: Sequence[str | bytes] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.emit_to(calls.hints_for(self.get_encoder(), emit, only))
