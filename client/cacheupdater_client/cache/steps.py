"""How missing keys are read through: every decision, without I/O.

`filled` is a generator. It yields what is to be done (`Look`, `Load`, `Fill` and the other kinds of `Work`) and receives the
answer. The sync and the asyncio cache have one small driver each, so both decide alike, and a test can play any order of
events.

A flight makes one load of a process, and a lease makes one load of all processes. Both only save loads. A caller takes the
value of another caller's load only if that value has landed in Redis: then no change was announced between the load's token
and its fill, so the value is as new as every change that was announced before the caller boarded. A caller that boards after
the fill began cannot know that, and reads again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from cacheupdater_client.cache import telling
from cacheupdater_client.cache.errors import LoadTimeout
from cacheupdater_client.cache.flights import AGAIN, Again, Flight
from cacheupdater_client.guard import fault
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.lease import Seen, State, Terms

if TYPE_CHECKING:
    from cacheupdater_client.cache.counts import Counts
    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.cache.flights import Flights, Outcome
    from cacheupdater_client.observe import Hints
    from cacheupdater_client.protocol.patterns import Captures

RESTS_MAX = 2  # leases of others that a reader waits for; then it loads, whoever holds the lease
JOINS_MAX = 3  # flights of others that a reader boards; then it reads on its own

_LANDED = frozenset({fence.WRITTEN, fence.ADOPTED, fence.UNCHANGED, fence.DUPLICATE, fence.UNSOUND})


class Entry(NamedTuple):
    """What a load writes for one key."""

    token: int
    key: bytes
    value: bytes | None  # None: the row does not exist


class Look(NamedTuple):
    """Run LOOK. Answer: one `Seen` for each key."""

    keys: Sequence[bytes]
    terms: Terms


class Load(NamedTuple):
    """Call the loader. Answer: the values, in order; None for a row that does not exist."""

    captures: Sequence[Captures]


class Fill(NamedTuple):
    """Commit the entries, then end their leases. Answer: a `fence.Outcome` for each entry, whatever happens to Redis."""

    entries: Sequence[Entry]


class Release(NamedTuple):
    """End the leases of these keys. No answer; an error of Redis is not raised, for leases also expire."""

    keys: Sequence[bytes]


class Rest(NamedTuple):
    """Wait until none of these keys has a lease, for at most so many seconds. No answer."""

    keys: Sequence[bytes]
    within: float


class Floors(NamedTuple):
    """MGET of the floors. Answer: one for each key; empty where there is none."""

    keys: Sequence[bytes]


class Expect(NamedTuple):
    """Wait until none of these keys has the floor that it had, for at most so many seconds. Answer: the seconds left."""

    was: Mapping[bytes, bytes]
    within: float


class Join(NamedTuple):
    """Wait for a flight. Answer: its outcome. Raises the flight's error, and LoadTimeout after so many seconds."""

    flight: Flight
    within: float


class Read(NamedTuple):
    """MGET. Answer: a value or None for each key."""

    keys: Sequence[bytes]


class Prolong(NamedTuple):
    """Let old values live on, for their source fails. No answer; an error of Redis is not raised."""

    keys: Sequence[bytes]


class Begin(NamedTuple):
    """Begin to load these keys in the background, with these tokens. Answer: a `Begun`."""

    reading: Reading
    tokens: Mapping[bytes, int]


class Begun(NamedTuple):
    """The refreshes of keys in this process. A key that is not here has a pause after a failure, or there are too many."""

    flights: dict[bytes, Flight]
    overdue: list[bytes]  # of these: the loader has not ended within its timeout


class Await(NamedTuple):
    """Wait until all these flights have ended, for at most so many seconds. No answer."""

    flights: Sequence[Flight]
    within: float


Work: TypeAlias = (
    Look | Load | Fill | Release | Rest | Floors | Expect | Join | Read | Prolong | Begin | Await
)
Found: TypeAlias = dict[bytes, bytes | None]
"""Bytes by key; None for a row that does not exist."""
Steps: TypeAlias = Generator[Work, object, Found]


@dataclass(frozen=True, slots=True)
class Reading:
    """One read of keys that Redis did not have, or whose values will not do."""

    declared: Declared
    wanted: Mapping[bytes, Captures]
    terms: Terms
    flights: Flights
    hints: Hints
    counts: Counts
    asks_age: bool = False  # the caller asks for a value of a certain age, so it looks for itself
    outlives: bool = False  # after a failed load the old value lives on

    @property
    def takes_any(self) -> bool:
        """Whether any value that Redis holds will do."""
        return self.terms.value_ms is None


def filled(reading: Reading) -> Steps:
    """Reads the wanted keys through."""
    found: Found = {}
    left = list(reading.wanted)
    for _ in range(JOINS_MAX):
        boarded = reading.flights.board(left)
        if boarded.led:
            # before waiting for others: two readers that wait for each other's keys would never end
            yield from _led(reading, boarded.led, found)
        for key, (flight, late) in boarded.joined.items():
            outcome = yield from _joined(reading, key, flight)
            if not (late or reading.asks_age or isinstance(outcome, Again)):
                settle(reading, found, key, outcome)
        left = [key for key in left if key not in found]
        if left and reading.takes_any:
            yield from _read_again(reading, left, found)
            left = [key for key in left if key not in found]
        if not left:
            return found
    yield from _led(reading, {key: Flight() for key in left}, found)  # nobody boards these
    return found


