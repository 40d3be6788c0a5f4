"""The fence: nothing older ever replaces something newer in Redis.

Each key has a *floor* beside it, in its own slot: the highest token that has written it, or the time of its last
invalidation. A *token* is Redis' own time, taken before the database is read. The script COMMIT writes the values of a
load if the load's token lies above the floor. The script INVALIDATE is the application's side: it removes a value (or
writes one through) and raises the floor, so that no load that began earlier can land.

This module makes the arguments of the two scripts and reads their answers. The updater's writer calls `commit_args`; the
client calls `invalidate_args` and `write_through_args`. Both send `EVALSHA sha, *args` over their own connection. Plain
functions on bytes: no socket, no clock, no redis-py.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha1
from itertools import product, repeat
from operator import add
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from cacheupdater_client.protocol.wire import KEY_BYTES_MAX

SCRIPT_KEYS_MAX = 100  # a script blocks Redis while it runs: 100 keys take well under a millisecond
SCRIPT_BYTES_MAX = 1024 * 1024  # of values, for the same reason; also the largest single value
LOAD_AGE_S = 30  # an older load may have outlived the floor that forbids it
CLOCK_STEP_S = 60  # a floor further ahead than this was set by a clock that has since stepped back

_Arg: TypeAlias = bytes | str | int
Value: TypeAlias = bytes | Mapping[bytes, bytes] | None
Entries: TypeAlias = Sequence[tuple[bytes, Value, int]]
"""(key, value, ttl in ms): a string, a hash, or None where the row is absent."""


Form: TypeAlias = Literal[
    "type", "json", "msgpack", "string", "hash", "pickle", "cachelib", "dogpile", "dogpile-json"
]
"""How the values of a namespace read. By it the scripts tell foreign values. `type` stands for any string, or any hash.

The last digits of a load's floor are the number of its form in `_FORMS`. So after a change of form the scripts still
know the values that we wrote in the earlier one.
"""
ABSENT_FORM = 5
"""The last digit of the floor that a load leaves for an absent row. Such a floor is a mark: a reader that finds the mark
young enough need not load. A change or a later load replaces the floor, and so ends the mark."""
FOREIGN_FORM = 997
"""The last digits of the floor of a load that found a foreign value and left it alone. An older load may not write any more."""
DISPUTED_FORM = 996
"""The last digits of the floor of a load that found no row, and has removed a value for the second time: the application sees a
row. Where there is no value, such a floor is a mark of an absent row too."""
OUTDATED_FORM = 998
"""The last digits of the floor of a change that left the old value readable: see `outdate_args`."""
NO_FORMS: Mapping[bytes, Form] = {}
_FORMS: dict[Form, int] = {
    "type": 0,
    "json": 1,
    "msgpack": 2,
    "string": 3,
    "hash": 4,
    "pickle": 6,
    "cachelib": 7,
    "dogpile": 8,
    "dogpile-json": 9,
}
FORM_LETTERS: dict[Form, str] = {form: form[0] for form in _FORMS} | {
    "dogpile-json": "D"
}  # as the scripts say
DATED: frozenset[Form] = frozenset({"dogpile", "dogpile-json"})
"""Forms whose values tell the time of their load. COMMIT puts it in, and does not count it as a change."""


class Script(NamedTuple):
    """Lua text and the name under which Redis caches it."""

    text: str
    sha: str


def script(name: str) -> Script:
    """A script of this folder, behind what all scripts share."""
    text = "\n".join(Path(__file__).with_name(part).read_text("utf-8") for part in ("fence.lua", name))
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


COMMIT = script("commit.lua")
INVALIDATE = script("invalidate.lua")
OUTDATE = script("outdate.lua")


# --- tokens and floors ----------------------------------------------------------------------------------


def token_of(seconds: int, micros: int) -> int:
    """The token of a load that begins at this Redis TIME: microseconds, and three digits that break ties."""
    return (seconds * 1_000_000 + micros) * 1000


def stamp_of(token: int, form: Form) -> int:
    """The floor that a load writes: its token, with the form of its values in the last digits."""
    return token + _FORMS[form]


def absent_stamp(token: int) -> int:
    """The floor that a load leaves where the row is absent."""
    return token // 1000 * 1000 + ABSENT_FORM


def foreign_stamp(token: int) -> int:
    """The floor that a load leaves where it found a foreign value."""
    return token // 1000 * 1000 + FOREIGN_FORM


def disputed_stamp(token: int) -> int:
    """The floor that a load leaves where it found no row, and removed a value for the second time or left one alone."""
    return token // 1000 * 1000 + DISPUTED_FORM


def tells_age(floor: int) -> bool:
    """Whether the value beside this floor is as old as the floor. A foreign value is not."""
    return floor % 1000 not in (FOREIGN_FORM, DISPUTED_FORM)


def form_of(floor: int) -> Form | None:
    """The form of the load that wrote this floor; None if no load of a known form wrote it."""
    return next((form for form, place in _FORMS.items() if place and place == floor % 1000), None)


FORMS_END = 100  # as the scripts have it: above the number of any form


def is_of_load(floor: int) -> bool:
    """Whether a load that found a row has set this floor. Only then does the floor tell the age of the value."""
    return floor % 1000 < FORMS_END and floor % 1000 != ABSENT_FORM


FLOOR_DIGITS = 20  # as the scripts have it


def floor_of(text: bytes) -> int | None:
    """The bytes as a floor; None if they are not one, whatever program wrote them."""
    return int(text) if len(text) <= FLOOR_DIGITS and text.isdigit() and not text.startswith(b"0") else None


_BESIDE = b"__crs:"  # how the names of all keys begin that stand beside values
_FLOOR = _BESIDE + b"{"  # how the names of all floors begin
_CRCS = 65536
_SLOTS = 16384
_LETTERS = b"@ABCDEFGHIJKLMNO"
"""Letters whose four low bits are free. CRC16 is linear, so the words [@-C][@-O][@-O][@-O] hit each slot exactly once.

