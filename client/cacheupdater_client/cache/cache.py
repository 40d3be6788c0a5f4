"""`Cache`: values that are declared once, then read, filled and invalidated through one Redis client.

    cache = Cache(Redis.from_url(url))

    @cache.value("product:{id:int}", ttl="15m")
    def product(id: int) -> dict: ...

    product(7); product(7, fresh_within="2s"); product.get_many([7, 8]); product.invalidate(7)

A hit costs what the client's `get` costs, plus the decoding. `steps` decides what a miss does. This file does what `steps`
asks for: it calls Redis and the loader, and waits for other callers. A loader runs in its caller's thread, so that it may use
what the application keeps there: a session, a request. So nobody can interrupt it; `timeout` bounds how long others wait.
`cacheupdater_client.asyncio.cache` is the same for asyncio.
"""

from __future__ import annotations

from concurrent.futures import wait
from copy import copy
from types import MethodType
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, cast

from redis.exceptions import ResponseError

from cacheupdater_client.cache.awaiting import still
from cacheupdater_client.cache.background import CLOSE_S, Background
from cacheupdater_client.cache.codecs import UNREADABLE
from cacheupdater_client.cache.declared import Settings
from cacheupdater_client.cache.errors import LoadTimeout
from cacheupdater_client.cache.fake import FakeStore
from cacheupdater_client.cache.flights import Flight, Flights
from cacheupdater_client.cache.keys import captures_of_items
from cacheupdater_client.cache.refreshing import aged, renewed, replaced
from cacheupdater_client.cache.registry import BaseCache
from cacheupdater_client.cache.requests import is_of_another_type
from cacheupdater_client.cache.steps import (
    Await,
    Begin,
    Expect,
    Fill,
    Floors,
    Join,
    Load,
    Look,
    Prolong,
    Read,
    Release,
    Rest,
    filled,
)
from cacheupdater_client.cache.store import Store
from cacheupdater_client.cache.value import BaseValue, K, T
from cacheupdater_client.cache.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from cacheupdater_client.cache.counts import Counts
    from cacheupdater_client.cache.declared import Declared, Keywords, Loader
    from cacheupdater_client.cache.flights import Outcome
    from cacheupdater_client.cache.steps import Begun, Entry, Found, Reading, Steps, Work
    from cacheupdater_client.observe import Hints
    from cacheupdater_client.protocol import fence
    from cacheupdater_client.protocol.lease import Grace, Seen, Terms
    from cacheupdater_client.protocol.patterns import Captures


_Load: TypeAlias = "Callable[[Sequence[Captures]], Sequence[object]]"


