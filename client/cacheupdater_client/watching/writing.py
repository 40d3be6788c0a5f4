"""Which changed keys are written through: those that belong to a declared value, up to a limit.

`announcing` makes a `Due` for each commit, adds the keys that Redis has confirmed as invalid, and asks the declared values to
load and write them. So a value is what its own loader reads after the commit. Nothing is taken from the transaction: the
session's objects may be older than their rows, and another transaction may have committed since. The load is fenced as any
other. Nothing here calls Redis or a loader.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.protocol.patterns import Captures
    from cacheupdater_client.watching.rules import Rule

WRITES_MAX = 100  # keys of one commit: the application waits for their loads
WRITE_S = 1.0  # after so long no further load begins, for the same reason


class Writable(Protocol):
    """A value that a `Cache` declares, sync or asyncio."""

    @property
    def declared(self) -> Declared: ...
    def write_through(self, items: Iterable[Captures], /) -> object: ...


class Due:
    """The keys of one commit that will be written through."""

    def __init__(self, values: Sequence[Writable]) -> None:
        self._values = values
        self._taken: list[tuple[Writable, Captures]] = []
        self.beyond = 0  # keys for which there was no room

    def add(self, names: Iterable[bytes]) -> None:
        """These keys are invalid in Redis."""
        for name in names if self._values else ():
            for value in self._values:
                captures = value.declared.pattern.parse(name)
                if captures is None:
                    continue
                if len(self._taken) < WRITES_MAX:
                    self._taken.append((value, captures))
                else:
                    self.beyond += 1
                break

    def units(self) -> Iterator[tuple[Writable, list[Captures]]]:
        """What is loaded together: all keys of a loader of many keys, and each key of another."""
        for value in self._values:
            items = [captures for each, captures in self._taken if each is value]
            if value.declared.batch and items:
                yield value, items
            else:
                yield from ((value, [item]) for item in items)


def checked(values: Sequence[Writable], rules: Sequence[Rule], *, waits: bool) -> tuple[Writable, ...]:
    """TypeError or ValueError if a value could never be written. `waits`: the client is one of asyncio."""
    for value in values:
        if not hasattr(value, "write_through") or not hasattr(value, "declared"):
            raise TypeError(f"write_through takes values that a Cache declares, not {value!r}")
        if value.declared.wait_s is not None:
            raise ValueError(
                f"write_through: the application cannot load {value.declared.name}, for its cache has"
                ' fill="updater"; leave it out, and the updater loads it after the commit'
            )
        if inspect.iscoroutinefunction(value.write_through) != waits:
            kinds = ("a sync", "an asyncio") if waits else ("an asyncio", "a sync")
            raise TypeError(
                f"write_through: {value.declared.name} is declared by {kinds[0]} Cache, but redis is {kinds[1]} client"
            )
        if not any(_may_name(rule, value.declared.pattern.prefix) for rule in rules):
            raise ValueError(
                f"write_through: no model names keys such as {value.declared.pattern.text!r} of {value.declared.name}"
            )
    return tuple(values)


def _may_name(rule: Rule, prefix: bytes) -> bool:
    return bool(rule.namers) or any(
        one.prefix.startswith(prefix) or prefix.startswith(one.prefix) for one in rule.patterns
    )
