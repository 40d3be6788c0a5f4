"""`instrument` makes redis-py's own classes leave hints, in the whole process, and `uninstrument` undoes exactly that.

For frameworks that make their clients themselves, such as cashews and aiocache. The methods of redis-py's classes are replaced
(`instrumented`), so `redis.from_url`, the classes that others derive from redis-py's, pipelines of modules, and clients and
pipelines that are there already are all reached.

Others replace the same methods: tracers. A patch that was there before ours is called by ours. A patch that came after ours
stays when ours is undone; it goes on to call our method, which then does nothing but call the one before it.
"""

from __future__ import annotations

import inspect
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster

from cacheupdater_client import calls, instrumented
from cacheupdater_client.asyncio import instrumented as asyncio_instrumented
from cacheupdater_client.asyncio.redis import seen as asyncio_seen
from cacheupdater_client.instrumented import Spot
from cacheupdater_client.observe import NOWHERE
from cacheupdater_client.redis import seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater_client.instrumented import Maker, Method

_QUEUE: Mapping[str, Maker] = {
    "execute_command": instrumented.queueing_by(seen),
    "execute": instrumented.executing,
    "reset": instrumented.resetting,
}
_ASYNCIO_QUEUE: Mapping[str, Maker] = {
    "execute_command": instrumented.queueing_by(asyncio_seen),
    "execute": asyncio_instrumented.executing,
    "reset": asyncio_instrumented.resetting,
}
_METHODS: Mapping[type, Mapping[str, Maker]] = {
    redis.Redis: {"execute_command": instrumented.commands},
    redis.RedisCluster: {"execute_command": instrumented.commands},
    redis.client.Pipeline: _QUEUE,
    redis.cluster.ClusterPipeline: {
        **_QUEUE,
        "exists": instrumented.named("EXISTS"),
        "delete": instrumented.named("DEL"),
        "unlink": instrumented.named("UNLINK"),
    },
    redis.asyncio.Redis: {"execute_command": asyncio_instrumented.commands},
    redis.asyncio.RedisCluster: {"execute_command": asyncio_instrumented.cluster_commands},
    redis.asyncio.client.Pipeline: _ASYNCIO_QUEUE,
    redis.asyncio.cluster.ClusterPipeline: {
        **_ASYNCIO_QUEUE,
        "execute": asyncio_instrumented.cluster_executing,
        "unlink": asyncio_instrumented.unlinking,
        "mset_nonatomic": asyncio_instrumented.setting_apart,
    },
}


class _Patch(NamedTuple):
    cls: type
    name: str
    before: Method  # what the class had; a tracer's wrapper, perhaps
    inherited: bool
    ours: Method

    def undo(self) -> bool:
        """Whether it could be undone. If not, somebody has patched over it."""
        if vars(self.cls).get(self.name) is not self.ours:
            return False
        if self.inherited:
            delattr(self.cls, self.name)
        else:
            setattr(self.cls, self.name, self.before)
        return True


class _Present:
    """The patches of this process, the oldest first. Those beneath a later tracer stay until it has gone."""

    spot: Spot | None = None
    patches: Sequence[_Patch] = ()


_present = _Present()
_lock = threading.Lock()  # a fork waits for it: a child never sees half of the patches
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def instrument(*, emit: str | None = "auto", only: Sequence[str | bytes] | None = None) -> None:
    """From now on every client of redis-py in this process leaves hints. `emit` and `only` as for `Redis`.

    A second call moves the hints to its `emit` and `only`. Where hints go nowhere, redis-py's classes stay as they are.
    """
    first = calls.hints_for(
        redis.ConnectionPool().get_encoder(), emit, only
    )  # ValueError for an invalid target
    with _lock:
        _undo()
        if first is not NOWHERE:
            _present.spot = spot = Spot(lambda encoder: calls.hints_for(encoder, emit, only))
            _present.patches = [
                *_present.patches,
                *(
                    _patched(cls, name, maker, spot)
                    for cls, makers in _METHODS.items()
                    for name, maker in makers.items()
                ),
            ]


def uninstrument() -> None:
    """redis-py's classes are again what they were. The hints so far are still sent."""
    with _lock:
        _undo()


def _patched(cls: type, name: str, maker: Maker, spot: Spot) -> _Patch:
    inherited = name not in vars(cls)
    before = inspect.getattr_static(cls, name)
    patch = _Patch(cls, name, before, inherited, maker(before, spot))
    setattr(cls, name, patch.ours)
    return patch


def _undo() -> None:
    if _present.spot is not None:
        _present.spot.on = False
        _present.spot.forget()
    _present.spot = None
    kept = [patch for patch in reversed(_present.patches) if not patch.undo()]
    _present.patches = kept[::-1]
