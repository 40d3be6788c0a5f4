"""The drop-in `redis.Redis`: it answers as redis-py does, and its reads and writes leave hints.

It uses public seams only: `execute_command` and `pipeline()`, and of pipelines `execute_command`, `execute` and their
length. It never reads a pipeline's private stack. `ObservedCommands` and `ObservedQueue` are mixins for any sync client and
pipeline of redis-py (see `cluster`). `Observed` works over any subclass of `redis.Redis` (see `wrapping`). `Redis` adds
shorter ways for the hottest commands. They are off in a subclass with its own `execute_command`, so that this method sees
every command, as with redis-py.
"""
# redis-py types its commands, but not the seams that are used here
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.client import Pipeline
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from cacheupdater_client import calls
from cacheupdater_client.buffer import SHORT_KEY
from cacheupdater_client.guard import fault
from cacheupdater_client.observe import (
    Emitting,
    EmittingPipeline,
    Traceable,
    Words,
    came,
    done,
    failed,
    give_way,
    interrupted,
    length_of,
    returned,
    taken,
)
from cacheupdater_client.patched import Patchable
from cacheupdater_client.protocol.fence import key_chunks
from cacheupdater_client.protocol.wire import CHANGE, SET, TOUCH
from cacheupdater_client.signatures import like

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

# its methods are looked up at each call, so that a tracer that patches it sees every command
_plain = redis.Redis


