"""Compares an application's value with ours: whether it reads in our form, and where a reader would notice a difference.

Called for the first values of a namespace (`verdict`) and for those that `check --connect` shows. A field differs if its kind
does: a number that would become text, a time that would change its form, a field that would be gone. Another number or
another text is no difference, for rows change. NULL goes with every kind, and so tells nothing. An empty list or object is
the exception: its readers go through it, and they cannot go through NULL. In hashes and strings everything is text, so
`likeness` compares spellings there. Pure; keeps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cacheupdater.core import pickled
from cacheupdater_client.protocol.dogpile import payload_of
from cacheupdater_client.protocol.pickles import CACHELIB, is_of_cachelib, is_pickle, is_pickle_or_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from cacheupdater_client.protocol.fence import Form

_INTERVAL = re.compile(r"-?P(?=.)(\d+[YMWD])*(T(\d+([.]\d+)?[HMS])+)?")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:(?P<between>.)\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?"
)
NOTHING = object()
_SHOWN_MAX = 60  # characters of one side; a person wants to recognise it


class Unshown(NamedTuple):
    """Stands for a value that a person cannot read, such as a pickle: says what it is."""

    what: str


class Pickle(bytes):
    """A pickle, which is never loaded. Two of them are equal if their bytes are."""


_NOTHINGS: tuple[object, ...] = (None, "", {}, [], ())
_NAMES = {Pickle.__name__: "pickle"}  # where a person would not know the class


class Compared(NamedTuple):
    """One field of which both sides say something."""

    field: str  # its path, such as `price` or `lines[].price`; empty for the value as a whole
    theirs: object
    ours: object
    what: str  # how a reader would notice, without any value; empty if both are alike

    @property
    def within(self) -> bool:
        """Whether ours lacks a name within a field. Such names may be data, so this one tells little of other values."""
        return self.ours is NOTHING and "." in self.field.removeprefix("[].")

    def __str__(self) -> str:
        """With the values, for a person who has the right to see them."""
        return f"{self.field or 'the value'}: {_shown(self.theirs)} -> {_shown(self.ours)}"


def reads(form: Form, value: bytes | Mapping[bytes, bytes] | None) -> bool:
    """Whether a value reads in this form. None is a value of a type that is never written through the fence."""
    return decoded(form, value) is not None


def decoded(form: Form, value: bytes | Mapping[bytes, bytes] | None) -> tuple[object] | None:
    """The value as its readers see it, in a tuple, for it may be None. None alone: it does not read in this form."""
    if isinstance(value, Mapping):
        return ({_word(name): _word(part) for name, part in value.items()},) if form == "hash" else None
    if value is None or form == "hash":
        return None
    decode = _DECODERS.get(form, _word)
    try:
        return (decode(value),)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def says_nothing(form: Form, value: bytes | Mapping[bytes, bytes] | None) -> bool:
    """Whether the value itself says that there is no row: null, or something empty."""
    said = decoded(form, value)
    return said is not None and opened(said[0]) in _NOTHINGS


def compared(theirs: object, ours: object, field: str = "") -> Iterator[Compared]:
    """Field by field, as far as both show their kinds."""
    theirs, ours = _both_opened(theirs, ours)
    # empty values count as a field of their own: they are few, and each of them tells
    if theirs in ([], {}) and ours in (None, theirs):
        what = f"{field or 'the value'} is {kind_of(theirs)} and would become NULL where it is empty"
        yield Compared(f"{field} where empty", theirs, ours, what if ours is None else "")
    if theirs is None or ours is None:
        return
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for name, part in theirs.items():
            path = f"{field}.{name}" if field else str(name)
            if name in ours:
                yield from compared(part, ours[name], path)
            else:
                yield Compared(path, part, NOTHING, f"{path} would be gone{folded(str(name), ours)}")
    elif isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        if theirs and ours:  # items are alike: the first ones tell
            yield from compared(theirs[0], ours[0], f"{field}[]")
    else:
        was, becomes = kind_of(theirs), kind_of(ours)
        what = f"{field or 'the value'} is {was} and would become {becomes}"
        yield Compared(field, theirs, ours, "" if was == becomes else what)


def opened(value: object) -> object:
    """What a pickle says, if it can be read without being loaded. All other values as they are."""
    if isinstance(value, Pickle):
        with suppress(pickled.Unread):
            return pickled.read(value)
    return value


def _both_opened(theirs: object, ours: object) -> tuple[object, object]:
    """Two pickles can be compared if both can be read."""
    both = opened(theirs), opened(ours)
    return (theirs, ours) if any(isinstance(each, Pickle) for each in both) else both


def folded(name: str | bytes, ours: Collection[str | bytes]) -> str:
    """Why a field is not there although the statement asks for it: PostgreSQL writes unquoted names in lower case."""
    lower = name.lower()
    return ", for its name is loaded in lower case" if lower != name and lower in ours else ""


def kind_of(value: object) -> str:
    """The kind of a value, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return _text_kind(value)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    name = value.name if isinstance(value, pickled.Instance) else type(value).__name__
    return f"a {_NAMES.get(name, name)}"


def _text_kind(text: str) -> str:
    time = _TIME.fullmatch(text)
    if time is None:
        return "an interval such as PT1H" if _INTERVAL.fullmatch(text) else "text"
    between, zone = time["between"], time["zone"]
    if between is None:
        return "a date"
    zoned = "without a zone" if zone is None else "with zone Z" if zone == "Z" else "with an offset"
    return f"a time {zoned}" if between == "T" else f"a time {zoned}, not parted by T"


def _word(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def _integer_or_pickle(value: bytes) -> object:
    """What Django's cache holds. A pickle may run any code when it is loaded, so it stays as it is: bytes, under a name."""
    if not is_pickle_or_integer(value):
        raise msgspec.DecodeError
    return Pickle(value) if value[:1] == b"\x80" else int(value)


def _of_cachelib(value: bytes) -> object:
    """What Flask-Caching holds: as above, with a sign before the pickle."""
    if not is_of_cachelib(value):
        raise msgspec.DecodeError
    return Pickle(value[1:]) if value[:1] == CACHELIB else int(value)


def _pickle_of_dogpile(value: bytes) -> object:
    payload = payload_of(value)
    if payload is None or not is_pickle(payload):
        raise msgspec.DecodeError
    return Pickle(payload)


def _json_of_dogpile(value: bytes) -> object:
    return msgspec.json.decode(payload_of(value) or b"")


_DECODERS: Mapping[Form, Callable[[bytes], object]] = {
    "json": msgspec.json.decode,
    "msgpack": msgspec.msgpack.decode,
    "pickle": _integer_or_pickle,
    "cachelib": _of_cachelib,
    "dogpile": _pickle_of_dogpile,
    "dogpile-json": _json_of_dogpile,
}


def _shown(value: object) -> str:
    if value is NOTHING:
        return "gone"
    if isinstance(value, Unshown):
        return value.what
    if isinstance(value, Pickle | pickled.Instance):
        return kind_of(value)
    try:
        text = msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):  # only pickles have such keys or texts, or are so deep
        return kind_of(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
