"""`Cache` for asyncio. Built like `cacheupdater_client.cache.cache`; only the waiting differs.

A loader is a coroutine function. It is cancelled after its `timeout`, and its callers get LoadTimeout. A caller that is
cancelled ends its own load; another caller that waits for the key begins anew.
"""

from __future__ import annotations

import asyncio
from copy import copy
from types import MethodType
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, cast

from redis.exceptions import ResponseError

from cacheupdater_client.asyncio.background import Background
from cacheupdater_client.asyncio.store import Store
from cacheupdater_client.asyncio.watch import Watch
from cacheupdater_client.cache.awaiting import still
from cacheupdater_client.cache.background import CLOSE_S
from cacheupdater_client.cache.codecs import UNREADABLE
from cacheupdater_client.cache.declared import Settings
from cacheupdater_client.cache.errors import LoadTimeout
from cacheupdater_client.cache.fake import AwaitedStore, FakeStore
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
from cacheupdater_client.cache.value import BaseValue, K, T

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from cacheupdater_client.cache.counts import Counts
    from cacheupdater_client.cache.declared import Declared, Keywords, Loader
    from cacheupdater_client.cache.flights import Outcome
    from cacheupdater_client.cache.steps import Begun, Entry, Found, Reading, Steps, Work
    from cacheupdater_client.observe import Hints
    from cacheupdater_client.protocol import fence
    from cacheupdater_client.protocol.lease import Grace, Seen, Terms
    from cacheupdater_client.protocol.patterns import Captures


_Load: TypeAlias = "Callable[[Sequence[Captures]], Awaitable[Sequence[object]]]"


class Commands(Protocol):
    """What the cache asks of Redis: a Store, or a fake of it."""

    @property
    def hints(self) -> Hints: ...
    def get(self, key: bytes) -> Awaitable[bytes | None]: ...
    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    async def look(self, owner: str, keys: Sequence[bytes], terms: Terms) -> list[Seen]: ...
    async def fill(self, owner: str, entries: Sequence[Entry], declared: Declared) -> list[fence.Outcome]: ...
    async def release(self, owner: str, keys: Sequence[bytes]) -> None: ...
    async def prolong(self, owner: str, keys: Sequence[bytes], grace: Grace) -> None: ...
    async def outdate(self, key: bytes, hold_ms: int) -> bool: ...
    async def leased(self, keys: Sequence[bytes]) -> list[bool]: ...
    async def floors(self, keys: Sequence[bytes]) -> list[bytes]: ...
    async def invalidate(self, key: bytes) -> None: ...


class Cache(BaseCache):
    """Declared values over one asyncio client.

    `sources` are budgets for an updater that runs by these declarations, such as {"shop": "500/s"}.
    """

    _waits = True
    _reader: _Reader

    def value(
        self, pattern: str, **settings: Unpack[Keywords]
    ) -> Callable[[Callable[..., Awaitable[T]]], Value[T]]:
        """Declares a value whose loader takes the captures of one key. The settings are the fields of `Settings`."""
        declaring = self._declaring(pattern, Settings(**settings), batch=False)
        return cast("Callable[[Callable[..., Awaitable[T]]], Value[T]]", declaring)

    def values(
        self, pattern: str, **settings: Unpack[Keywords]
    ) -> Callable[[Callable[..., Awaitable[Mapping[K, T]]]], Value[T]]:
        """Declares a value whose loader takes a list of keys and returns a mapping. Keys that it leaves out do not exist."""
        declaring = self._declaring(pattern, Settings(**settings), batch=True)
        return cast("Callable[[Callable[..., Awaitable[Mapping[K, T]]]], Value[T]]", declaring)

    async def aclose(self, timeout: float = CLOSE_S) -> None:  # noqa: ASYNC109  as the sync `close`
        """Ends the refreshes in the background, before the application closes its client. Reads go on, and load what is missing.

        Waits for at most `timeout` seconds, then cancels them. That they end their leases takes a second at most.
        """
        await self._reader.background.close(timeout)

    def _reader_of(self, source: object) -> _Reader:
        return _Reader(AwaitedStore(source) if isinstance(source, FakeStore) else Store(source))

    def _value_of(self, declared: Declared, counts: Counts, loader: Loader) -> Value[object]:
        kind = AgeingValue if declared.ageing else Value
        return kind(self._reader, declared, counts, loader)


