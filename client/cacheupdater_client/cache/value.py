"""What a sync and an asyncio declared value have in common: everything but the waiting."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache, update_wrapper
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, cast

from cacheupdater_client.cache.awaiting import FRESH_MS, awaited
from cacheupdater_client.cache.codecs import UNREADABLE
from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.cache.flights import Flights
from cacheupdater_client.cache.keys import captures_of_items
from cacheupdater_client.cache.steps import Reading, filled
from cacheupdater_client.guard import fault
from cacheupdater_client.protocol import durations
from cacheupdater_client.protocol.wire import TOUCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cacheupdater_client.cache.ageing import Ageing
    from cacheupdater_client.cache.declared import Declared, Loader
    from cacheupdater_client.cache.steps import Begun, Found, Steps
    from cacheupdater_client.observe import Hints
    from cacheupdater_client.protocol.patterns import Captures

T = TypeVar("T")  # of a loader's result
K = TypeVar(
    "K", bound=Hashable
)  # of what a caller asks for by many: the capture of a key, or a tuple of its captures


class Sorted(NamedTuple, Generic[T]):
    """What Redis had for the wanted keys."""

    values: dict[Captures, T]
    missing: dict[bytes, Captures]
    unreadable: dict[bytes, Captures]


class Hinting(Protocol):
    """The part of a store that never waits."""

    @property
    def hints(self) -> Hints: ...


class Refreshing(Protocol):
    """The part of a background that never waits."""

    def busy(self, keys: Iterable[bytes], timeout_s: float) -> Begun | None: ...


class Shared(Protocol):
    """What all values of a cache share. `faked` exchanges the store, so values look it up at each call."""

    @property
    def background(self) -> Refreshing: ...

    @property
    def store(self) -> Hinting: ...
    @property
    def flights(self) -> Flights: ...


class BaseValue(Generic[T]):
    """A declared value over one client. `loader` is the function, or for a method the function of one object."""

    def __init__(self, reader: Shared, declared: Declared, *, counts: Counts, loader: Loader) -> None:
        self.declared, self.counts = declared, counts
        self._shared, self._loader = reader, loader
        self._decode = cast("Callable[[bytes], T]", declared.codec.decode)
        self._key_of, self._are_short = declared.keys.of, declared.keys.are_short
        self._width = len(declared.parameters) if declared.has_pattern_order else None
        update_wrapper(self, loader)  # type: ignore[arg-type]  # an object that is called like the function

    def asked_for(self, args: tuple[object, ...], named: Mapping[str, object]) -> tuple[bytes, Captures]:
        """The key of a call, and its captures."""
        captures: Captures = (
            args  # type: ignore[assignment]  # whose types `Keys` checks; a `cast` is a call
            if len(args) == self._width and not named  # the usual call
            else self.declared.captures_of(args, named)
        )
        return self._key_of(captures), captures

    def _hit(self, key: bytes, spelled: bytes) -> T:
        """The value that Redis had. Raises one of UNREADABLE for the bytes of somebody else."""
        value = self._decode(spelled)
        self.counts.hits += 1
        try:
            self._shared.store.hints.touch(key)
        except Exception:  # noqa: BLE001  the guard
            fault()
        return value

    def _missed(self, wanted: Mapping[bytes, Captures]) -> Reading:
        """The reading of keys that Redis did not have."""
        self.counts.misses += len(wanted)
        return self._reading(wanted)

    def _unreadable(self, wanted: Mapping[bytes, Captures]) -> Reading:
        """The reading of keys whose values are not ours: no age of such a value will do."""
        self.counts.refilled += len(wanted)
        return self._reading(wanted, value_ms=0)

    def _aged(self, wanted: Mapping[bytes, Captures], fresh_within: str) -> Reading:
        """The reading of keys whose values must be young."""
        value_ms = _milliseconds(fresh_within)
        if self.declared.wait_s is not None and value_ms < FRESH_MS:
            raise ValueError(
                f"fresh_within must be at least {FRESH_MS} ms where an updater fills, for it loads a key only so often;"
                f" got {fresh_within!r}"
            )
        return self._reading(wanted, value_ms=value_ms, asks_age=True)

    def _steps(self, reading: Reading) -> Steps:
        """How keys are read that Redis did not have, or whose values will not do."""
        wait_s = self.declared.wait_s
        return filled(reading) if wait_s is None else awaited(reading, wait_s)

    def _ageing(self, wanted: Mapping[bytes, Captures]) -> tuple[Reading, Begun | None]:
        """The reading of keys whose values may be old, and the refreshes that are under way."""
        ageing = cast("Ageing", self.declared.ageing)
        busy = self._shared.background.busy(wanted, self.declared.timeout_s)
        return self._reading(wanted, value_ms=ageing.refresh_ms), busy

    def _reading(
        self, wanted: Mapping[bytes, Captures], *, value_ms: int | None = None, asks_age: bool = False
    ) -> Reading:
        terms = self.declared.terms._replace(value_ms=value_ms)
        shared = self._shared
        return Reading(
            self.declared, wanted, terms, shared.flights, shared.store.hints, self.counts, asks_age
        )

    def _forced(self, items: Iterable[K]) -> Reading:
        """The reading of keys that were just invalidated. It boards no flight and awaits no lease: those loads began earlier."""
        wanted, keys = self._asked(items)
        reading = self._reading(dict(zip(keys, captures_of_items(wanted), strict=True)))
        return replace(
            reading, terms=reading.terms._replace(by_force=True), flights=Flights(), counts=Counts()
        )

    def _asked(self, items: Iterable[K]) -> tuple[list[K], list[bytes]]:
        """What is asked for, and its keys."""
        wanted = list(items)
        return wanted, self.declared.keys.of_items(wanted)

    def _all_hit(
        self, wanted: Sequence[K], keys: Sequence[bytes], had: Sequence[bytes | None]
    ) -> dict[K, T] | None:
        """The usual answer, without a loop in Python: Redis had all, and all can be read. None if it is another."""
        if None in had:
            return None
        try:
            values = dict(zip(wanted, map(self._decode, had), strict=True))  # type: ignore[arg-type]  # no None
        except UNREADABLE:
            return None
        self.counts.hits += len(had)
        try:
            hints = self._shared.store.hints
            hints.touch_all(keys) if self._are_short else hints.add_all(TOUCH, keys)
        except Exception:  # noqa: BLE001  the guard
            fault()
        return values

    def _sorted(
        self, keys: Sequence[bytes], asked: Sequence[Captures], had: Sequence[bytes | None]
    ) -> Sorted[T]:
        """What MGET had."""
        answer: Sorted[T] = Sorted({}, {}, {})
        for key, captures, spelled in zip(keys, asked, had, strict=True):
            if spelled is None:
                answer.missing[key] = captures
                continue
            try:
                answer.values[captures] = self._hit(key, spelled)
            except UNREADABLE:
                answer.unreadable[key] = captures
        return answer

    def _decoded(self, reading: Reading, found: Found) -> Sorted[T]:
        """The values of rows that exist. Somebody else may have written in the meantime what cannot be read."""
        answer: Sorted[T] = Sorted({}, {}, {})
        for key, spelled in found.items():
            if spelled is None:
                continue
            try:
                answer.values[reading.wanted[key]] = self._decode(spelled)
            except UNREADABLE:
                if reading.terms.value_ms == 0:  # the loader's own, which does not fit its annotation
                    raise
                answer.unreadable[key] = reading.wanted[key]
        return answer

    def _in_order(self, captures: Sequence[Captures], loaded: object) -> list[object]:
        """What a loader of many keys has returned, in the order of the keys."""
        if not isinstance(loaded, Mapping):
            raise TypeError(
                f"{self.declared.name} must return a mapping from its keys to values, got {type(loaded).__name__}"
            )
        return [loaded.get(item) for item in self.declared.items(captures)]


@lru_cache(maxsize=1000)  # an application has a few of them, but nothing keeps it from making them up
def _milliseconds(text: str) -> int:
    seconds = durations.parsed(text)
    if seconds is None:
        raise ValueError(f"fresh_within must be {durations.FORM}, got {text!r}")
    return int(seconds * 1000)