def settle(
    reading: Reading, found: Found, key: bytes, value: bytes | None, *, token: int | None = None
) -> None:
    """The caller gets this value. `token`: of its own load, by which Redis has the value now."""
    found[key] = value
    if value is None:
        reading.counts.absent += 1
        return
    try:
        reading.hints.touch(key) if token is None else reading.hints.fill(key, token)
    except Exception:  # noqa: BLE001  the guard
        fault()


def _joined(reading: Reading, key: bytes, flight: Flight) -> Generator[Work, object, Outcome]:
    reading.counts.waits += 1
    try:
        return cast("Outcome", (yield Join(flight, RESTS_MAX * reading.declared.timeout_s)))
    except LoadTimeout:
        reading.flights.leave(key, flight)  # whoever comes next begins anew
        raise


def _read_again(reading: Reading, keys: Sequence[bytes], found: Found) -> Generator[Work, object, None]:
    values = cast("Sequence[bytes | None]", (yield Read(keys)))
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            settle(reading, found, key, value)


def _led(reading: Reading, led: Mapping[bytes, Flight], found: Found) -> Generator[Work, object, None]:
    """Reads these keys for every caller of the process."""
    left: Sequence[bytes] = list(led)
    terms = reading.terms
    try:
        for rests in range(RESTS_MAX + 1):
            left = yield from _looked(reading, {key: led[key] for key in left}, found, terms=terms)
            if not left:
                return
            reading.counts.waits += len(left)
            yield Rest(left, reading.declared.timeout_s)
            terms = terms._replace(by_force=rests + 1 == RESTS_MAX)
    except Exception as e:
        for flight in led.values():
            flight.fail(e)
        raise
    finally:
        for key, flight in led.items():
            reading.flights.leave(key, flight)
            # unless it has landed: this caller was cancelled, or it found the value in Redis
            flight.land(AGAIN)


def _looked(
    reading: Reading, led: Mapping[bytes, Flight], found: Found, *, terms: Terms
) -> Generator[Work, object, Sequence[bytes]]:
    """Looks, and loads what was granted. Returns the keys whose lease somebody else holds."""
    answers = cast("Sequence[Seen]", (yield Look(list(led), terms)))
    if reading.asks_age:
        count_ages(reading, answers, due=State.GRANTED)
    granted, taken = {}, []
    for key, answer in zip(led, answers, strict=True):
        if answer.state == State.GRANTED:
            granted[key] = answer.token
        elif answer.state == State.TAKEN:
            taken.append(key)
        else:
            settle(reading, found, key, answer.value if answer.state == State.FOUND else None)
    if granted:
        yield from loaded(reading, led, granted, found=found)
    return taken


def count_ages(reading: Reading, answers: Sequence[Seen], *, due: State) -> None:
    """What a reader that asks for an age has found; `due`: the state of a key whose value will not do.

    Those that do not ask have counted before they came here.
    """
    for answer in answers:
        reading.counts.note_age(answer.age_ms)
        if answer.state == State.FOUND:
            reading.counts.hits += 1
        elif answer.state == due and answer.value is None:
            reading.counts.misses += 1
        elif answer.state == due:
            reading.counts.refilled += 1


def loaded(
    reading: Reading, led: Mapping[bytes, Flight], granted: Mapping[bytes, int], *, found: Found
) -> Generator[Work, object, None]:
    """Loads keys whose leases we hold (with the tokens of the load), and fills Redis. All of `granted` have a flight."""
    reading.counts.loads += 1
    try:
        values = cast("Sequence[object]", (yield Load([reading.wanted[key] for key in granted])))
        spelled = map(reading.declared.spelled, values)
        entries = [
            Entry(token, key, value) for (key, token), value in zip(granted.items(), spelled, strict=True)
        ]
        reading.flights.close(led[key] for key in granted)
        outcomes = cast("Sequence[fence.Outcome]", (yield Fill(entries)))
    except GeneratorExit:  # the caller is gone, and nobody does what would be yielded now
        raise
    except BaseException as e:
        if isinstance(e, Exception):  # if not, this caller alone was cancelled or interrupted
            reading.counts.failed += 1
            for key, flight in led.items():
                # the passengers of other keys have no part in this load: they read again
                flight.fail(e) if key in granted else flight.land(AGAIN)
        # or everybody would wait until the leases expire
        yield (Prolong if reading.outlives and isinstance(e, Exception) else Release)(list(granted))
        raise
    for entry, outcome in zip(entries, outcomes, strict=True):
        _ended(reading, led[entry.key], entry, outcome=outcome, found=found)


def _ended(reading: Reading, flight: Flight, entry: Entry, *, outcome: fence.Outcome, found: Found) -> None:
    if outcome in _LANDED:
        reading.counts.fills += entry.value is not None
        flight.land(entry.value)
        settle(reading, found, entry.key, entry.value, token=entry.token)
        return
    flight.land(AGAIN)
    found[entry.key] = entry.value  # the caller began before whatever is newer
    reading.counts.unfilled += 1
    is_foreign = outcome == fence.FOREIGN
    if is_foreign:
        if not reading.counts.foreign:
            telling.foreign(reading.declared)
        reading.counts.foreign += 1
    try:
        # a foreign value is there: an updater that loads in haste could not write either
        (reading.hints.touch if is_foreign else reading.hints.miss)(entry.key)
    except Exception:  # noqa: BLE001  the guard
        fault()
