"""What a sync and an asyncio cache have in common: their declared values, no two of which may take the same keys.

`BaseCache` is the part of `Cache` that never waits. Its `Registry` keeps the declared values and their counts.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from copy import copy
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Literal

from cacheupdater_client.cache.awaiting import wait_of
from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.cache.declared import declare
from cacheupdater_client.cache.errors import Misdeclared, misdeclared
from cacheupdater_client.cache.fake import FakeStore
from cacheupdater_client.cache.overlap import share_a_key
from cacheupdater_client.cache.places import place_of_caller
from cacheupdater_client.protocol.definitions import Defines, Definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cacheupdater_client.cache.declared import Declared, Loader, Settings
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


class BaseCache(Defines):
    """A cache without its waiting."""

    _waits: ClassVar[bool]  # whether loaders are coroutine functions
    _reader: object  # what all values of the cache share

    def __init__(
        self,
        client: object,
        *,
        sources: Mapping[str, str] | None = None,
        fill: Literal["loader", "updater"] = "loader",
        wait: str | None = None,
    ) -> None:
        self._client, self._sources, self._place = client, dict(sources or {}), place_of_caller(1)
        try:
            self._wait_s = wait_of(fill, wait)
        except ValueError as e:
            raise Misdeclared(f"{self._place}: {type(self).__name__}: {e}") from e
        self._reader = self._reader_of(client)
        self._registry = Registry()

    def stats(self) -> Mapping[str, Counts]:
        """The counts of this process, by the names of the declared values."""
        return self._registry.stats()

    def definitions(self) -> Definitions:
        """What has been declared so far, for an updater."""
        return Definitions(self._registry.definitions(), self._sources, self._client, self._place)

    @contextmanager
    def faked(self, now: Callable[[], float] = monotonic) -> Iterator[FakeStore]:
        """For an application's tests: within, the cache needs no Redis. `now` is a clock in seconds."""
        reader, before = self._reader, vars(self._reader).copy()
        fake = FakeStore(now)
        vars(reader).update(vars(self._reader_of(fake)))
        try:
            yield fake
        finally:
            vars(reader).update(before)

    def _declaring(self, pattern: str, settings: Settings, *, batch: bool) -> Callable[[Loader], object]:
        """A decorator of loaders, which returns declared values."""

        def declared(loader: Loader) -> object:
            value = declare(loader, pattern, settings, batch=batch, waits=self._waits, wait_s=self._wait_s)
            return self._value_of(value, self._registry.add(value), loader)

        return declared

    @abstractmethod
    def _reader_of(self, source: object) -> object:
        """Reads from a client, or from a FakeStore."""

    @abstractmethod
    def _value_of(self, declared: Declared, counts: Counts, loader: Loader) -> object:
        """The declared value, as the application calls it."""
