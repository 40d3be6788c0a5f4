"""What all clients need around a call: where hints go, and the fenced script's arguments and answers.

Plain functions without I/O, so that the sync and the asyncio client differ in nothing but `await`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from redis.exceptions import DataError, ResponseError, SlotNotCoveredError

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
TIME = "return redis.call('TIME')"  # as a script it has a key, so that it finds the key's owner wherever its slot goes


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
    """redis-py makes a client of `cls` and cannot hand `emit` on: whoever asked for it says then where hints go."""
    before = _told_later.set(cls)
    try:
        yield
    finally:
        _told_later.reset(before)


def tell(client: Emitting, emit: str | None, only: Sequence[str | bytes] | None) -> None:
    """A client that was just made learns where its hints go, unless it will be told later: "auto" may be no target."""
    if _told_later.get() is not type(client):
        client.emit_to(hints_for(client.get_encoder(), emit, only))


def names_of(encoder: KeyEncoder, keys: Iterable[object]) -> list[bytes]:
    """Keys as redis-py would send them; its DataError for what is no key."""
    return [bytes(encoder.encode(key)) for key in keys]


def by_owner(names: Sequence[bytes], owner_of: Callable[..., Any]) -> Iterator[tuple[Any, Sequence[bytes]]]:
    """Nodes of a cluster and what each of them owns, cut as one node's calls are. None: redis-py must ask for the owner."""
    shares: dict[Any, list[bytes]] = {}
    for name in dict.fromkeys(names):
        try:
            owner = owner_of(name)
        except SlotNotCoveredError:  # a table of an hour of need, or none yet
            owner = None
        shares.setdefault(owner, []).append(name)
    return ((owner, chunk) for owner, share in shares.items() for chunk in fence.key_chunks(share))


def invalidation(*names: bytes) -> list[bytes | str | int]:
    """What follows the sha, for as many keys as a call may carry; on a cluster for one."""
    return fence.invalidate_args(names)


def times_of(reply: Any) -> list[Sequence[Any]]:
    """What the asked nodes of a cluster said to TIME."""
    return list(reply.values()) if isinstance(reply, dict) else [reply]


def earliest(times: Iterable[Sequence[Any]]) -> int:
    """The token of the clock that is behind the others: no owner of a key may take it for later than it is."""
    return min(fence.token_of(int(seconds), int(micros)) for seconds, micros in times)


def writing_through(
    encoder: KeyEncoder, name: bytes, value: object, *, ttl: float | timedelta, since: int
) -> list[bytes | str | int]:
    """What follows the sha."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    ttl_ms = int(seconds * 1000)
    if ttl_ms < 1:
        raise DataError(f"ttl={ttl!r}: a value must live for at least a millisecond")
    return fence.write_through_args(name, bytes(encoder.encode(value)), ttl_ms, since)


class Refusals:
    """The keys that Redis would not invalidate. One of them keeps no other from it: they are raised in the end, once."""

    def __init__(self) -> None:
        self._errors: dict[bytes, ResponseError] = {}

    def hear(self, names: Sequence[bytes], reply: Iterable[int | bytes | str]) -> None:
        """What the script has answered for these keys."""
        for name, outcome in zip(names, fence.outcomes(reply), strict=True):
            if isinstance(outcome, fence.Failed):
                self._errors[name] = ResponseError(outcome.text)

    def refused(self, name: bytes, error: ResponseError) -> None:
        """The call was refused, which had this key alone."""
        self._errors[name] = error

    def tell(self) -> None:
        """Raises the first, as the error that Redis has made of it, with the names of all."""
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
