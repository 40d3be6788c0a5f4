"""Shared by all clients: where hints go, and the fenced script's arguments and answers.

Plain functions without I/O, so that the sync and the asyncio client differ only in `await`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from redis.exceptions import DataError, ResponseError, SlotNotCoveredError

from cacheupdater_client import quiet
from cacheupdater_client.observe import NOWHERE, Hints
from cacheupdater_client.protocol import fence
from cacheupdater_client.sender import sender
from cacheupdater_client.settings import choice_of, prefixes_of
from cacheupdater_client.telling import tell as tell_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cacheupdater_client.buffer import KeyEncoder
    from cacheupdater_client.observe import Emitting

NAMED_MAX = 10  # keys in an error's text

TEXT, SHA = fence.INVALIDATE
TIME = (
    "return redis.call('TIME')"  # a script has a key, so it reaches the key's owner wherever the slot moves
)


def hints_for(encoder: KeyEncoder, emit: str | None, only: Sequence[str | bytes] | None) -> Hints:
    """Where a new client's hints go. ValueError if `emit` or `only` make no sense."""
    prefixes = prefixes_of(only)
    choice = choice_of(emit)
    if choice.url is None:
        tell_place(choice)
        return NOWHERE
    buffer = sender.target(choice.url, prefixes, awaited=choice.awaited).buffer(encoder)
    tell_place(choice)
    return buffer


_told_later: ContextVar[type | None] = ContextVar("told_later", default=None)


@contextmanager
def told_later(cls: type) -> Iterator[None]:
    """For calls in which redis-py makes a client of `cls` and cannot hand `emit` on: the caller sets it afterwards."""
    before = _told_later.set(cls)
    try:
        yield
    finally:
        _told_later.reset(before)


@contextmanager
def no_emit() -> Iterator[None]:
    """Within, reads of this thread or task leave no hints. Changes do: a lost change would leave an old value behind.

    For administration, such as a script that reads every key. `with no_emit():` serves sync and asyncio code alike.
    """
    before, mark = quiet.enter()
    try:
        sender.chill()
        yield
    finally:
        quiet.leave(before, mark)


def tell(client: Emitting, emit: str | None, only: Sequence[str | bytes] | None) -> None:
    """Sets the target of a new client. Within `told_later` the caller does so: here `emit` is only the default."""
    if _told_later.get() is not type(client):
        client.emit_to(hints_for(client.get_encoder(), emit, only))


def names_of(encoder: KeyEncoder, keys: Iterable[object]) -> list[bytes]:
    """Keys as redis-py would send them. Raises redis-py's DataError for an object that is not a key."""
    return [bytes(encoder.encode(key)) for key in keys]


def by_owner(names: Sequence[bytes], owner_of: Callable[..., Any]) -> Iterator[tuple[Any, Sequence[bytes]]]:
    """The nodes of a cluster, each with its keys in chunks of one call. A node of None: redis-py must find the owner."""
    shares: dict[
        str | None, tuple[Any, list[bytes]]
    ] = {}  # by the node's name: redis-py 6's nodes have no hash
    for name in dict.fromkeys(names):
        try:
            owner = owner_of(name)
        except SlotNotCoveredError:  # the table of slots has a hole, or is not there yet
            owner = None
        _, share = shares.setdefault(None if owner is None else owner.name, (owner, []))
        share.append(name)
    return ((owner, chunk) for owner, share in shares.values() for chunk in fence.key_chunks(share))


def invalidation(*names: bytes) -> list[bytes | str | int]:
    """The arguments after the sha, for as many keys as a call may carry; on a cluster, for one key."""
    return fence.invalidate_args(names)


def times_of(reply: Any) -> list[Sequence[Any]]:
    """The answers to TIME of one node, or of several nodes of a cluster."""
    return list(reply.values()) if isinstance(reply, dict) else [reply]


def earliest(times: Iterable[Sequence[Any]]) -> int:
    """The token of the clock that is furthest behind, so that the token is ahead of no key owner's clock."""
    return min(fence.token_of(int(seconds), int(micros)) for seconds, micros in times)


def writing_through(
    encoder: KeyEncoder, name: bytes, value: object, *, ttl: float | timedelta, since: int
) -> list[bytes | str | int]:
    """The arguments after the sha."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    ttl_ms = int(seconds * 1000)
    if ttl_ms < 1:
        raise DataError(f"ttl={ttl!r}: a value must live for at least a millisecond")
    return fence.write_through_args(name, bytes(encoder.encode(value)), ttl_ms, since)


class Refusals:
    """The keys that Redis refused to invalidate. The others are still invalidated; one error at the end names the refused."""

    def __init__(self) -> None:
        self._errors: dict[bytes, ResponseError] = {}

    def hear(self, names: Sequence[bytes], reply: Iterable[int | bytes | str]) -> None:
        """The script's answers for these keys."""
        for name, outcome in zip(names, fence.outcomes(reply), strict=True):
            if isinstance(outcome, fence.Failed):
                self._errors[name] = ResponseError(outcome.text)

    def refused(self, name: bytes, error: ResponseError) -> None:
        """Redis refused a call with this key alone."""
        self._errors[name] = error

    def tell(self) -> None:
        """Raises the first refusal, with its type of error and the names of all refused keys."""
        if not self._errors:
            return
        first = next(iter(self._errors.values()))
        named = ", ".join(
            name.decode("utf-8", "backslashreplace") for name in islice(self._errors, NAMED_MAX)
        )
        more = f" and {len(self._errors) - NAMED_MAX} more" if len(self._errors) > NAMED_MAX else ""
        raise type(first)(f"{first} (not invalidated: {named}{more})") from first


def was_set(name: bytes, reply: Sequence[int | bytes | str]) -> bool:
    """Whether write_through has set the value; False if it has removed the key."""
    refusals = Refusals()
    refusals.hear([name], reply)
    refusals.tell()
    return reply[0] == fence.SET
