"""What an application's foreign values read as, and which setting would make ours equal to them: for one line of text.

`pipeline/judging` and `pipeline/foreign` call it when they meet such values. It names kinds and settings, never what a value
says. Whether a value is foreign is decided elsewhere (`kinds`, `verdict`, the fence). Pure; keeps nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from cacheupdater_client.protocol.dogpile import payload_of
from cacheupdater_client.protocol.pickles import is_of_cachelib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_GLANCE = 10_000  # bytes: an old pickle of this length is told from text within a millisecond
_PICKLE = re.compile(
    rb"\x80[\x02-\x05].*\.", re.DOTALL
)  # from protocol 2 on a pickle begins with its number, and ends with STOP
_FRAMEWORKS = frozenset({"pickle", "cachelib", "dogpile", "dogpile-json"})  # what their caches read as
_PICKLED = frozenset({"pickle", "cachelib", "dogpile"})
_OTHER_TYPE = "a type that no namespace writes"
_JSON_OF_PYTHON = "JSON with NaN or infinity"  # Python's own encoder writes these words; no standard has them

# by what the values read as; for anything else no setting would make ours equal
_ENCODINGS = {
    "json": "json",
    _JSON_OF_PYTHON: "json",
    "hash": "hash",
    "msgpack": "msgpack",
    "text": "string",
    "bytes": "raw",
}
_SAY_TIMES = "say `value.times` as the application spells them (rfc3339, iso or str)"
_TIMED = "(is|become) (a time|a date|an interval)"
_SETTINGS = (
    (
        "of NULL would be gone|would become NULL",
        "let the statement say what stands for NULL, as `coalesce` does",
    ),
    ("would be gone, for its name", 'quote the name in the statement, as in `AS "inStock"`'),
    ("(?<!of NULL) would be gone(?!, for its name)", "let the statement load that field too"),
    (
        "(is|become) (true or false|True or False|TRUE or FALSE)",
        "let the statement spell it, as by `initcap(x::text)` or `x::int`",
    ),
    ("is a number and would become text", "say `value.numbers: plain`"),
    (
        "is a number such as [0-9.]+ and would become (text|a number)|is text and would become a number",
        "say `value.numbers` as the application spells them (plain or text)",
    ),
    (_TIMED, _SAY_TIMES),
)
_TIME = r"a time (?:without a zone|with zone Z|with an offset)(?:, not parted by T)?"
_BECOMES = re.compile(f"is ({_TIME}) and would become ({_TIME})")
# of `value.times`: by the application's form and ours, the spellings that make ours equal, whatever wrote ours.
# Where two do, the default counts, which is the later word
_SPELLINGS: Mapping[tuple[str, str], frozenset[str]] = {
    ("a time without a zone, not parted by T", "a time without a zone"): frozenset({"str"}),
    ("a time with an offset, not parted by T", "a time with an offset"): frozenset({"str"}),
    ("a time with an offset, not parted by T", "a time with zone Z"): frozenset({"str"}),
    ("a time with an offset", "a time with an offset, not parted by T"): frozenset({"iso"}),
    ("a time with an offset", "a time with zone Z"): frozenset({"iso"}),
    ("a time with zone Z", "a time with an offset, not parted by T"): frozenset({"rfc3339"}),
    ("a time with zone Z", "a time with an offset"): frozenset({"rfc3339"}),
    ("a time without a zone", "a time without a zone, not parted by T"): frozenset({"rfc3339", "iso"}),
}
_IN_DECLARATIONS = re.compile(r"`value\.(encoding|numbers|times)(?:: (\w+))?`")
# a flag or a setting: its text reads as JSON by chance
_ONE_COLUMN = re.compile("the value is (?:a number|true or false) and would become an object")
_EQUAL = "make the statement's values equal"
HIDDEN = "is it the right database, may its user see the rows, and does the statement's WHERE leave some out?"
ROWLESS = f"the source shows no row, although there is a value: {HIDDEN}"
_NOT_A_NUMBER = "let the application write null where a number is NaN or infinite"
_REPLACE = "say `value.foreign: replace` once the application can read what is written"


def reads_as(value: bytes | Mapping[bytes, bytes] | None) -> str:
    """What the bytes look like, whatever the configuration says. None: Redis holds a type that the fence never writes."""
    if value is None:
        return _OTHER_TYPE
    if not isinstance(value, bytes):
        return "hash"
    return next((word for word, test in _READINGS.items() if test(value)), "bytes")


def unreadable(form: str, value: bytes | Mapping[bytes, bytes] | None) -> str:
    """Why a value that does not read in its namespace's form is foreign."""
    return f"they read as {reads_as(value)}, where {form} would be written"