Every client in every language must name floors alike: these words are part of the format.
"""


@cache
def _floor_prefixes() -> list[bytes]:
    """How the name of a floor begins, for each CRC16 of a key. Built at first use, in some 5 ms."""
    prefixes = [b""] * _SLOTS
    for word in product(_LETTERS[:4], _LETTERS, _LETTERS, _LETTERS):
        tag = bytes(word)
        prefixes[crc_hqx(tag, 0) % _SLOTS] = _FLOOR + tag + b"}:"
    return prefixes * (_CRCS // _SLOTS)  # a slot is a CRC16 modulo their number: this saves the division


_OPEN = ord("{")  # `int in bytes` looks for a byte; `bytes in bytes` costs ten times that


def floor_name(key: bytes) -> bytes:
    """The name of the key's floor, in the key's own cluster slot.

    Wrapping the key in braces would be wrong for keys that have braces of their own; a tag from the table of slots is
    right for every byte string.
    """
    return floor_names([key])[0]


def is_beside(name: bytes) -> bool:
    """Whether a key of Redis is the floor of another, or its lease, or what we keep beside these."""
    return name.startswith(_BESIDE)


_SIGN_AT = len(_FLOOR) + 5  # behind the four letters and the brace
_LEASE_SIGN = b"+"


def lease_name(key: bytes) -> bytes:
    """The name of the key's lease, beside its floor. One rule of access, `~__crs:*`, covers both."""
    floor = floor_name(key)
    return floor[:_SIGN_AT] + _LEASE_SIGN + floor[_SIGN_AT + 1 :]


def floor_names(keys: Sequence[bytes]) -> list[bytes]:
    """As `floor_name`. A batch costs no loop in Python, unless a key has braces."""
    tags = [_tag(key) if _OPEN in key else key for key in keys] if _OPEN in b"".join(keys) else keys
    return list(map(add, map(_floor_prefixes().__getitem__, map(crc_hqx, tags, repeat(0))), keys))


