"""What a key says, by a pattern: `product:7` is row 7 of `product:{id:int}`.

`config` compiles the patterns once. A key is parsed in full when its unit is built, which is where `product:007` or `product:x`
turn out to be nobody's. `format(parse(key)) == key` holds for every key that parses, so one row has one key: spellings that
only look like a number never load anything. Nothing here does I/O or keeps state between calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from operator import call
from string import Formatter
from typing import TYPE_CHECKING, TypeAlias, cast
from uuid import UUID

from cacheupdater_client.protocol import numerals
from cacheupdater_client.protocol.errors import Inexpressible, Misspelled
from cacheupdater_client.protocol.numerals import DIGITS_MAX, INT_MAX, INT_MIN, Numerals
from cacheupdater_client.protocol.wire import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Capture: TypeAlias = int | str | UUID
CaptureType: TypeAlias = type[int] | type[str] | type[UUID]
Captures: TypeAlias = tuple[Capture, ...]

_TYPES: dict[str, CaptureType] = {"int": int, "str": str, "uuid": UUID, "": str}
_REGEX: dict[CaptureType, bytes] = {
    int: rb"(0|-?[1-9][0-9]{0,18})",  # canonical: no sign or zero to spare, no digits beyond ASCII
    str: rb"([!-9;-~]+)",  # printable ASCII other than the space and the colon that parts a key
    UUID: rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
}
_READERS: dict[CaptureType, Callable[[bytes], Capture]] = {
    int: int,
    str: bytes.decode,
    UUID: lambda spelled: UUID(spelled.decode()),
}
_INT_SHORT = 18  # this many digits always fit
_RESERVED = "keys"  # `IN :keys` binds all captures of a pattern


@dataclass(frozen=True, slots=True)
class Pattern:
    """A key pattern such as `basket:{user:int}:{shop}`. Literals may hold braces, doubled: `{{`."""

    text: str
    names: tuple[str, ...]
    types: tuple[CaptureType, ...]
    literals: tuple[bytes, ...]  # one before each capture, the last one behind the last
    _match: Callable[[bytes], re.Match[bytes] | None] = field(repr=False, compare=False)
    _lines: Callable[[bytes], list[tuple[bytes, ...]]] = field(repr=False, compare=False)
    _readers: tuple[Callable[[bytes], Capture], ...] = field(repr=False, compare=False)
    _numerals: Numerals | None = field(repr=False, compare=False)  # if the only capture is a number
    _template: str = field(repr=False, compare=False)  # for `%`, with a `%s` for each capture
    _short: int = field(repr=False, compare=False)  # a key of so many bytes holds no number that does not fit

    @classmethod
    def compile(cls, text: str) -> Pattern:
        """Reads a pattern, or says in `Misspelled` what is wrong with it."""
        literals = [""]
        names: list[str] = []
        types: list[CaptureType] = []
        for literal, name, kind in _pieces(text):
            literals[-1] += literal
            if name is None:  # only literal text, such as a doubled brace
                continue
            names.append(_checked_name(text, name, names))
            types.append(_checked_type(text, name, kind))
            literals.append("")
        _check_literals(text, literals, types)
        spelled = tuple(literal.encode("ascii") for literal in literals)
        parts = zip_longest(map(re.escape, spelled), (_REGEX[kind] for kind in types), fillvalue=b"")
        regex = re.compile(b"".join(chain.from_iterable(parts)))
        readers = tuple(_READERS[kind] for kind in types)
        lines = re.compile(b"^" + regex.pattern + b"$", re.MULTILINE).findall
        size = sum(map(len, spelled))
        short = min(size + _INT_SHORT, KEY_BYTES_MAX)
        single = types == [int] and size + DIGITS_MAX <= KEY_BYTES_MAX
        template = "%s".join(literal.replace("%", "%%") for literal in literals)
        return cls(
            text,
            tuple(names),
            tuple(types),
            spelled,
            regex.fullmatch,
            lines,
            readers,
            Numerals(*spelled) if single else None,
            template,
            short,
        )

    @property
    def prefix(self) -> bytes:
        """The literal text before the first capture, never empty."""
        return self.literals[0]

    def parse(self, key: bytes) -> Captures | None:
        """What the key says, or None if it is none of this pattern's.

        Linear in the key: no capture can swallow what follows it, so the regex has nothing to try twice.
        """
        match = self._match(key) if len(key) <= KEY_BYTES_MAX else None
        if match is None:
            return None
        captures = tuple(map(call, self._readers, match.groups()))
        return None if len(key) > self._short and not all(map(_fits, captures)) else captures

    def takes(self, key: bytes) -> bool:
        """Whether the key says something to this pattern, without reading what."""
        return self.parse(key) is not None if len(key) > self._short else self._match(key) is not None

    def parse_many(self, keys: Sequence[bytes]) -> Sequence[Captures] | None:
        """What all of these keys say, or None if one of them says nothing to this pattern: then ask key by key.

        One regex over the joined keys, one conversion per capture: twice as fast as `parse` for each. A single number needs
        no regex: six times as fast.
        """
        joined = b"\n".join(keys)
        if self._numerals is not None:
            return self._numerals.parse(joined, len(keys))
        found = self._lines(joined)
        longest = max(map(len, keys), default=0)
        if len(found) != len(keys) or joined.count(b"\n") != len(keys) - 1 or longest > KEY_BYTES_MAX:
            return None
        # findall gives tuples of groups, and of a single group just its text
        columns = zip(*found, strict=True) if len(self.types) > 1 else (cast("tuple[bytes, ...]", found),)
        captures: list[Sequence[Capture]] = []
        for kind, column in zip(self.types, columns, strict=True):
            read = numerals.read(column) if kind is int else list(map(_READERS[kind], column))
            if read is None:
                return None
            captures.append(read)
        return list(zip(*captures, strict=True))

    def format(self, captures: Captures) -> bytes:
        """The key that says this. Inexpressible if no key can, as for a text with a colon in it."""
        key = (self._template % captures).encode()
        if self.parse(key) != captures:
            raise Inexpressible(f"these values cannot stand in a key of the pattern {self.text!r}")
        return key

    def format_many(self, captures: Sequence[Captures]) -> list[bytes] | None:
        """The keys that say these, or None if no key can say one of them: then ask one by one. Three times faster, too.

        What UTF-8 has no bytes for becomes `?`, and is found when the keys are read again.
        """
        if not captures:
            return []
        template = self._template
        joined = "\n".join([template % each for each in captures])
        keys = joined.encode(errors="replace").split(b"\n")
        return keys if self.parse_many(keys) == captures else None


def overlaps(a: Pattern, b: Pattern) -> bool:
    """Whether two patterns of the same shape take the same keys, so that none of them is the better match."""
    return a.literals == b.literals and all(
        one is other or str in (one, other) for one, other in zip(a.types, b.types, strict=True)
    )


def _pieces(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Literal text, then the capture behind it: Python's own format strings are the grammar."""
    if not all("!" <= sign <= "~" for sign in text):
        raise Misspelled(f"key pattern {text!r} may hold printable ASCII only, and no space")
    try:
        for literal, name, kind, conversion in Formatter().parse(text):
            if conversion:
                raise Misspelled(f"key pattern {text!r}: write {{{name}:int}}, not {{{name}!{conversion}}}")
            yield literal, name, kind or ""
    except ValueError as e:
        raise Misspelled(f"key pattern {text!r} has unbalanced braces: {e}") from e


