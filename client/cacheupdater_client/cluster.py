"""The drop-in `redis.cluster.RedisCluster`. Built like `cacheupdater_client.redis`.

A call counts once, however many nodes it runs on and however often redis-py repeats it because a slot has moved: hints
follow the outermost call. redis-py's inner clients of single nodes leave no hints.

Each node has a fence of its own: the script takes one key and runs on the key's node, by that node's clock.
"""
# redis-py types its commands, but not the seams that are used here
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis.cluster
from redis.exceptions import RedisClusterException, RedisError

from cacheupdater_client import calls
from cacheupdater_client.redis import ObservedCommands, ObservedQueue, seen
from cacheupdater_client.signatures import like

if TYPE_CHECKING:
    from collections.abc import Sequence


class ObservedPipeline(ObservedQueue, redis.cluster.ClusterPipeline):  # type: ignore[misc]  # as redis-py's own: a command RESET lies beneath
    """`redis.cluster.ClusterPipeline`. Three of its commands bypass `execute_command`."""

    def exists(self, *keys: Any) -> Any:
        """As redis-py's."""
        return seen(self, ("EXISTS", *keys), super().exists, *keys)

    def delete(self, *names: Any) -> Any:
        """As redis-py's."""
        return seen(self, ("DEL", *names), super().delete, *names)

    def unlink(self, *names: Any) -> Any:
        """As redis-py's."""
        return seen(self, ("UNLINK", *names), super().unlink, *names)


class Observed(ObservedCommands, redis.cluster.RedisCluster):
    """`redis.cluster.RedisCluster`, or a subclass of it, whose commands leave hints."""

    _pipes = ObservedPipeline

    def token(self, *keys: Any) -> int:
        """Redis' time, for `write_through`. Take it before the database is written, and name the keys if you know them.

        The token is compared with times of the key's own node. A token ahead of that node's clock would be unsafe: a
        change that came after it would look older, and be overwritten. So each key's primary is asked for its time, or
        all primaries where no key is named, and the earliest time is taken. A token that is too early is safe: at worst
        `write_through` removes a value that it could have set.
        """
        names = calls.names_of(self.get_encoder(), keys)
        if not names:
            return calls.earliest(calls.times_of(self.time(target_nodes=self.PRIMARIES)))
        return calls.earliest(self.execute_command("EVAL", calls.TIME, 1, name) for name in names)

    def _invalidate(self, names: Sequence[bytes]) -> None:
        """Calls every node, even after one has failed. The first error is raised at the end."""
        failure: Exception | None = None
        refusals = calls.Refusals()
        for owner, share in calls.by_owner(names, self.get_node_from_key):
            try:  # the owner is named, or redis-py would ask the server where a script's keys stand
                self._invalidate_apart(share, refusals, target_nodes=owner)
            except (RedisError, RedisClusterException) as e:
                failure = failure or e
        if failure is not None:
            raise failure
        refusals.tell()


class RedisCluster(Observed):
    """`redis.cluster.RedisCluster` that leaves hints. `emit` and `only` as for `Redis`."""

    @like(redis.cluster.RedisCluster.__init__)
    def __init__(
        self, *args: Any, emit: str | None = "auto", only: Sequence[str | bytes] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.emit_to(calls.hints_for(self.get_encoder(), emit, only))
