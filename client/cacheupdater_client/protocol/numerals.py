"""Reads the numbers in keys, many at a time: a JSON decoder in C reads a number in a quarter of the time of `int`.

A pattern with a single number, such as `product:{id:int}`, has one `Numerals`. Patterns with several captures read their columns of
numbers by `read`. A number must be spelled as JSON spells it, and fit into a bigint: a key has one spelling only. Nothing here
says why a text is refused: then `patterns` looks at each key by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

INT_MIN, INT_MAX = -(2**63), 2**63 - 1  # what a bigint holds
DIGITS_MAX = 20  # of such a number, its sign included

_decoder = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]])
_encoder = msgspec.json.Encoder()


def read(spelled: Sequence[bytes]) -> Sequence[int] | None:
    """These numbers, or None if one of them is none or does not fit."""
    return _read(b",".join(spelled))


def _read(listed: bytes) -> Sequence[int] | None:
    """The numbers between the commas."""
    text = b"[%b]" % listed
    try:
        numbers = _decoder.decode(text)
    except msgspec.DecodeError:  # this includes numbers that do not fit
        return None
    # JSON has other spellings too: ` 7`, `-0`. To spell all numbers again costs a third of the reading, a regex twice as much
    return numbers if _encoder.encode(numbers) == text else None


class Numerals:
    """The keys of one pattern, each a number between the same two texts."""

    __slots__ = ("_before", "_behind", "_between")

    def __init__(self, before: bytes, behind: bytes) -> None:
        """Neither text has a line feed."""
        self._before, self._behind = before, behind
        self._between = behind + b"\n" + before

    def parse(self, joined: bytes, keys: int) -> list[tuple[int]] | None:
        """What so many keys say, joined by line feeds; None if one of them says nothing."""
        if not (joined.startswith(self._before) and joined.endswith(self._behind)):
            return None
        inner = joined[len(self._before) : len(joined) - len(self._behind)]
        numbers = _read(inner.replace(self._between, b","))
        # each key has one number at least, so a key that has two shows in their sum
        return list(zip(numbers)) if numbers is not None and len(numbers) == keys else None