def _checked_name(text: str, name: str, taken: list[str]) -> str:
    if not name.isidentifier():
        raise Misspelled(f"key pattern {text!r}: a capture needs a name, as in {{id:int}}; got {name!r}")
    if name in taken:
        raise Misspelled(f"key pattern {text!r} has two captures named {name!r}")
    if name == _RESERVED:
        raise Misspelled(f"key pattern {text!r}: {name!r} means all captures in SQL, use another name")
    return name


def _checked_type(text: str, name: str, kind: str) -> CaptureType:
    if kind not in _TYPES:
        raise Misspelled(
            f"key pattern {text!r}: {name!r} has the unknown type {kind!r}; use int, str or uuid"
        )
    return _TYPES[kind]


def _check_literals(text: str, literals: list[str], types: list[CaptureType]) -> None:
    if not types:
        raise Misspelled(f"key pattern {text!r} has no capture such as {{id:int}} to load rows by")
    if not literals[0]:
        raise Misspelled(f"key pattern {text!r} must begin with literal text, or it would take every key")
    if sum(map(len, literals)) >= KEY_BYTES_MAX:
        raise Misspelled(f"a key pattern of {len(text)} characters leaves no room in {KEY_BYTES_MAX} bytes")
    for kind, behind in zip(types[:-1], literals[1:-1], strict=True):
        if not behind:
            raise Misspelled(f"key pattern {text!r}: two captures need literal text between them")
        if (kind is str and behind[0] != ":") or (kind is int and behind[0].isdigit()):
            need = "a colon" if kind is str else "no digit"
            raise Misspelled(
                f"key pattern {text!r}: {behind!r} could be part of the capture before it; "
                f"put {need} behind a capture of type {kind.__name__}"
            )


def _fits(value: Capture) -> bool:
    return not isinstance(value, int) or INT_MIN <= value <= INT_MAX