class Commands(Protocol):
    """What the cache asks of Redis: a Store, or a fake of it."""

    @property
    def hints(self) -> Hints: ...
    def get(self, key: bytes) -> bytes | None: ...
    def read(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def look(self, owner: str, keys: Sequence[bytes], terms: Terms) -> list[Seen]: ...
    def fill(self, owner: str, entries: Sequence[Entry], declared: Declared) -> list[fence.Outcome]: ...
    def release(self, owner: str, keys: Sequence[bytes]) -> None: ...
    def prolong(self, owner: str, keys: Sequence[bytes], grace: Grace) -> None: ...
    def outdate(self, key: bytes, hold_ms: int) -> bool: ...
    def leased(self, keys: Sequence[bytes]) -> list[bool]: ...
    def floors(self, keys: Sequence[bytes]) -> list[bytes]: ...
    def invalidate(self, key: bytes) -> None: ...


class Cache(BaseCache):
    """Declared values over one sync client.

    `sources` are budgets for an updater that runs by these declarations, such as {"shop": "500/s"}.
    """

    _waits = False
    _reader: _Reader

    def value(self, pattern: str, **settings: Unpack[Keywords]) -> Callable[[Callable[..., T]], Value[T]]:
        """Declares a value whose loader takes the captures of one key. The settings are the fields of `Settings`."""
        declaring = self._declaring(pattern, Settings(**settings), batch=False)
        return cast("Callable[[Callable[..., T]], Value[T]]", declaring)

    def values(
        self, pattern: str, **settings: Unpack[Keywords]
    ) -> Callable[[Callable[..., Mapping[K, T]]], Value[T]]:
        """Declares a value whose loader takes a list of keys and returns a mapping. Keys that it leaves out do not exist."""
        declaring = self._declaring(pattern, Settings(**settings), batch=True)
        return cast("Callable[[Callable[..., Mapping[K, T]]], Value[T]]", declaring)

    def close(self, timeout: float = CLOSE_S) -> None:
        """Ends the refreshes in the background, before the application closes its client. Reads go on, and load what is missing.

        Waits for at most `timeout` seconds. A loader that takes longer keeps its thread, which no exit waits for.
        """
        self._reader.background.close(timeout)

    def _reader_of(self, source: object) -> _Reader:
        return _Reader(source if isinstance(source, FakeStore) else Store(source))

    def _value_of(self, declared: Declared, counts: Counts, loader: Loader) -> Value[object]:
        kind = AgeingValue if declared.ageing else Value
        return kind(self._reader, declared, counts, loader)


class _Reader:
    """Does what `steps` asks for."""

    def __init__(self, store: Commands) -> None:
        def stays(was: Sequence[tuple[bytes, bytes]]) -> list[bool]:
            return still(was, store.floors([key for key, _ in was]))

        self.store, self.watch, self.flights = store, Watch(store.leased), Flights()
        self.floors = Watch(stays)
        self.background = Background()

    def run(self, steps: Steps, declared: Declared, load: _Load) -> Found:
        """Runs the steps to their end."""
        try:
            work = next(steps)
            while True:
                try:
                    answer = self._done(work, declared, load)
                except BaseException as e:  # noqa: BLE001  the steps decide what becomes of it
                    work = steps.throw(e)
                else:
                    work = steps.send(answer)
        except StopIteration as end:
            return cast("Found", end.value)

    def replace_soon(self, reading: Reading, load: _Load) -> None:
        """Loads keys whose rows have changed, in the background."""
        then = copy(self)  # with the store of now, which a test may exchange
        flights = {key: Flight() for key in reading.wanted}
        self.background.call(lambda: then.run(replaced(reading, flights), reading.declared, load))

    def _begun(self, reading: Reading, tokens: Mapping[bytes, int], load: _Load) -> Begun:
        then = copy(self)

        def run(flights: Mapping[bytes, Flight]) -> Found:
            due = {key: tokens[key] for key in flights}
            return then.run(renewed(reading, flights, due), reading.declared, load)

        return self.background.start(tokens, reading.declared.timeout_s, run)

    def _done(self, work: Work, declared: Declared, load: _Load) -> object:
        answer: object = None
        match work:
            case Look(keys, terms):
                answer = self.store.look(self.flights.owner, keys, terms)
            case Load(captures):
                answer = load(captures)
            case Fill(entries):
                answer = self.store.fill(self.flights.owner, entries, declared)
            case Release(keys):
                self.store.release(self.flights.owner, keys)
            case Floors(keys):
                answer = self.store.floors(keys)
            case Read(keys):
                answer = self.store.read(keys)
            case Prolong(keys):
                self.store.prolong(self.flights.owner, keys, cast("Grace", declared.grace))
            case Begin(reading, tokens):
                answer = self._begun(reading, tokens, load)
            case Rest() | Expect() | Join() | Await():
                answer = self._waited(work)
        return answer

    def _waited(self, work: Rest | Expect | Join | Await) -> object:
        answer: object = None
        match work:
            case Rest(keys, within):
                self.watch.rest(keys, within)
            case Expect(was, within):
                answer = self.floors.rest(was.items(), within)
            case Join(flight, within):
                answer = _joined(flight, within)
            case Await(flights, within):
                wait([flight.outcome for flight in flights], within)
        return answer


def _joined(flight: Flight, within: float) -> Outcome:
    try:
        return flight.outcome.result(within)
    except TimeoutError:
        if flight.outcome.done():  # it has just ended, or the loader's own error is one of time
            return flight.outcome.result()
        raise LoadTimeout(f"another caller's load has not ended within {within:g} s") from None


class Value(BaseValue[T], Generic[T]):
    """A declared value: call it with the captures of a key."""

    def __init__(self, reader: _Reader, declared: Declared, counts: Counts, loader: Loader) -> None:
        super().__init__(reader, declared, counts=counts, loader=loader)
        self._reader = reader

    def __get__(self, owner: object, kind: type | None = None) -> Value[T]:
        """A loader that is a method: the value as one object loads it. All objects share the keys."""
        if owner is None:
            return self
        return type(self)(self._reader, self.declared, self.counts, MethodType(self._loader, owner))

    def __call__(self, *args: object, fresh_within: str | None = None, **named: object) -> T | None:
        """The value, or None if its row does not exist.

        `fresh_within`: a value that is older is loaded again, and waited for.
        """
        key, captures = self.asked_for(args, named)
        if fresh_within is not None:
            return self._through(self._aged({key: captures}, fresh_within)).get(captures)
        try:
            spelled = self._reader.store.get(key)
        except ResponseError as e:
            if not is_of_another_type(e):
                raise
            spelled = None  # as MGET says: the value stays, for the fill takes it for somebody else's
        if spelled is None:
            return self._through(self._missed({key: captures})).get(captures)
        try:
            return self._hit(key, spelled)
        except UNREADABLE:
            return self._through(self._unreadable({key: captures})).get(captures)

    def get_many(self, items: Iterable[K]) -> dict[K, T]:
        """The values of rows that exist, by what was asked for: one MGET, and one call of the loader for all that is missing."""
        wanted, keys = self._asked(items)
        if not wanted:
            return {}
        had = self._reader.store.read(keys)
        hits = self._all_hit(wanted, keys, had)
        if hits is not None:
            return hits
        asked = captures_of_items(wanted)
        values, missing, unreadable = self._sorted(keys, asked, had)
        if missing:
            values |= self._through(self._missed(missing))
        if unreadable:
            values |= self._through(self._unreadable(unreadable))
        return {item: values[each] for item, each in zip(wanted, asked, strict=True) if each in values}

    def invalidate(self, *args: object, serve_old: bool = False, **named: object) -> None:
        """As the client's `invalidate`, for one key. Call it after the commit.

        `serve_old`: readers get the old value until the new one is there, which is loaded now, in the background.
        """
        key, captures = self.asked_for(args, named)
        if not serve_old:
            self._reader.store.invalidate(key)
        elif self._reader.store.outdate(key, self.declared.hold_ms) and self.declared.wait_s is None:
            self._reader.replace_soon(self._reading({key: captures}), self._load)

    def write_through(self, items: Iterable[K]) -> int:
        """Loads these keys now and puts their values into Redis, for the session hooks. They have invalidated the keys before.

        Returns of how many keys Redis has the value; the others have changed once more, or Redis has failed.
        """
        reading = self._forced(items)
        try:
            self._reader.run(filled(reading), self.declared, self._load)
        finally:
            self.counts.add(reading.counts)
        return len(reading.wanted) - reading.counts.unfilled

    def _through(self, reading: Reading, steps: Steps | None = None) -> dict[Captures, T]:
        found = self._reader.run(steps or self._steps(reading), self.declared, self._load)
        values, _, unreadable = self._decoded(reading, found)
        if unreadable:
            values |= self._through(self._unreadable(unreadable))
        return values

    def _load(self, captures: Sequence[Captures]) -> Sequence[object]:
        if self.declared.batch:
            return self._in_order(captures, self._loader(self.declared.items(captures)))
        return [self._loader(*self.declared.arguments(each)) for each in captures]


class AgeingValue(Value[T]):
    """A declared value with `refresh_after` or `fail_safe`. Each read looks at the value's age, in the same round trip."""

    def __call__(self, *args: object, fresh_within: str | None = None, **named: object) -> T | None:
        """As `Value`, but an old value is returned at once, or after `soft_timeout`, while it is loaded anew."""
        key, captures = self.asked_for(args, named)
        if fresh_within is not None:
            return (self._through(self._aged({key: captures}, fresh_within))).get(captures)
        reading, busy = self._ageing({key: captures})
        return (self._through(reading, aged(reading, busy))).get(captures)

    def get_many(self, items: Iterable[K]) -> dict[K, T]:
        """As `Value`, by one script for up to 100 keys."""
        wanted, keys = self._asked(items)
        if not wanted:
            return {}
        asked = captures_of_items(wanted)
        reading, busy = self._ageing(dict(zip(keys, asked, strict=True)))
        values = self._through(reading, aged(reading, busy))
        return {item: values[each] for item, each in zip(wanted, asked, strict=True) if each in values}
