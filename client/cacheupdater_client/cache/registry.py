"""The declared values of one cache: no two may take the same keys. It keeps their counts."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from cacheupdater_client.cache.claims import share_a_key
from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.cache.errors import misdeclared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.protocol.definitions import Definition


class Registry:
    """What has been declared, in order."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[Declared, Counts]] = {}

    def add(self, declared: Declared) -> Counts:
        """Adds a value. Misdeclared if its name or its keys are taken."""
        for other, _ in self._declared.values():
            if share_a_key(declared.pattern, other.pattern):
                raise misdeclared(
                    declared.loader,
                    f"the pattern {declared.pattern.text!r} takes keys that {other.name} has already, by {other.pattern.text!r}",
                )
        if declared.name in self._declared:
            raise misdeclared(declared.loader, f"a value of the name {declared.name} is declared already")
        counts = Counts()
        self._declared[declared.name] = declared, counts
        return counts

    def definitions(self) -> list[Definition]:
        """All values, as an updater reads them."""
        return [declared.definition() for declared, _ in self._declared.values()]

    def stats(self) -> Mapping[str, Counts]:
        """A copy of all counts, by name."""
        return {name: copy(counts) for name, (_, counts) in self._declared.items()}
