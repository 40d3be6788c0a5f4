"""Redis with the fence, in memory: the same answers and the same state as the scripts on a real server.

`MemoryRedis` is the server, with the calls of an application (get, set, delete, token, invalidate, write_through).
`MemoryWriter` is the updater's port over it. Several writers may share one server, as several updaters do. The time is a
callable that returns seconds (above 1: a token needs its digits), so simulations own it. A differential test compares this
file with the real scripts. It knows strings, hashes and one "other" type, and nothing of memory limits or errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core import answers
from cacheupdater.core.answers import Answer, Result
from cacheupdater.ports import Found
from cacheupdater.testing.memory_forms import Held, Other, dated, is_foreign, is_ours, says_nothing
from cacheupdater_client.protocol import fence, lease
from cacheupdater_client.protocol.dogpile import payload_of
from cacheupdater_client.protocol.fence import CLOCK_STEP_S, LOAD_AGE_S, NO_FORMS, Outcome, Refused

if TYPE_CHECKING:
    from cacheupdater_client.protocol.lease import Grace

__all__ = ["MemoryRedis", "MemoryWriter", "Other"]

_SECOND_US = 1_000_000
_PAGE = 100  # keys of a scan
_TIE = 999  # the last digits of an invalidation: above every load of the same microsecond


class _Cell(NamedTuple):
    value: Held
    until_us: float


class _Floor(NamedTuple):
    token: int
    until_us: float


class MemoryRedis:
    """One server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cells: dict[bytes, _Cell] = {}
        self._floors: dict[bytes, _Floor] = {}
        self.paused: dict[bytes, bytes] = {}  # the entries of paused namespaces

    def now_us(self) -> int:
        return int(self._clock() * _SECOND_US)

    # --- the application's side -------------------------------------------------------------------------

    def token(self) -> int:
        """The token of TIME's present answer."""
        return fence.token_of(*divmod(self.now_us(), _SECOND_US))

    def get(self, key: bytes) -> Held | None:
        """The value of the key, if it has not expired."""
        cell = self._cells.get(key)
        return cell.value if cell and cell.until_us > self.now_us() else None

    def keys(self, prefix: bytes) -> list[bytes]:
        """The keys that begin so and have a value."""
        return [key for key in self._cells if key.startswith(prefix) and self.get(key) is not None]

    def ttl_ms(self, key: bytes) -> float:
        """The rest of the value's life: inf without a ttl, 0 without a value."""
        return max(0.0, (self._cells[key].until_us - self.now_us()) / 1000) if key in self._cells else 0.0

    def floor(self, key: bytes) -> int | None:
        """The token below which no load of this key can land."""
        floor = self._floors.get(key)
        return floor.token if floor and floor.until_us > self.now_us() else None

    def floor_ttl_ms(self, key: bytes) -> float:
        """The rest of the floor's life."""
        return max(0.0, (self._floors[key].until_us - self.now_us()) / 1000) if key in self._floors else 0.0

    def set(self, key: bytes, value: Held, ttl_ms: float = float("inf")) -> None:
        """A plain SET: replaces any value and ignores the fence."""
        self._cells[key] = _Cell(value, self.now_us() + ttl_ms * 1000)

    def delete(self, *keys: bytes) -> None:
        """A plain DEL: raises no floor."""
        for key in keys:
            self._cells.pop(key, None)

    def set_floor(self, key: bytes, token: int, ttl_ms: float = float("inf")) -> None:
        """For tests: acts as if this token had been applied."""
        self._floors[key] = _Floor(token, self.now_us() + ttl_ms * 1000)

    def flush(self) -> None:
        """Loses everything, as a restart without persistence does."""
        self._cells.clear()
        self._floors.clear()
        self.paused.clear()

    # --- the scripts ------------------------------------------------------------------------------------

    def commit(
        self,
        token: int,
        entries: fence.Entries,
        *,
        hold_off_ms: int = 0,
        replace: bool = False,
        form: fence.Form = "type",
    ) -> list[Outcome]:
        """COMMIT: one outcome per key."""
        life = hold_off_ms + 2 * LOAD_AGE_S * 1000
        stamp = fence.stamp_of(token, form)
        return [self._commit(stamp, entry, life, form=None if replace else form) for entry in entries]

    def _commit(
        self, token: int, entry: tuple[bytes, fence.Value, int], life_ms: int, *, form: fence.Form | None
    ) -> Outcome:
        key, value, ttl_ms = entry
        value = value or None if isinstance(value, Mapping) else value  # Redis has no hash without fields
        age = self.now_us() - token // 1000
        if not 0 <= age <= LOAD_AGE_S * _SECOND_US:
            return fence.TOO_OLD
        if value is None:
            token = fence.absent_stamp(token)
        floor, foreign, disputed = self.floor(key), fence.foreign_stamp(token), fence.disputed_stamp(token)
        repeated = floor in (foreign, disputed)
        if floor is not None and floor > token and not repeated and not self._is_stepped(floor):
            return Refused(floor)
        if floor == token:
            return fence.DUPLICATE
        if ttl_ms < 1:
            return fence.Failed("ERR the ttl must be at least 1 ms")
        if form and isinstance(value, Mapping):
            form = "hash"
        elif form == "type" and value is not None:
            form = "string"
        is_dated = isinstance(value, bytes) and fence.form_of(token) in fence.DATED
        is_disputed = value is None and form is not None and self._is_disputed(key, floor, form)
        if is_disputed and floor is not None and floor % 1000 == fence.DISPUTED_FORM:
            outcome: Outcome = self._spare(key, ttl_ms)
        else:
            outcome = self._put(key, value, ttl_ms, form=form, date=token if is_dated else None)
        if is_disputed:
            self.set_floor(key, disputed, life_ms)
        elif outcome == fence.FOREIGN:
            self.set_floor(key, foreign, life_ms)
        else:
            self.set_floor(key, token, life_ms if value is None else max(ttl_ms, life_ms))
        return outcome

    def _is_disputed(self, key: bytes, floor: int | None, form: fence.Form) -> bool:
        """Whether this load of an absent row is the second one in a row that finds a value, or comes after such a one."""
        held = self.get(key)
        if is_foreign(held, form, floor) or says_nothing(held, form, floor):
            return False
        last = None if floor is None else floor % 1000
        return last == fence.DISPUTED_FORM or (last == fence.ABSENT_FORM and self.get(key) is not None)

    def _spare(self, key: bytes, ttl_ms: int) -> int:
        """The application has written the value again and again: it stays, for our ttl at the most."""
        held = self.get(key)
        if held is None:
            return fence.WRITTEN
        if self.ttl_ms(key) > ttl_ms:
            self.set(key, held, ttl_ms)
        return fence.FOREIGN

    def _put(
        self, key: bytes, value: fence.Value, ttl_ms: int, *, form: fence.Form | None, date: int | None
    ) -> int:
        old = self.get(key)
        if form and old not in (None, value) and is_foreign(old, form, self.floor(key)):
            return fence.FOREIGN
        if value is None:
            if form and says_nothing(old, form, self.floor(key)):
                return fence.UNCHANGED
            self.delete(key)
            return fence.WRITTEN
        same = old == value
        if date is not None and isinstance(value, bytes):
            same = isinstance(old, bytes) and payload_of(old) == payload_of(value)
            value = dated(value, date)
        self.set(key, value, ttl_ms)
        if old is not None and not is_ours(self.floor(key)):
            return fence.ADOPTED
        return fence.UNCHANGED if same else fence.WRITTEN

    def _is_stepped(self, floor: int) -> bool:
        return floor // 1000 > self.now_us() + CLOCK_STEP_S * _SECOND_US

    def invalidate(
        self,
        *keys: bytes,
        hold_off_ms: int = 0,
        forms: Mapping[bytes, fence.Form] = NO_FORMS,
        only_ours: Collection[bytes] = (),
    ) -> list[Outcome]:
        """INVALIDATE: removes values and raises floors. With `forms`, as from an updater, foreign values stay; of the keys in
        `only_ours`, values that no load has written are spared."""
        outcomes: list[Outcome] = []
        for key in keys:
            form, held, floor = forms.get(key), self.get(key), self.floor(key)
            outcome = fence.REMOVED
            if form is not None and is_foreign(held, form, floor):
                outcome = fence.FOREIGN
            elif key in only_ours and held is not None and not is_ours(floor):
                outcome = fence.SPARED
            else:
                self.delete(key)
            self._raise_floor(key, hold_off_ms, 0)
            outcomes.append(outcome)
        return outcomes

    def prolong(self, *keys: bytes, grace: Grace, form: fence.Form | None = None) -> list[Outcome]:
        """PROLONG, without an owner."""
        return [int(self._prolong(key, grace, form)) for key in keys]

    def _prolong(self, key: bytes, grace: Grace, form: fence.Form | None) -> bool:
        floor, held, left_ms = self.floor(key), self.get(key), self.ttl_ms(key)
        if held is None or left_ms == inf or floor is None or not fence.is_of_load(floor):
            return False
        age_ms = (self.now_us() - floor // 1000) / 1000
        more_ms = int(min(grace.ttl_ms, grace.ttl_ms + grace.fail_safe_ms - age_ms))
        if age_ms < 0 or more_ms <= left_ms or (form and is_foreign(held, form, floor)):
            return False
        self.set(key, held, more_ms)
        self.set_floor(key, floor, max(self.floor_ttl_ms(key), more_ms))
        return True

    def write_through(
        self, key: bytes, value: fence.Value, ttl_ms: int, since: int, *, hold_off_ms: int = 0
    ) -> int:
        """SET if nothing newer than `since` happened, else REMOVED."""
        floor = self.floor(key)
        age = self.now_us() - since // 1000
        if not value and not isinstance(value, bytes):
            value = None
        provable = 0 <= age <= LOAD_AGE_S * _SECOND_US and (floor is None or floor < since)
        if value is None or ttl_ms < 1 or not provable:
            self.invalidate(key, hold_off_ms=hold_off_ms)
            return fence.REMOVED
        self.set(key, value, ttl_ms)
        self._raise_floor(key, hold_off_ms, ttl_ms)
        return fence.SET

    def _raise_floor(self, key: bytes, hold_off_ms: int, ttl_ms: int) -> None:
        stamp = (self.now_us() + hold_off_ms * 1000) * 1000 + _TIE
        floor = self.floor(key)
        if floor is not None and floor > stamp and not self._is_stepped(floor):
            stamp = floor
        self.set_floor(key, stamp, max(ttl_ms, hold_off_ms + 2 * LOAD_AGE_S * 1000))


_ANSWERS: dict[Outcome, Answer] = {
    fence.WRITTEN: answers.WRITTEN,
    fence.ADOPTED: answers.ADOPTED,
    fence.UNCHANGED: answers.UNCHANGED,
    fence.DUPLICATE: answers.DUPLICATE,
    fence.TOO_OLD: answers.TOO_OLD,
    fence.FOREIGN: answers.FOREIGN,
}
_LEFT: dict[Outcome, Answer] = {fence.FOREIGN: answers.FOREIGN, fence.SPARED: answers.SPARED}  # by a removal


class MemoryPauses:
    """The port of pauses over a MemoryRedis."""

    def __init__(self, server: MemoryRedis) -> None:
        self._server = server

    async def entries(self) -> Mapping[bytes, bytes]:
        return dict(self._server.paused)

    async def pause(self, namespace: bytes, entry: bytes) -> None:
        self._server.paused[namespace] = entry

    async def resume(self, namespace: bytes) -> None:
        self._server.paused.pop(namespace, None)


class MemoryWriter:
    """The writer port over a MemoryRedis."""

    def __init__(self, server: MemoryRedis, *, hold_off_ms: int = 0) -> None:
        self.server = server
        self._hold_off_ms = hold_off_ms

    async def token(self, keys: Sequence[bytes] = ()) -> int:  # noqa: ARG002  one server has them all
        return self.server.token()

    async def write(
        self, token: int, entries: fence.Entries, *, form: fence.Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        return [self.put(token, entry, form=form, replace=replace) for entry in entries]

    def put(
        self,
        token: int,
        entry: tuple[bytes, fence.Value, int],
        *,
        form: fence.Form = "type",
        replace: bool = False,
    ) -> Answer:
        """Writes one key, as the server does when the call arrives."""
        if not fence.fits(entry):
            return Answer(Result.FAILED, why="too big: a key may have 1 KiB, a value 1 MiB")
        [outcome] = self.server.commit(
            token, [entry], hold_off_ms=self._hold_off_ms, replace=replace, form=form
        )
        if isinstance(outcome, Refused):
            return Answer(Result.REFUSED, wait=outcome.wait_after(token))
        if isinstance(outcome, fence.Failed):
            return Answer(Result.FAILED, why=outcome.text)
        return _ANSWERS[outcome]

    async def invalidate(
        self,
        keys: Sequence[bytes],
        forms: Mapping[bytes, fence.Form] = NO_FORMS,
        *,
        only_ours: Collection[bytes] = (),
    ) -> Sequence[Answer]:
        outcomes = self.server.invalidate(
            *keys, hold_off_ms=self._hold_off_ms, forms=forms, only_ours=only_ours
        )
        return [_LEFT.get(each, answers.WRITTEN) for each in outcomes]

    async def prolong(
        self, keys: Sequence[bytes], grace: Grace, form: fence.Form | None = None
    ) -> Sequence[bool | None]:
        return [each == lease.PROLONGED for each in self.server.prolong(*keys, grace=grace, form=form)]

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        return [self._found(key, values=values) for key in keys]

    def _found(self, key: bytes, *, values: bool) -> Found:
        held, floor = self.server.get(key), self.server.floor(key)
        value = None if not values or isinstance(held, Other) else held
        if fence.size_of(value) > fence.SCRIPT_BYTES_MAX:
            value = None
        if held is None:
            return Found(here=False, age=None, removed=floor is not None)
        if floor is None or not fence.tells_age(floor):
            return Found(here=True, age=None, value=value)
        age = (self.server.token() - floor) / 1e9
        return Found(here=True, age=age, wrote=fence.form_of(floor), value=value)

    async def scan(self, prefix: bytes) -> AsyncIterator[Sequence[bytes]]:
        """The keys that begin so, page by page."""
        found = self.server.keys(prefix)
        for at in range(0, len(found), _PAGE):
            yield found[at : at + _PAGE]

    async def close(self) -> None:
        """Nothing to end."""
