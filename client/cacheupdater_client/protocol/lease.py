"""The lease: among all processes one loads a key that is absent or too old, and the others wait for it.

A lease is a key of Redis beside the floor, with an owner and an end. The script LOOK gives a reader what it needs in one
round trip: the value if another process has just filled it, the news that the row is absent, or the lease and the token of
the load. The script RELEASE ends leases. PROLONG follows a load that failed: the old value lives on, and the lease becomes a
pause. A lease only saves loads: two loads of one key do no harm, because the fence
decides which of them lands. A process that dies keeps its leases until they expire.

Like `fence`, this module makes arguments and reads answers: no socket, no clock, no redis-py. The client's `cache` is the
caller. An updater uses PROLONG alone, without an owner: for the values that it keeps while their source fails.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from cacheupdater_client.protocol.fence import FORM_LETTERS, Form, floor_name, lease_name, script

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK = script("look.lua")
RELEASE = script("release.lua")
PROLONG = script("prolong.lua")

FAIL_SAFE_S_MIN, FAIL_SAFE_S_MAX = 1.0, 7 * 86_400.0  # a source that fails for longer is no outage any more

LEASE_S_MIN, LEASE_S_MAX = 0.1, 30.0  # a load that takes longer could not land: see fence.LOAD_AGE_S

_Arg: TypeAlias = bytes | str | int


class State(IntEnum):
    """What LOOK found."""

    FOUND = 0
    ABSENT = 1
    GRANTED = 2
    TAKEN = 3


class Seen(NamedTuple):
    """LOOK's answer for one key."""

    token: int  # of a load that begins now
    state: State
    value: bytes | None  # if not FOUND: a value that is too old for this reader
    left_ms: int  # until the lease expires
    age_ms: int = -1  # of the value, since the load that wrote it; -1: not known


class Terms(NamedTuple):
    """What a reader asks for."""

    lease_ms: int
    mark_ms: int  # a mark of an absent row counts while it is no older
    value_ms: int | None = None  # a value counts while it is no older; None: at any age
    by_force: bool = False  # the lease is taken from whoever holds it
    no_lease: bool = False  # this reader would not load: another value is TAKEN, whoever has the lease


def _in_triples(keys: Sequence[bytes]) -> list[_Arg]:
    names = chain.from_iterable((key, floor_name(key), lease_name(key)) for key in keys)
    return [3 * len(keys), *names]


def look_args(owner: str, keys: Sequence[bytes], terms: Terms) -> list[_Arg]:
    """The arguments after LOOK's sha in EVALSHA."""
    value_age = "" if terms.value_ms is None else terms.value_ms * 1000
    return [
        *_in_triples(keys),
        owner,
        terms.lease_ms,
        terms.mark_ms * 1000,
        value_age,
        "1" if terms.by_force else "0" if terms.no_lease else "",
    ]


def seen(reply: Sequence[bytes | int | None]) -> list[Seen]:
    """LOOK's reply, key by key."""
    fields = iter(reply)
    token = int(cast("bytes", next(fields)))
    by_key = cast("zip[tuple[int, bytes | None, int, int]]", zip(fields, fields, fields, fields, strict=True))
    return [Seen(token, State(state), value, left, age) for state, value, left, age in by_key]


def release_args(owner: str, keys: Sequence[bytes]) -> list[_Arg]:
    """The arguments after RELEASE's sha in EVALSHA."""
    return [len(keys), *map(lease_name, keys), owner]


class Grace(NamedTuple):
    """How long old values may live while their source fails."""

    ttl_ms: int
    fail_safe_ms: int  # beyond the ttl, counted from the load that wrote the value
    pause_ms: int = 0  # before somebody tries again; without an owner nobody waits


NO_OWNER = ""


def prolong_args(owner: str, keys: Sequence[bytes], grace: Grace, *, form: Form | None = None) -> list[_Arg]:
    """The arguments after PROLONG's sha in EVALSHA. With a form, values that are foreign to it stay as they are."""
    letter = FORM_LETTERS[form] if form else ""
    return [*_in_triples(keys), owner, grace.ttl_ms, grace.fail_safe_ms, grace.pause_ms, letter]


PROLONGED = 1  # PROLONG: the value has more time