class _Reader:
    """Does what `steps` asks for."""

    def __init__(self, store: Commands) -> None:
        async def stays(was: Sequence[tuple[bytes, bytes]]) -> list[bool]:
            return still(was, await store.floors([key for key, _ in was]))

        self.store, self.watch, self.flights = store, Watch(store.leased), Flights()
        self.floors = Watch(stays)
        self.background = Background()

    async def run(self, steps: Steps, declared: Declared, load: _Load) -> Found:
        """Runs the steps to their end."""
        try:
            work = next(steps)
            while True:
                try:
                    answer = await self._done(work, declared, load)
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

        def run(flights: Mapping[bytes, Flight]) -> Awaitable[Found]:
            due = {key: tokens[key] for key in flights}
            return then.run(renewed(reading, flights, due), reading.declared, load)

        return self.background.start(tokens, reading.declared.timeout_s, run)

    async def _done(self, work: Work, declared: Declared, load: _Load) -> object:
        answer: object = None
        match work:
            case Look(keys, terms):
                answer = await self.store.look(self.flights.owner, keys, terms)
            case Load(captures):
                answer = await load(captures)
            case Fill(entries):
                answer = await self.store.fill(self.flights.owner, entries, declared)
            case Release(keys):
                # a caller that is cancelled once more must not keep the leases
                await asyncio.shield(self.store.release(self.flights.owner, keys))
            case Floors(keys):
                answer = await self.store.floors(keys)
            case Read(keys):
                answer = await self.store.read(keys)
            case Prolong(keys):
                await self.store.prolong(self.flights.owner, keys, cast("Grace", declared.grace))
            case Begin(reading, tokens):
                answer = self._begun(reading, tokens, load)
            case Rest() | Expect() | Join() | Await():
                answer = await self._waited(work)
        return answer

    async def _waited(self, work: Rest | Expect | Join | Await) -> object:
        answer: object = None
        match work:
            case Rest(keys, within):
                await self.watch.rest(keys, within)
            case Expect(was, within):
                answer = await self.floors.rest(was.items(), within)
            case Join(flight, within):
                answer = await _joined(flight, within)
            case Await(flights, within):
                await _ended(flights, within)
        return answer


async def _in_time(loading: object, declared: Declared) -> object:
    try:
        async with asyncio.timeout(declared.timeout_s) as limit:
            return await cast("Awaitable[object]", loading)  # `declare` has checked that
    except TimeoutError:
        if limit.expired():
            raise LoadTimeout(f"{declared.name} has not ended within {declared.timeout_s:g} s") from None
        raise  # the loader's own


async def _joined(flight: Flight, within: float) -> Outcome:
    # shielded: a caller that is cancelled must not end the flight of the others
    pending = asyncio.shield(asyncio.wrap_future(flight.outcome))
    try:
        return await asyncio.wait_for(pending, within)
    except TimeoutError:
        if flight.outcome.done():  # it has just ended, or the loader's own error is one of time
            return flight.outcome.result()
        raise LoadTimeout(f"another caller's load has not ended within {within:g} s") from None


async def _ended(flights: Sequence[Flight], within: float) -> None:
    pending = [asyncio.wrap_future(flight.outcome) for flight in flights]
    for each in pending:
        each.add_done_callback(_seen)
    await asyncio.wait(pending, timeout=within)