def advice(*whys: str, form: str = "json", declared: bool = False) -> str:
    """The settings that mend such values, found by the words of `unreadable` and `kinds.kind_of`; each setting once. `form` is ours:
    numbers and times in a pickle are what the statement loads, and no setting spells them. A value that the application has
    `declared` has its encoding, numbers and times from its declaration."""
    said = _mended(whys, form, declared=declared)
    if not declared:
        return said
    return _IN_DECLARATIONS.sub(_declared, said).replace("the statement", "its function")


def _declared(setting: re.Match[str]) -> str:
    name, value = setting.groups()
    spelled = f"{name}='{value}'" if value else name  # the log is JSON, which would escape double quotes
    return f"`{spelled}` in its declaration"


def _mended(whys: Sequence[str], form: str, *, declared: bool) -> str:
    for why in whys:
        if found := re.search(r"they read as (.+), where ([\w-]+) would", why):
            return _another_encoding(found[1], found[2])
    said = ", ".join(whys)  # each of them may tell of several fields
    if form == "json" and not declared and _ONE_COLUMN.search(said):
        return f"say `value.encoding: string`, with the cached column in `value.columns`, or {_REPLACE}"
    settings = [setting for words, setting in _SETTINGS if re.search(words, said)]
    if times := _times(said):
        settings = [times if each is _SAY_TIMES else each for each in settings]
    if form in _PICKLED:
        settings = [each for each in settings if "`value." not in each]
    return f"{', '.join(settings) or _EQUAL}, or {_REPLACE}"


def _times(said: str) -> str:
    """The setting that makes all these times equal; empty if there is none, or if it is not known."""
    both = _BECOMES.findall(said)
    if not both or re.search(_TIMED, _BECOMES.sub("", said)):
        return ""
    fitting = frozenset.intersection(*(_SPELLINGS.get(each, frozenset()) for each in both))
    return f"say `value.times: {max(fitting)}`" if fitting else ""


def _another_encoding(theirs: str, ours: str) -> str:
    if theirs == _OTHER_TYPE:
        return "narrow the namespace's key pattern, for these keys are somebody else's"
    if theirs == "dogpile" and ours.startswith("dogpile"):
        return f"say `framework.serializer` as the region has it, or {_REPLACE}"
    if ours in _FRAMEWORKS:
        return (
            "remove `framework` if that framework does not write these keys, narrow the key pattern, or"
            f" {_REPLACE}"
        )
    if theirs in _FRAMEWORKS:
        return (
            "say `framework` if one that it names wrote them, let a Python loader make the values, with"
            f" `value.encoding: raw`, narrow the key pattern, or {_REPLACE}"
        )
    encoding = _ENCODINGS.get(theirs, ours)
    if encoding == ours:
        first = (
            _NOT_A_NUMBER
            if theirs == _JSON_OF_PYTHON
            else "narrow the key pattern if these keys are somebody else's"
        )
        return f"{first}, or {_REPLACE}"
    return f"say `value.encoding: {encoding}` if the application reads that, narrow the key pattern, or {_REPLACE}"


def _decodes(decode: Callable[[bytes], object], value: bytes) -> bool:
    try:
        decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _is_json(value: bytes) -> bool:
    return _decodes(msgspec.json.decode, value)


def _is_json_of_python(value: bytes) -> bool:
    return (b"NaN" in value or b"Infinity" in value) and _decodes(json.loads, value)


def _is_of_dogpile(value: bytes) -> bool:
    return payload_of(value) is not None


def _is_msgpack(value: bytes) -> bool:
    """Of several items: any small byte alone is a number."""
    return value[:1] > b"\x80" and _decodes(msgspec.msgpack.decode, value)


def _is_pickle(value: bytes) -> bool:
    import pickletools  # noqa: PLC0415  only where something is wrong; it reads opcodes and runs nothing

    if _PICKLE.fullmatch(value):
        return True
    if len(value) > _GLANCE:
        return False
    try:
        list(pickletools.genops(value))
    except (ValueError, IndexError, UnicodeDecodeError):
        return False
    return True


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


# the first that fits says what a value reads as
_READINGS: Mapping[str, Callable[[bytes], bool]] = {
    "json": _is_json,
    _JSON_OF_PYTHON: _is_json_of_python,
    "cachelib": is_of_cachelib,
    "dogpile": _is_of_dogpile,
    "pickle": _is_pickle,
    "msgpack": _is_msgpack,
    "text": _is_text,
}
