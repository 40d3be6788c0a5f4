"""What `instrument` puts in the place of redis-py's sync methods: the same calls, after which hints follow.

`Spot` says where the hints of one `instrument` go. Each other function here takes redis-py's method and the spot, and returns
the method that replaces it. Our own clients, and clients that `wrap` was called for, leave their hints themselves, so for them the new method only
calls the old one. The same is true of every new method after `uninstrument`, for somebody may have kept it.
"""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import redis
import redis.asyncio.cluster
import redis.cluster
from redis.exceptions import ResponseError

from cacheupdater_client.commands import COMMANDS
from cacheupdater_client.guard import fault
from cacheupdater_client.observe import NOWHERE, EmittingPipeline, Hints, interrupted, returned
from cacheupdater_client.redis import executed, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater_client.buffer import KeyEncoder

Method: TypeAlias = "Callable[..., Any]"
Maker: TypeAlias = "Callable[[Method, Spot], Method]"

PIPELINES = (
    redis.client.Pipeline,
    redis.asyncio.client.Pipeline,
    redis.cluster.ClusterPipeline,
    redis.asyncio.cluster.ClusterPipeline,
)
GET = COMMANDS["GET"]


class Spot:
    """Where the hints of redis-py's own clients go while `on`. Any thread calls it; nothing here takes a lock."""

    def __init__(self, hints_for: Callable[[KeyEncoder], Hints]) -> None:
        self.on = True
        self._hints_for = hints_for
        self._by_encoding: dict[tuple[str, str], Hints] = {}
        # by id, for a user's class may have its own idea of equal clients
        self._clients: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def hints(self, client: Any) -> Hints:
        """The target of one of redis-py's clients; asked once for each, whose `_told` remembers the answer."""
        try:
            if isinstance(client, PIPELINES):  # a pipeline of a cluster is a client, too
                return NOWHERE
            client._told = hints = self._of(client)  # noqa: SLF001  ours
            self._clients[id(client)] = client
            if not self.on:  # `forget` may have come before the last line
                self.forget()
        except Exception:  # noqa: BLE001  the guard
            fault()
            return NOWHERE
        return hints

    def notes(self, pipe: Any) -> bool:
        """Whether a pipeline's commands are noted by the new methods: this is one of redis-py's own."""
        if not self.on:
            return False
        try:
            if pipe.__dict__.get("_noted") is self:
                return True
            if isinstance(pipe, EmittingPipeline):
                return False
            hints = self._of(getattr(pipe, "cluster_client", pipe))
            pipe._hints, pipe._queued, pipe._noted = hints, {}, self  # noqa: SLF001  ours
        except Exception:  # noqa: BLE001  the guard
            fault()
            return False
        return True

    def _of(self, client: Any) -> Hints:
        encoder = client.get_encoder()
        form = (encoder.encoding, encoder.encoding_errors)
        if form not in self._by_encoding:
            self._by_encoding[form] = self._hints_for(encoder)
        return self._by_encoding[form]

    def forget(self) -> None:
        """No client is told any longer."""
        told = [reference() for reference in self._clients.valuerefs()]
        for client in told:
            if client is not None:
                client.__dict__.pop("_told", None)
        self._clients.clear()
        self._by_encoding.clear()


def called(plain: Any) -> Method:
    """redis-py's method, to be called with the object first. A tracer's wrapper must be bound to the object, to see it."""
    if isinstance(plain, FunctionType):
        return plain
    if not hasattr(type(plain), "__get__"):  # a mock of a test gets no self
        return lambda _, *args, **options: plain(*args, **options)
    return lambda self, *args, **options: plain.__get__(self, type(self))(*args, **options)


def commands(plain: Method, spot: Spot) -> Method:
    """For `execute_command` of a client."""
    call = called(plain)

    @wraps(plain)
    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        if not spot.on:
            return call(self, *args, **options)
        try:
            hints: Hints = self._told
        except AttributeError:
            hints = spot.hints(self)
        try:
            reply = call(self, *args, **options)
        except ResponseError:
            raise
        except BaseException:  # a timeout, a lost connection, a signal's exception: it may have been done
            interrupted(hints, args)
            raise
        try:  # the usual read, by a shorter way than `returned`
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


def queueing_by(seen: Method) -> Maker:
    """For `execute_command` of a pipeline, which is no coroutine function. `seen` is the sync or the asyncio client's."""

    def make(plain: Method, spot: Spot) -> Method:
        call = called(plain)

        @wraps(plain)
        def execute_command(self: Any, *args: Any, **options: Any) -> Any:
            if not spot.notes(self):
                return call(self, *args, **options)
            return seen(self, args, call, self, *args, **options)

        return execute_command

    return make


def named(command: str) -> Maker:
    """For a method of a pipeline that bypasses `execute_command`."""

    def make(plain: Method, spot: Spot) -> Method:
        call = called(plain)

        @wraps(plain)
        def method(self: Any, *names: Any) -> Any:
            if not spot.notes(self):
                return call(self, *names)
            return seen(self, (command, *names), call, self, *names)

        return method

    return make


def executing(plain: Method, spot: Spot) -> Method:
    """For `execute` of a pipeline."""
    call = called(plain)

    @wraps(plain)
    def execute(self: Any, *args: Any, **options: Any) -> Any:
        if not spot.notes(self):
            return call(self, *args, **options)
        return executed(self, call, self, *args, **options)

    return execute


def resetting(plain: Method, spot: Spot) -> Method:
    """For `reset` of a pipeline. Its `__init__` calls this too, when nobody knows yet whose pipeline it will be."""
    call = called(plain)

    @wraps(plain)
    def reset(self: Any) -> Any:
        forget(self, spot)
        return call(self)

    return reset


def forget(pipe: Any, spot: Spot) -> None:
    """The pipeline is empty again."""
    if pipe.__dict__.get("_noted") is spot:
        pipe._queued = {}  # noqa: SLF001  as observe.came
