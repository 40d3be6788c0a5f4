"""Compares an application's value with ours, field by field: whether its readers could read what we would write.

`judging` calls it for the first values of a namespace, `side_by_side` and `explain` for values that a person looks at.
Objects are compared by kinds. In hashes and strings everything is text, and a reader depends on its spelling: `== "True"`,
`int(...)`, `strptime(...)`. So spellings are compared there. Rows change, so another value is no difference. But one number
in two spellings is certain evidence. Some texts tell nothing: everybody spells `19.99` so. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from cacheupdater.core import kinds
from cacheupdater.core.kinds import NOTHING, Compared, Unshown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater_client.protocol.fence import Form

    Held = bytes | Mapping[bytes, bytes] | None

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.(?P<fraction>\d+))?(?P<power>[eE][+-]?\d+)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TRUTH = {
    word: f"{yes} or {no}"
    for yes, no in (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
    for word in (yes, no)
}
_NULLS = {"", "None", "none", "null", "NULL", "nil"}  # what languages make of a value that is not there
_EITHER = "a number"  # spelled alike by everybody


def compared(form: Form, theirs: Held, ours: Held, row: object) -> list[Compared] | None:
    """Field by field; None if either is not of this form. Ours was made of `row`, which shows which columns are text."""
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return list(_fields(theirs, ours, row if isinstance(row, Mapping) else {}))
    if form == "string" and isinstance(theirs, bytes) and isinstance(ours, bytes):
        return list(_contents("", theirs, ours, free=isinstance(_only(row), str)))
    was, becomes = kinds.decoded(form, theirs), kinds.decoded(form, ours)
    return None if was is None or becomes is None else list(kinds.compared(was[0], becomes[0]))


def _only(row: object) -> object:
    """The value in a row of one column; any other row as it is."""
    return next(iter(row.values())) if isinstance(row, Mapping) and len(row) == 1 else row


def _fields(
    theirs: Mapping[bytes, bytes], ours: Mapping[bytes, bytes], row: Mapping[str, object]
) -> Iterator[Compared]:
    nulls = {name.encode() for name, value in row.items() if value is None}
    for name, text in theirs.items():
        field = _word(name)
        if name in ours:
            yield from _contents(field, text, ours[name], free=isinstance(row.get(field), str))
        elif name not in nulls:
            yield Compared(field, _word(text), NOTHING, f"{field} would be gone{kinds.folded(name, ours)}")
        elif _word(text) in _NULLS:  # any other text: the row has changed
            yield Compared(f"{field} of NULL", _word(text), NOTHING, f"{field} of NULL would be gone")
    for name in nulls - theirs.keys() - ours.keys():
        yield Compared(f"{_word(name)} of NULL", NOTHING, NOTHING, "")


def _contents(field: str, theirs: bytes, ours: bytes, *, free: bool) -> Iterator[Compared]:
    """One field of a hash, or a string. `free`: a column of text, which may say anything."""
    was, becomes = _content(theirs), _content(ours)
    if was == becomes == "text":
        spellings = _spellings(_word(theirs), _word(ours), free=free)
        if spellings is None:
            return
        was, becomes = spellings
    elif was == becomes and was.endswith("JSON"):
        yield from kinds.compared(msgspec.json.decode(theirs), msgspec.json.decode(ours), field)
        return
    what = f"{field or 'the value'} is {was} and would become {becomes}"
    yield Compared(field, _shown(theirs, was), _shown(ours, becomes), "" if was == becomes else what)


def _shown(value: bytes, content: str) -> object:
    return Unshown(content) if content in {"a pickle", "bytes"} else _word(value)


def _content(value: bytes) -> str:
    """What a string holds. A pickle is recognised by its first and last bytes, and never loaded."""
    if value[:1] == b"\x80" and value[1:2] <= b"\x05" and value[-1:] == b".":
        return "a pickle"
    try:
        value.decode()
        found = msgspec.json.decode(value) if value[:1] in {b"{", b"[", b'"'} else None
    except UnicodeDecodeError:
        return "bytes"
    except (msgspec.DecodeError, RecursionError):
        found = None
    return (
        "text"
        if found is None
        else f"{kinds.kind_of(found) if not isinstance(found, str) else 'a text'} in JSON"
    )


def _spellings(theirs: str, ours: str, *, free: bool) -> tuple[str, str] | None:
    """The spellings of both, in words; None if they tell nothing."""
    was, becomes = _spelling(theirs), _spelling(ours)
    if free and "text" in {was, becomes}:
        return "text", "text"
    if _EITHER not in {was, becomes}:
        return was, becomes
    if was == becomes or not (_NUMBER.fullmatch(theirs) and _NUMBER.fullmatch(ours)):
        return None if was == becomes else (was, becomes)
    return (was, becomes) if Decimal(theirs) == Decimal(ours) else None


def _spelling(text: str) -> str:
    number = _NUMBER.fullmatch(text)
    if number is None:
        return _TRUTH.get(text) or ("a UUID" if _UUID.fullmatch(text) else kinds.kind_of(text))
    fraction = number["fraction"]
    if number["power"]:
        return _EITHER
    if fraction is None:
        return "a whole number"
    if len(fraction) == 1:
        return "a number such as 1.5"
    return "a number such as 1.50" if fraction.endswith("0") else _EITHER


def _word(text: bytes) -> str:
    return text.decode(errors="backslashreplace")
