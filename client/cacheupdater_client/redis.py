"""The drop-in `redis.Redis`: what it answers is redis-py's; what it reads and writes leaves hints.

Only public seams are used: `execute_command` and `pipeline()`, and for pipelines `execute_command`, `execute` and
`reset`; a pipeline's private stack is never read. `Observed` works over any subclass of `redis.Redis` (see `wrap`).
`Redis` adds shorter ways for the hottest commands; they are switched off in a subclass that has an `execute_command`
of its own, so that it sees every command, as with redis-py.
"""
# redis-py types its commands, but not the seams that are used here
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from redis.client import Pipeline
from redis.exceptions import NoScriptError, ResponseError, WatchError

from cacheupdater_client import calls
from cacheupdater_client.buffer import SHORT_KEY
from cacheupdater_client.fence import token_of
from cacheupdater_client.observe import NOWHERE, Emitting, Hints, give_way, interrupted, observed, returned
from cacheupdater_client.wire import CHANGE, TOUCH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

# its methods are looked up at each call, so that a tracer that patches it sees every command
_plain = redis.Redis


class ObservedPipeline(Pipeline):
    """`redis.client.Pipeline`: remembers which command stands where, and leaves hints when `execute()` has returned."""

    _hints: Hints = NOWHERE

    def observe_with(self, hints: Hints) -> None:
        """Hints go there from now on."""
        self._hints = hints
        self._queued: list[tuple[int, tuple[Any, ...]]] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; a command after WATCH runs at once and is observed at once."""
        try:
            reply = super().execute_command(*args, **options)
        except ResponseError:
            raise
        except BaseException:
            interrupted(self._hints, args)
            raise
        if reply is self:
            self._queued.append((len(self) - 1, args))
        else:
            returned(self._hints, args, reply)
        return reply

    def execute(self, raise_on_error: bool = True) -> Any:  # noqa: FBT001, FBT002  redis-py's signature
        """As redis-py's."""
        queued = self._queued
        try:
            replies = super().execute(raise_on_error)
        except WatchError:  # nothing was done
            raise
        except BaseException:  # some of it may have been done
            for _, args in queued:
                interrupted(self._hints, args)
            raise
        for at, args in queued:
            if at < len(replies):
                returned(self._hints, args, replies[at])
        return replies

    def reset(self) -> None:  # type: ignore[override]  # so does redis-py's: RESET is no command of a pipeline
        """As redis-py's; what was queued leaves no hints."""
        self._queued = []
        super().reset()


class Observed(Emitting, redis.Redis):
    """`redis.Redis`, or a subclass of it, whose commands leave hints."""

    _pipes = ObservedPipeline

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; hints follow the reply."""
        try:
            reply = super().execute_command(*args, **options)
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

        Call it after the commit. If Redis fails, its error is raised; the updater is told in any case.
        """
        names = calls.names_of(self.get_encoder(), keys)
        try:
            for arguments in calls.invalidations(names):
                calls.check(self._fenced(arguments))
        finally:
            self._hints.add_all(CHANGE, names)

    def token(self) -> int:
        """Redis' time, for `write_through`. Take it before the database is written."""
        seconds, micros = self.time()
        return token_of(seconds, micros)

    def write_through(self, key: Any, value: Any, *, ttl: float | timedelta, since: int) -> bool:
        """Sets the value just written to the database, unless something newer has happened since the token was taken.

        Then the key is removed and False returned. `ttl` in seconds. Call it after the commit.
        """
        encoder = self.get_encoder()
        name = calls.names_of(encoder, [key])[0]
        try:
            return calls.was_set(
                self._fenced(calls.writing_through(encoder, name, value, ttl=ttl, since=since))
            )
        finally:
            self._hints.add(CHANGE, name)

    def _fenced(self, arguments: Sequence[Any]) -> Any:
        try:
            return self.execute_command("EVALSHA", calls.SHA, *arguments)
        except NoScriptError:  # a new or restarted Redis; EVAL runs the script and leaves it loaded
            return self.execute_command("EVAL", calls.TEXT, *arguments)


class Redis(Observed):
    """`redis.Redis` that leaves hints. `emit` names where they go, `only` the prefixes of keys that may go there."""

    def __init__(
        self, *args: Any, emit: str | None = "auto", only: Sequence[str | bytes] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.emit_to(calls.hints_for(self.get_encoder(), emit, only))

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
        client: Any = super().from_url(url, **options)
        client.emit_to(calls.hints_for(client.get_encoder(), emit, only))
        return client

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        give_way(cls, Redis)

    def get(self, name: Any) -> Any:
        """As redis-py's. Goes past our own `execute_command`, which would count it again.

        `Buffer.touch` written out, for a read pays for each call: see there.
        """
        value = _plain.execute_command(self, "GET", name, keys=[name])
        hints = self._hints
        if value is None:
            hints.miss(name)
            return None
        if type(name) is str and len(name) <= SHORT_KEY:
            for append in hints.lease:
                append(name)
                return value
        hints.add(TOUCH, name)
        return value

    def hgetall(self, name: Any) -> Any:
        """As `get`."""
        value = _plain.execute_command(self, "HGETALL", name, keys=[name])
        if value:
            self._hints.touch(name)
        else:
            self._hints.miss(name)
        return value


def wrap(client: Any, *, emit: str | None = "auto", only: Sequence[str | bytes] | None = None) -> Any:
    """Makes an existing client, sync or asyncio, leave hints; returns the same object, which stays what it was."""
    if isinstance(client, Pipeline):
        raise TypeError("wrap the client that makes the pipelines")
    if not isinstance(client, redis.Redis):
        from cacheupdater_client.asyncio import wrap as wrap_asyncio  # noqa: PLC0415  it imports this module

        return wrap_asyncio(client, emit=emit, only=only)
    if not isinstance(client, Observed):
        client.__class__ = Redis if type(client) is _plain else observed(type(client), Observed)
    emitting: Any = client
    emitting.emit_to(calls.hints_for(emitting.get_encoder(), emit, only))
    return emitting
