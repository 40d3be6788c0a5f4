"""The cache without Redis, for an application's own tests: `with cache.faked() as fake:` exchanges the store.

A `FakeStore` keeps values, floors and leases in memory, by the rules of the scripts. It knows no foreign values and no
errors. One suite of tests runs against it and against Redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater_client.observe import NOWHERE
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.lease import Grace, Seen, State, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.cache.steps import Entry
    from cacheupdater_client.observe import Hints

_MS, _US = 1000, 1_000_000
_INVALIDATED = 999  # the last digits of the floor of a change, above every load of the same microsecond
_FLOOR_LIFE_S = 2 * fence.LOAD_AGE_S
_LEASE_S_BELIEVED = 60  # as LOOK has it


class _Kept(NamedTuple):
    content: bytes
    until: float


class FakeStore:
    """Stands in for a `Store`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.hints: Hints = NOWHERE
        self._now = now
        self._micros = -1  # of the latest token
        self._values: dict[bytes, _Kept] = {}
        self._floors: dict[bytes, _Kept] = {}
        self._leases: dict[bytes, _Kept] = {}

    # --- as a Store -----------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """GET."""
        return self._of(self._values, key)

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """MGET."""
        return [self.get(key) for key in keys]

    def look(self, owner: str, keys: Sequence[bytes], terms: Terms) -> list[Seen]:
        """LOOK."""
        return [self._look(owner, key, terms) for key in keys]

    def fill(self, owner: str, entries: Sequence[Entry], declared: Declared) -> list[fence.Outcome]:
        """COMMIT, then RELEASE."""
        outcomes = [self._commit(entry, declared) for entry in entries]
        self.release(owner, [entry.key for entry in entries])
        return outcomes

    def release(self, owner: str, keys: Sequence[bytes]) -> None:
        """RELEASE."""
        for key in keys:
            if self._of(self._leases, key) == owner.encode():
                del self._leases[key]

    def prolong(self, owner: str, keys: Sequence[bytes], grace: Grace) -> None:
        """PROLONG."""
        for key in keys:
            self._prolong(owner, key, grace)

    def leased(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each key has a lease."""
        return [self._of(self._leases, key) is not None for key in keys]

    def floors(self, keys: Sequence[bytes]) -> list[bytes]:
        """The floors of these keys; empty where there is none."""
        return [self._of(self._floors, key) or b"" for key in keys]

    # --- as the application's client ------------------------------------------------------------------

    def set(self, key: bytes, value: bytes | None, ttl_s: float = float("inf")) -> None:
        """A plain SET: what another program has written. None: an updater has just found that the row does not exist."""
        if value is None:
            self._values.pop(key, None)
            self._raise_floor(key, fence.absent_stamp(self._token()), _FLOOR_LIFE_S)
        else:
            self._values[key] = _Kept(value, self._now() + ttl_s)

    def invalidate(self, *keys: bytes) -> None:
        """INVALIDATE."""
        for key in keys:
            self._values.pop(key, None)
            self._raise_floor(key, self._token() + _INVALIDATED, _FLOOR_LIFE_S)

    def outdate(self, key: bytes, hold_ms: int) -> bool:
        """OUTDATE."""
        self._raise_floor(key, self._token() + fence.OUTDATED_FORM, _FLOOR_LIFE_S)
        value = self.get(key)
        if value is not None:
            self._values[key] = _Kept(value, min(self._values[key].until, self._now() + hold_ms / _MS))
        return value is not None

    # --- within ---------------------------------------------------------------------------------------

    def _look(self, owner: str, key: bytes, terms: Terms) -> Seen:
        token, value, floor = self._token(), self.get(key), self._floor(key)
        age_ms = (token - floor) // (_MS * _MS) if value is not None and _is_of_load(floor) else -1
        outdated = floor % _MS == fence.OUTDATED_FORM
        if value is not None and (
            terms.value_ms is None or (not outdated and self._is_young(floor, terms.value_ms))
        ):
            return Seen(token, State.FOUND, value, 0, age_ms)
        if value is None and floor % _MS == fence.ABSENT_FORM and self._is_young(floor, terms.mark_ms):
            return Seen(token, State.ABSENT, None, 0)
        left_ms = 0 if terms.by_force else self._held_for(owner, key)
        if left_ms or terms.no_lease:
            return Seen(token, State.TAKEN, value, left_ms, age_ms)
        self._leases[key] = _Kept(owner.encode(), self._now() + terms.lease_ms / _MS)
        return Seen(token, State.GRANTED, value, terms.lease_ms, age_ms)

    def _prolong(self, owner: str, key: bytes, grace: Grace) -> None:
        now, floor, value = self._now(), self._floor(key), self.get(key)
        if self._of(self._leases, key) == owner.encode():
            self._leases[key] = _Kept(owner.encode(), now + grace.pause_ms / _MS)
        age_ms = (self._token() - floor) / (_MS * _MS)
        more_s = min(grace.ttl_ms, grace.ttl_ms + grace.fail_safe_ms - age_ms) / _MS
        if (
            value is not None
            and _is_of_load(floor)
            and age_ms >= 0
            and now + more_s > self._values[key].until
        ):
            self._values[key] = _Kept(value, now + more_s)
            self._floors[key] = _Kept(str(floor).encode(), max(self._floors[key].until, now + more_s))

    def _held_for(self, owner: str, key: bytes) -> int:
        if self._of(self._leases, key) in (None, owner.encode()):
            return 0
        left_s = self._leases[key].until - self._now()
        return max(1, int(left_s * _MS)) if left_s <= _LEASE_S_BELIEVED else 0

    def _commit(self, entry: Entry, declared: Declared) -> fence.Outcome:
        age_us, floor = self._token() // _MS - entry.token // _MS, self._floor(entry.key)
        if not 0 <= age_us <= fence.LOAD_AGE_S * _US:
            return fence.TOO_OLD
        absent = entry.value is None
        stamp = (
            fence.absent_stamp(entry.token) if absent else fence.stamp_of(entry.token, declared.codec.form)
        )
        if floor == stamp:
            return fence.DUPLICATE
        if floor > stamp:
            return fence.Refused(floor)
        old = self.get(entry.key)
        ttl_s = declared.ttl_ms / _MS
        if entry.value is None:
            self._values.pop(entry.key, None)
        else:
            self.set(entry.key, entry.value, ttl_s)
        self._raise_floor(entry.key, stamp, _FLOOR_LIFE_S if absent else max(ttl_s, _FLOOR_LIFE_S))
        if absent or old is None:
            return fence.WRITTEN
        if not (_is_of_load(floor) or floor % _MS == fence.OUTDATED_FORM):
            return fence.ADOPTED
        return fence.UNCHANGED if old == entry.value else fence.WRITTEN

    def _of(self, kept: dict[bytes, _Kept], key: bytes) -> bytes | None:
        found = kept.get(key)
        return found.content if found is not None and found.until > self._now() else None

    def _floor(self, key: bytes) -> int:
        return int(self._of(self._floors, key) or 0)

    def _raise_floor(self, key: bytes, floor: int, life_s: float) -> None:
        self._floors[key] = _Kept(str(max(floor, self._floor(key))).encode(), self._now() + life_s)

    def _is_young(self, floor: int, most_ms: int) -> bool:
        return 0 <= self._token() // _MS - floor // _MS <= most_ms * _MS

    def _token(self) -> int:
        """No two are alike: on a clock that a test has stopped, a load after a change must still be later than the change."""
        self._micros = max(int(self._now() * _US), self._micros + 1)
        return self._micros * _MS


def _is_of_load(floor: int) -> bool:
    return floor > 0 and floor % _MS < fence.ABSENT_FORM


class AwaitedStore:
    """A FakeStore as the asyncio cache calls it."""

    def __init__(self, fake: FakeStore) -> None:
        self._fake = fake
        self.hints = fake.hints

    async def get(self, key: bytes) -> bytes | None:
        """GET."""
        return self._fake.get(key)

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """MGET."""
        return self._fake.read(keys)

    async def look(self, owner: str, keys: Sequence[bytes], terms: Terms) -> list[Seen]:
        """LOOK."""
        return self._fake.look(owner, keys, terms)

    async def fill(self, owner: str, entries: Sequence[Entry], declared: Declared) -> list[fence.Outcome]:
        """COMMIT, then RELEASE."""
        return self._fake.fill(owner, entries, declared)

    async def release(self, owner: str, keys: Sequence[bytes]) -> None:
        """RELEASE."""
        self._fake.release(owner, keys)

    async def prolong(self, owner: str, keys: Sequence[bytes], grace: Grace) -> None:
        """PROLONG."""
        self._fake.prolong(owner, keys, grace)

    async def outdate(self, key: bytes, hold_ms: int) -> bool:
        """OUTDATE."""
        return self._fake.outdate(key, hold_ms)

    async def leased(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each key has a lease."""
        return self._fake.leased(keys)

    async def floors(self, keys: Sequence[bytes]) -> list[bytes]:
        """As FakeStore's."""
        return self._fake.floors(keys)

    async def invalidate(self, key: bytes) -> None:
        """INVALIDATE."""
        self._fake.invalidate(key)
