"""What `instrument` puts in the place of redis-py's asyncio methods. As `cacheupdater_client.instrumented`; only the waiting differs."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from cacheupdater_client.asyncio.cluster import in_pipeline, pipeline_runs, set_apart, unlinked
from cacheupdater_client.asyncio.redis import executed
from cacheupdater_client.commands import COMMANDS
from cacheupdater_client.guard import fault
from cacheupdater_client.instrumented import GET, called, forget
from cacheupdater_client.observe import interrupted, returned

if TYPE_CHECKING:
    from cacheupdater_client.instrumented import Method, Spot
    from cacheupdater_client.observe import Hints


def commands(plain: Method, spot: Spot) -> Method:
    """For `execute_command` of a client."""
    call = called(plain)

    @wraps(plain)
    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        if not spot.on:
            return await call(self, *args, **options)
        try:
            hints: Hints = self._told
        except AttributeError:
            hints = spot.hints(self)
        try:
            reply = await call(self, *args, **options)
        except ResponseError:
            raise
        except BaseException:  # cancelled, timed out, connection lost: it may have been done
            interrupted(hints, args)
            raise
        try:  # as the sync client's
            if COMMANDS.get(args[0]) is GET:
                if reply is None:
                    hints.miss(args[1])
                else:
                    hints.touch(args[1])
                return reply
        except Exception:  # noqa: BLE001  the guard
            fault()
            return reply
        returned(hints, args, reply)
        return reply

    return execute_command


def cluster_commands(plain: Method, spot: Spot) -> Method:
    """For `execute_command` of a cluster's client, which a running pipeline calls for commands whose slot has moved."""
    call, observed = called(plain), commands(plain, spot)

    @wraps(plain)
    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        return await (call if pipeline_runs() else observed)(self, *args, **options)

    return execute_command


def executing(plain: Method, spot: Spot) -> Method:
    """For `execute` of a pipeline."""
    call = called(plain)

    @wraps(plain)
    async def execute(self: Any, *args: Any, **options: Any) -> Any:
        if not spot.notes(self):
            return await call(self, *args, **options)
        return await executed(self, call, self, *args, **options)

    return execute


def cluster_executing(plain: Method, spot: Spot) -> Method:
    """For `execute` of a cluster's pipeline."""
    observed = executing(plain, spot)

    @wraps(plain)
    async def execute(self: Any, *args: Any, **options: Any) -> Any:
        with in_pipeline():
            return await observed(self, *args, **options)

    return execute


def resetting(plain: Method, spot: Spot) -> Method:
    """For `reset` of a pipeline."""
    call = called(plain)

    @wraps(plain)
    async def reset(self: Any) -> Any:
        forget(self, spot)
        return await call(self)

    return reset


def unlinking(plain: Method, spot: Spot) -> Method:
    """For `unlink` of a cluster's pipeline, which bypasses `execute_command`."""
    call = called(plain)

    @wraps(plain)
    async def unlink(self: Any, *names: Any) -> Any:
        if not spot.notes(self):
            return await call(self, *names)
        return await unlinked(self, partial(call, self), names)

    return unlink


def setting_apart(plain: Method, spot: Spot) -> Method:
    """For `mset_nonatomic` of a cluster's pipeline, which bypasses `execute_command`."""
    call = called(plain)

    @wraps(plain)
    def mset_nonatomic(self: Any, mapping: Any) -> Any:
        if not spot.notes(self):
            return call(self, mapping)
        return set_apart(self, partial(call, self), mapping)

    return mset_nonatomic