def _tag(key: bytes) -> bytes:
    """The part of a key with braces that decides its slot."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if end > start + 1 else key  # `{}` is no tag: the whole key counts


def _in_pairs(first: Sequence[_Arg], second: Sequence[_Arg]) -> list[_Arg]:
    """first[0], second[0], first[1], ... : slices fill the list in C."""
    paired: list[_Arg] = [0] * (2 * len(first))
    paired[::2] = first
    paired[1::2] = second
    return paired


def _floor_life_ms(hold_off_ms: int) -> int:
    """A floor outlives every load that it forbids. (The scripts make it live as long as the value, if longer.)"""
    return hold_off_ms + 2 * LOAD_AGE_S * 1000


# --- calls ----------------------------------------------------------------------------------------------


def size_of(value: Value) -> int:
    """The bytes of a value, as SCRIPT_BYTES_MAX counts them."""
    if isinstance(value, bytes):
        return len(value)
    if value is None:
        return 0
    return sum(map(len, value.keys())) + sum(map(len, value.values()))


def fits(entry: tuple[bytes, Value, int]) -> bool:
    """Whether any call may carry this entry."""
    return len(entry[0]) <= KEY_BYTES_MAX and size_of(entry[1]) <= SCRIPT_BYTES_MAX


def chunks(entries: Entries) -> Iterator[Entries]:
    """The entries in order, in chunks of one call each. An entry that fits into no call is a chunk of its own."""
    sizes = _sizes(entries)
    if sum(sizes) <= SCRIPT_BYTES_MAX:  # nearly always
        yield from (entries[at : at + SCRIPT_KEYS_MAX] for at in range(0, len(entries), SCRIPT_KEYS_MAX))
        return
    start = held = 0
    for at, size in enumerate(sizes):
        if at > start and (held + size > SCRIPT_BYTES_MAX or at - start == SCRIPT_KEYS_MAX):
            yield entries[start:at]
            start, held = at, 0
        held += size
    yield entries[start:]


def _sizes(entries: Entries) -> list[int]:
    """The bytes of each value. Where the key is too long, more than any call may carry."""
    if not entries:
        return []
    keys, values, _ = zip(*entries, strict=True)
    if set(map(type, values)) == {bytes} and max(map(len, keys)) <= KEY_BYTES_MAX:
        return list(map(len, values))
    too_big = SCRIPT_BYTES_MAX + 1
    return [size_of(value) if len(key) <= KEY_BYTES_MAX else too_big for key, value, _ in entries]


def key_chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The keys in order, at most SCRIPT_KEYS_MAX together."""
    return (keys[at : at + SCRIPT_KEYS_MAX] for at in range(0, len(keys), SCRIPT_KEYS_MAX))


def commit_args(
    token: int,
    entries: Entries,
    *,
    hold_off_ms: int = 0,
    load_age_s: float = LOAD_AGE_S,
    replace: bool = False,
    form: Form = "type",
) -> list[_Arg]:
    """The arguments after COMMIT's sha in EVALSHA. With `replace` foreign values are overwritten; otherwise they stay."""
    keys, values, ttls = zip(*entries, strict=True)
    data: list[_Arg]
    of_strings = "d" if form in DATED else "s"
    if set(map(type, values)) == {bytes}:  # the usual batch: no loop in Python
        data, kinds = _in_pairs(ttls, values), of_strings * len(values)
    else:
        data, kinds = [], ""
        for value, ttl_ms in zip(values, ttls, strict=True):
            kind = _append_value(data, value, ttl_ms)
            kinds += of_strings if kind == "s" else kind
    age_us, step_us = int(load_age_s * 1_000_000), CLOCK_STEP_S * 1_000_000
    stamp, letter = stamp_of(token, form), "" if replace else FORM_LETTERS[form]
    head = (stamp, age_us, step_us, _floor_life_ms(hold_off_ms), letter, kinds)
    return [2 * len(keys), *_in_pairs(keys, floor_names(keys)), *head, *data]


def _append_value(data: list[_Arg], value: Value, ttl_ms: int) -> str:
    """Appends the scripts' arguments for one value and returns its kind. An empty hash is absent: Redis has none."""
    data.append(ttl_ms)
    if isinstance(value, bytes):
        data.append(value)
        return "s"
    if not value:
        return "a"
    data.append(2 * len(value))
    for field in value.items():
        data += field
    return "h"


