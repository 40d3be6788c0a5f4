"""The calls of Redis that the cache makes, and what their replies mean. Plain functions; `Store` and its asyncio twin send them.

One script takes up to 100 keys of one server. On a cluster each key has a call of its own, which goes to the key's node.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from redis.exceptions import NoScriptError, RedisError, ResponseError

from cacheupdater_client.calls import Refusals
from cacheupdater_client.protocol import fence, lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.cache.steps import Entry
    from cacheupdater_client.protocol.lease import Grace, Seen, Terms

JITTER = 0.1  # of the ttl, as an updater has it: values that were filled together do not expire together

Reply: TypeAlias = object
"""What redis-py returns for a script, or the exception of a call that failed."""


def refusal(client: object, package: str) -> str:
    """What to say of a client that leaves no hints."""
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    return f"the cache needs a client of {package}, got {kind}; cacheupdater_client.wrap(client) makes one of redis-py's"


class Call(NamedTuple):
    """One script, for keys of one node."""

    keys: Sequence[bytes]
    script: fence.Script
    args: Sequence[bytes | str | int]


def look_calls(owner: str, keys: Sequence[bytes], terms: Terms, *, apart: bool) -> list[Call]:
    """LOOK for these keys."""
    return [
        Call(share, lease.LOOK, lease.look_args(owner, share, terms)) for share in _shares(keys, apart=apart)
    ]


def seen(replies: Sequence[Reply]) -> list[Seen]:
    """LOOK's answers. Raises the error of a call that failed."""
    return [each for reply in replies for each in lease.seen(_sound(reply))]


def is_of_another_type(error: ResponseError) -> bool:
    """Whether GET failed because the key holds no string. redis-py puts words of its own before those of Redis."""
    return "WRONGTYPE" in str(error)


def values(replies: Sequence[Reply]) -> list[bytes | None]:
    """The values that GETs found; None for a key of another type, as MGET says. Raises any other error."""
    return [
        None if isinstance(reply, ResponseError) and is_of_another_type(reply) else _read(reply)
        for reply in replies
    ]


def fill_calls(
    entries: Sequence[Entry], declared: Declared, *, apart: bool, random: Callable[[], float]
) -> list[Call]:
    """COMMIT for these entries, in their order."""
    calls = []
    for token, together in groupby(entries, attrgetter("token")):
        timed: fence.Entries = [
            (entry.key, entry.value, max(1, int(declared.ttl_ms * (1.0 - JITTER * random()))))
            for entry in together
        ]
        for chunk in [[each] for each in timed] if apart else fence.chunks(timed):
            args = fence.commit_args(token, chunk, form=declared.codec.form)
            calls.append(Call([key for key, _, _ in chunk], fence.COMMIT, args))
    return calls


def outcomes(calls: Sequence[Call], replies: Sequence[Reply]) -> list[fence.Outcome]:
    """COMMIT's answers, one for each key. A call that failed has failed for all its keys."""
    said: list[fence.Outcome] = []
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(reply, Exception):
            said += [fence.Failed(str(reply))] * len(call.keys)
        else:
            said += fence.outcomes(cast("Sequence[int | bytes]", reply))
    return said


def release_calls(owner: str, keys: Sequence[bytes], *, apart: bool) -> list[Call]:
    """RELEASE for these keys."""
    return [
        Call(share, lease.RELEASE, lease.release_args(owner, share)) for share in _shares(keys, apart=apart)
    ]


def prolong_calls(owner: str, keys: Sequence[bytes], grace: Grace, *, apart: bool) -> list[Call]:
    """PROLONG for these keys."""
    return [
        Call(share, lease.PROLONG, lease.prolong_args(owner, share, grace))
        for share in _shares(keys, apart=apart)
    ]


def outdate_call(key: bytes, hold_ms: int) -> Call:
    """OUTDATE for this key."""
    return Call([key], fence.OUTDATE, fence.outdate_args([key], hold_ms))


def was_kept(key: bytes, replies: Sequence[Reply]) -> bool:
    """OUTDATE's answer: whether the old value stays. Raises Redis' error."""
    refusals = Refusals()
    answers = cast("Sequence[int | bytes]", _sound(replies[0]))
    refusals.hear([key], answers)
    refusals.tell()
    return answers[0] == fence.KEPT


def to_repeat(replies: Sequence[Reply]) -> Iterator[int]:
    """The places of calls to send again with their text: the server did not know the script, or is not the key's node."""
    for at, reply in enumerate(replies):
        if isinstance(reply, NoScriptError) or (
            isinstance(reply, RedisError) and not isinstance(reply, ResponseError)
        ):
            yield at


def failed(calls: Sequence[Call], error: RedisError) -> list[Reply]:
    """The replies where nothing could be sent."""
    return [error for _ in calls]


def _shares(keys: Sequence[bytes], *, apart: bool) -> Iterator[Sequence[bytes]]:
    return ([key] for key in keys) if apart else fence.key_chunks(keys)


def _read(reply: Reply) -> bytes | None:
    if isinstance(reply, Exception):
        raise reply
    return cast("bytes | None", reply)


def _sound(reply: Reply) -> Sequence[bytes | int | None]:
    if isinstance(reply, Exception):
        raise reply
    return cast("Sequence[bytes | int | None]", reply)