def seen(pipe: Any, words: Words, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls redis-py's `call`, which queues the command `words` or runs it, and returns the reply."""
    at = length_of(pipe)
    try:
        reply = call(*args, **options)
    except ResponseError:
        raise
    except BaseException:
        interrupted(pipe._hints, words)  # noqa: SLF001  as observe.came
        raise
    came(pipe, at, words, reply)
    return reply


def executed(pipe: Any, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls redis-py's `call`, which executes the pipeline; hints follow."""
    queued = taken(pipe)
    try:
        replies = call(*args, **options)
    except BaseException as e:  # some of it may have been done
        failed(pipe, queued, e)
        raise
    done(pipe, queued, replies)
    return replies


class ObservedQueue(EmittingPipeline):
    """A mixin before redis-py's sync pipeline: leaves hints when `execute()` has returned."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; a command after WATCH runs at once and is observed at once."""
        plain: Any = super()
        return seen(self, args, plain.execute_command, *args, **options)

    def reset(self) -> None:
        """As redis-py's."""
        plain: Any = super()
        self._queued = {}
        plain.reset()

    def execute(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        plain: Any = super()
        return executed(self, plain.execute, *args, **options)


class ObservedPipeline(ObservedQueue, Pipeline):  # type: ignore[misc]  # as redis-py's own: a command RESET lies beneath
    """`redis.client.Pipeline`, whose commands leave hints."""


class ObservedCommands(Emitting):
    """A mixin before redis-py's sync client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; hints follow the reply."""
        plain: Any = super()
        try:
            reply = plain.execute_command(*args, **options)
        except ResponseError:
            raise
        except BaseException:  # a timeout, a lost connection, a signal's exception: it may have been done
            interrupted(self._hints, args)
            raise
        returned(self._hints, args, reply)
        return reply

    # --- after the database's commit ------------------------------------------------------------------

    def invalidate(self, *keys: Any) -> None:
        """Removes values whose rows have changed, and keeps loads that began earlier from bringing them back.

        Call it after the commit. If Redis fails, its error is raised. The updater gets the changes in any case.
        """
        names = calls.names_of(self.get_encoder(), keys)
        try:
            self._invalidate(names)
        finally:
            self._changed(names)

    def _invalidate(self, names: Sequence[bytes]) -> None:
        refusals = calls.Refusals()
        for share in key_chunks(names):
            try:
                refusals.hear(share, self._fenced(calls.invalidation(*share)))
            except NoPermissionError:  # Redis refuses the whole call because of one key
                self._invalidate_apart(share, refusals)
        refusals.tell()

    def _invalidate_apart(self, names: Sequence[bytes], refusals: calls.Refusals, **options: Any) -> None:
        """One call for each key, all sent together, so that a refusal concerns one key alone."""
        pipe: Any = self.pipeline(transaction=False)
        for name in names:
            pipe.execute_command("EVALSHA", calls.SHA, *calls.invalidation(name), **options)
        replies = pipe.execute(raise_on_error=False)
        for name, reply in zip(names, replies, strict=True):
            try:
                again = isinstance(reply, Exception)  # perhaps Redis does not know the script
                refusals.hear([name], self._fenced(calls.invalidation(name)) if again else reply)
            except ResponseError as e:
                refusals.refused(name, e)

    def write_through(self, key: Any, value: Any, *, ttl: float | timedelta, since: int) -> bool:
        """Sets the value just written to the database, unless something newer has happened since the token was taken.

        In that case it removes the key and returns False. `ttl` is in seconds. Call it after the commit.
        """
        encoder = self.get_encoder()
        name, is_set = calls.names_of(encoder, [key])[0], False
        try:
            arguments = calls.writing_through(encoder, name, value, ttl=ttl, since=since)
            is_set = calls.was_set(name, self._fenced(arguments))
        finally:
            self._changed([name], kind=SET if is_set else CHANGE)
        return is_set

    def _fenced(self, arguments: Sequence[Any]) -> Any:
        try:
            return self.execute_command("EVALSHA", calls.SHA, *arguments)
        except NoScriptError:  # a new or restarted Redis; EVAL runs the script and leaves it loaded
            return self.execute_command("EVAL", calls.TEXT, *arguments)


class Observed(ObservedCommands, redis.Redis):
    """`redis.Redis`, or a subclass of it, whose commands leave hints."""

    _pipes = ObservedPipeline

    def client(self) -> Any:
        """As redis-py's: a client of one connection. Its hints go to the same target."""
        with calls.told_later(type(self)):
            single: Any = super().client()
        single.emit_to(self._hints)
        return single

    def token(self, *_keys: Any) -> int:
        """Redis' time, for `write_through`. Take it before the database is written. Keys matter to a cluster only."""
        return calls.earliest([self.time()])


class Redis(Traceable, Observed, metaclass=Patchable):
    """`redis.Redis` that leaves hints. `emit` names where they go, `only` the prefixes of keys that may go there."""

    @like(redis.Redis.__init__)
    def __init__(
        self, *args: Any, emit: str | None = "auto", only: Sequence[str | bytes] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        calls.tell(self, emit, only)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        emit: str | None = "auto",
        only: Sequence[str | bytes] | None = None,
        **options: Any,
    ) -> Any:
        """As redis-py's."""
        with calls.told_later(cls):
            client: Any = super().from_url(url, **options)
        client.emit_to(calls.hints_for(client.get_encoder(), emit, only))
        return client

    @classmethod
    def from_pool(
        cls,
        connection_pool: Any,
        *,
        emit: str | None = "auto",
        only: Sequence[str | bytes] | None = None,
    ) -> Any:
        """As redis-py's. A Sentinel makes its clients by this, and tells them later."""
        with calls.told_later(cls):
            client: Any = super().from_pool(connection_pool)
        calls.tell(client, emit, only)
        return client

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        give_way(cls, Redis)

    def get(self, name: Any) -> Any:
        """As redis-py's. Bypasses our own `execute_command`, which would count the read again.

        The lines of `Buffer.touch` are written out here: a call would cost every read.
        """
        if self._traced:
            return self._long_way("get", name)
        value = _plain.execute_command(self, "GET", name, keys=[name])
        try:
            if value is None:
                self._hints.miss(name)
                return None
            if type(name) is str and len(name) <= SHORT_KEY:
                for append in self._hints.lease:
                    append(name)
                    return value
            self._hints.add(TOUCH, name)
        except Exception:  # noqa: BLE001  the guard
            fault()
        return value

    def hgetall(self, name: Any) -> Any:
        """As `get`."""
        if self._traced:
            return self._long_way("hgetall", name)
        value = _plain.execute_command(self, "HGETALL", name, keys=[name])
        try:
            if value:
                self._hints.touch(name)
            else:
                self._hints.miss(name)
        except Exception:  # noqa: BLE001  the guard
            fault()
        return value

    def _long_way(self, name: str, *args: Any) -> Any:
        """redis-py's method, which calls the present `execute_command`. In `get` itself, `super` would cost every read."""
        return getattr(super(), name)(*args)