def _seen(pending: asyncio.Future[Outcome]) -> None:
    """asyncio logs an exception that nobody has asked for."""
    if not pending.cancelled():
        pending.exception()


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

    async def __call__(self, *args: object, fresh_within: str | None = None, **named: object) -> T | None:
        """The value, or None if its row does not exist.

        `fresh_within`: a value that is older is loaded again, and waited for.
        """
        key, captures = self.asked_for(args, named)
        if fresh_within is not None:
            return (await self._through(self._aged({key: captures}, fresh_within))).get(captures)
        try:
            spelled = await self._reader.store.get(key)
        except ResponseError as e:
            if not is_of_another_type(e):
                raise
            spelled = None  # as MGET says: the value stays, for the fill takes it for somebody else's
        if spelled is None:
            return (await self._through(self._missed({key: captures}))).get(captures)
        try:
            return self._hit(key, spelled)
        except UNREADABLE:
            return (await self._through(self._unreadable({key: captures}))).get(captures)

    async def get_many(self, items: Iterable[K]) -> dict[K, T]:
        """The values of rows that exist, by what was asked for: one MGET, and one call of the loader for all that is missing."""
        wanted, keys = self._asked(items)
        if not wanted:
            return {}
        had = await self._reader.store.read(keys)
        hits = self._all_hit(wanted, keys, had)
        if hits is not None:
            return hits
        asked = captures_of_items(wanted)
        values, missing, unreadable = self._sorted(keys, asked, had)
        if missing:
            values |= await self._through(self._missed(missing))
        if unreadable:
            values |= await self._through(self._unreadable(unreadable))
        return {item: values[each] for item, each in zip(wanted, asked, strict=True) if each in values}

    async def invalidate(self, *args: object, serve_old: bool = False, **named: object) -> None:
        """As the client's `invalidate`, for one key. Call it after the commit.

        `serve_old`: readers get the old value until the new one is there, which is loaded now, in the background.
        """
        key, captures = self.asked_for(args, named)
        if not serve_old:
            await self._reader.store.invalidate(key)
        elif await self._reader.store.outdate(key, self.declared.hold_ms) and self.declared.wait_s is None:
            self._reader.replace_soon(self._reading({key: captures}), self._load)

    async def write_through(self, items: Iterable[K]) -> int:
        """Loads these keys now and puts their values into Redis, for the session hooks. They have invalidated the keys before.

        Returns of how many keys Redis has the value; the others have changed once more, or Redis has failed.
        """
        reading = self._forced(items)
        try:
            await self._reader.run(filled(reading), self.declared, self._load)
        finally:
            self.counts.add(reading.counts)
        return len(reading.wanted) - reading.counts.unfilled

    async def _through(self, reading: Reading, steps: Steps | None = None) -> dict[Captures, T]:
        found = await self._reader.run(steps or self._steps(reading), self.declared, self._load)
        values, _, unreadable = self._decoded(reading, found)
        if unreadable:
            values |= await self._through(self._unreadable(unreadable))
        return values

    async def _load(self, captures: Sequence[Captures]) -> Sequence[object]:
        if self.declared.batch:
            loading = self._loader(self.declared.items(captures))
            return self._in_order(captures, await _in_time(loading, self.declared))
        return [
            await _in_time(self._loader(*self.declared.arguments(each)), self.declared) for each in captures
        ]


class AgeingValue(Value[T]):
    """A declared value with `refresh_after` or `fail_safe`. Each read looks at the value's age, in the same round trip."""

    async def __call__(self, *args: object, fresh_within: str | None = None, **named: object) -> T | None:
        """As `Value`, but an old value is returned at once, or after `soft_timeout`, while it is loaded anew."""
        key, captures = self.asked_for(args, named)
        if fresh_within is not None:
            return (await self._through(self._aged({key: captures}, fresh_within))).get(captures)
        reading, busy = self._ageing({key: captures})
        return (await self._through(reading, aged(reading, busy))).get(captures)

    async def get_many(self, items: Iterable[K]) -> dict[K, T]:
        """As `Value`, by one script for up to 100 keys."""
        wanted, keys = self._asked(items)
        if not wanted:
            return {}
        asked = captures_of_items(wanted)
        reading, busy = self._ageing(dict(zip(keys, asked, strict=True)))
        values = await self._through(reading, aged(reading, busy))
        return {item: values[each] for item, each in zip(wanted, asked, strict=True) if each in values}