def invalidate_args(
    keys: Sequence[bytes],
    *,
    hold_off_ms: int = 0,
    forms: Mapping[bytes, Form] = NO_FORMS,
    only_ours: Collection[bytes] = (),
) -> list[_Arg]:
    """The arguments after INVALIDATE's sha in EVALSHA, for at most SCRIPT_KEYS_MAX keys.

    `hold_off_ms` covers the lag of replicas that loads may read: no load that began within this time can land. A value
    that is foreign to its key's form in `forms` stays. Where a key has no form, any value is removed. But a value of a key in
    `only_ours` is removed only if a load of an updater has written it; any other value is spared.
    """
    if not 0 <= hold_off_ms <= CLOCK_STEP_S * 1000:
        raise ValueError(
            f"hold_off must be 0 to {CLOCK_STEP_S} s: a floor further ahead looks like a clock step"
        )
    names = _in_pairs(keys, floor_names(keys))
    letters = "".join(FORM_LETTERS[forms[key]] if key in forms else "-" for key in keys) if forms else ""
    marks = "".join("01"[key in only_ours] for key in keys) if only_ours else ""
    life = _floor_life_ms(hold_off_ms)
    return [len(names), *names, hold_off_ms * 1000, CLOCK_STEP_S * 1_000_000, life, letters, marks]


def outdate_args(keys: Sequence[bytes], hold_ms: int) -> list[_Arg]:
    """The arguments after OUTDATE's sha in EVALSHA: as `invalidate_args`, but old values stay for at most `hold_ms`."""
    names = _in_pairs(keys, floor_names(keys))
    return [len(names), *names, CLOCK_STEP_S * 1_000_000, _floor_life_ms(0), hold_ms]


def write_through_args(
    key: bytes, value: Value, ttl_ms: int, since: int, *, hold_off_ms: int = 0
) -> list[_Arg]:
    """The arguments after INVALIDATE's sha in EVALSHA, to set a value.

    The script sets it if nothing newer than `since` has happened; otherwise it removes the key. `since` is the token
    taken before the database was written.
    """
    data: list[_Arg] = []
    kind = _append_value(data, value, ttl_ms)
    if kind == "h":
        del data[1]  # the count: a single key's fields are all that follows
    args = invalidate_args([key], hold_off_ms=hold_off_ms)
    return [*args, since, LOAD_AGE_S * 1_000_000, kind, *data] if kind != "a" else args


# --- answers --------------------------------------------------------------------------------------------

WRITTEN, UNCHANGED, DUPLICATE, TOO_OLD, FOREIGN = 1, 0, 2, -1, -2
UNSOUND = 3  # written or unchanged; the floor has replaced something that was no floor
ADOPTED = 4  # written over a value beside which no load had set the floor
SET, REMOVED, SPARED = 1, 0, -3
KEPT = 1  # OUTDATE: the old value stays


class Refused(NamedTuple):
    """Something newer happened. A token above `floor` will pass."""

    floor: int

    def wait_after(self, token: int) -> float:
        """Seconds from the moment of this token until a new token lies above the floor."""
        return (self.floor // 1000 + 1 - token // 1000) / 1_000_000


class Failed(NamedTuple):
    """Redis refused this one key; `text` is its error."""

    text: str


Outcome: TypeAlias = int | Refused | Failed


def outcomes(reply: Iterable[int | bytes | str], *, shown: Callable[[str], str] = str) -> list[Outcome]:
    """A script's reply in plain values: one of the numbers above, Refused or Failed for each key.

    `shown` takes out of the texts of errors what must not be printed.
    """
    said = list(reply)
    if set(map(type, said)) == {int}:  # nearly always
        return cast("list[Outcome]", said)
    return [each if isinstance(each, int) else _read(each, shown) for each in said]


def _read(answer: bytes | str, shown: Callable[[str], str]) -> Outcome:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    floor = floor_of(text.encode())
    if floor is not None:
        return Refused(floor)
    return Failed(shown(text.lstrip("-").rstrip()) if text.startswith("-") else "an unexpected answer")
