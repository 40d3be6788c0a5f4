"""From captures to keys: the key of one call, and the keys of many items.

Each `Declared` has one, made with it. Every read of the application comes through here, after a system call has emptied the
processor's caches. So the usual call has few steps: a number needs no regex to be checked, and many items no loop in Python.
"""

from __future__ import annotations

import contextlib
import struct
from operator import countOf
from typing import TYPE_CHECKING, cast
from uuid import UUID

from cacheupdater_client.buffer import UNIT_BYTES
from cacheupdater_client.protocol.errors import Inexpressible
from cacheupdater_client.protocol.numerals import INT_MAX, INT_MIN
from cacheupdater_client.protocol.wire import KEY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cacheupdater_client.protocol.patterns import Captures, CaptureType, Pattern

_LONGEST: dict[CaptureType | None, int] = {int: 20, UUID: 36}  # bytes in a key


def captures_of_items(items: Iterable[object]) -> list[Captures]:
    """The captures of each item. An item that stands for one capture may stand alone."""
    return [cast("Captures", item if isinstance(item, tuple) else (item,)) for item in items]


class Keys:
    """The keys of one pattern. `name` is for errors."""

    def __init__(self, name: str, pattern: Pattern) -> None:
        self._name, self._pattern = name, pattern
        kind = pattern.types[0] if len(pattern.types) == 1 else None
        literals = [literal.replace(b"%", b"%%") for literal in pattern.literals]
        self._template = b"%s".join(literals).decode()
        taken = sum(map(len, pattern.literals))
        self._kind, self._room = kind, KEY_BYTES_MAX - taken
        self._number = b"%d".join(literals) if kind is int and self._room >= _LONGEST[int] else None
        # a hint of such a key takes one place, so nobody need look at its length
        self.are_short = kind in _LONGEST and taken + _LONGEST[kind] <= UNIT_BYTES

    def of(self, captures: Captures) -> bytes:
        """The key. Inexpressible if these captures cannot stand in a key."""
        if self._number is not None and len(captures) == 1:
            number = captures[0]
            if type(number) is int and INT_MIN <= number <= INT_MAX:
                return self._number % number
        try:
            key = (self._template % captures).encode("ascii")
        except (TypeError, UnicodeEncodeError):
            key = b""
        if tuple(map(type, captures)) != self._pattern.types or not self._pattern.takes(key):
            raise Inexpressible(
                f"{self._name}: these values cannot stand in a key of the pattern {self._pattern.text!r}"
            )
        return key

    def of_items(self, items: Collection[object]) -> list[bytes]:
        """The keys of items, each a capture or a tuple of captures."""
        if self._kind is not None and items and countOf(map(type, items), self._kind) == len(items):
            if self._number is not None:
                numbers = tuple(items)
                with contextlib.suppress(struct.error):  # q has the bounds INT_MIN and INT_MAX
                    struct.pack(f"{len(numbers)}q", *numbers)
                    return ((self._number + b"\n") * len(numbers) % numbers).splitlines()
            elif self._kind is not int and self._all_fit(items):
                before, behind = map(bytes.decode, self._pattern.literals)
                joined = before + f"{behind}\n{before}".join(map(str, items)) + behind
                return joined.encode("ascii").split(b"\n")
        return list(map(self.of, captures_of_items(items)))

    def _all_fit(self, items: Collection[object]) -> bool:
        """Whether each of these texts or UUIDs can stand in a key, as `Pattern` reads it."""
        if self._kind is not str:
            return self._room >= _LONGEST[UUID]
        texts = cast("Collection[str]", items)
        joined = "".join(texts)
        plain = joined.isascii() and joined.isprintable()
        short = len(joined) <= self._room or max(map(len, texts)) <= self._room
        return plain and short and " " not in joined and ":" not in joined and "" not in texts
