"""How values are read that only an updater fills: a cache with `fill="updater"`. No I/O, as in `steps`.

A reader that misses looks for the value, or for the mark of an absent row. If it finds neither, it leaves an urgent miss and
waits until the floor beside the key moves: every write of an updater moves the floor, also that of an absent row. Then it
looks again. All keys of one reader share one wait. Nothing is loaded here, so there is no flight and no lease: the updater
makes one load of all misses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cacheupdater_client.cache.errors import NotFilled
from cacheupdater_client.cache.steps import Expect, Floors, Found, Look, count_ages, settle
from cacheupdater_client.guard import fault
from cacheupdater_client.protocol import durations
from cacheupdater_client.protocol.lease import Seen, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater_client.cache.steps import Reading, Steps
    from cacheupdater_client.protocol.lease import Terms

WAIT_S_MIN, WAIT_S_MAX = 0.01, 30.0  # a look at the floors; longer than an updater gives any load
FRESH_MS = 1000  # a value of a load that began within this time is as new as an updater can make it

FILLS = ("loader", "updater")


def wait_of(fill: str, wait: str | None) -> float | None:
    """The seconds that a reader waits for an updater; None: the application loads. ValueError for what makes no sense."""
    if fill not in FILLS:
        raise ValueError(f"fill must be one of {', '.join(FILLS)}; got {fill!r}")
    if fill == "loader":
        if wait is not None:
            raise ValueError('wait says how long a reader waits for an updater, so it needs fill="updater"')
        return None
    seconds = durations.parsed(str(wait or "300ms"))
    if seconds is None or not WAIT_S_MIN <= seconds <= WAIT_S_MAX:
        raise ValueError(
            f"wait must be {durations.FORM}, from {WAIT_S_MIN:g}s to {WAIT_S_MAX:g}s; got {wait!r}"
        )
    return seconds


def awaited(reading: Reading, wait_s: float) -> Steps:
    """Reads keys that an updater fills. NotFilled if it has not done so in time."""
    found: Found = {}
    left: Sequence[bytes] = list(reading.wanted)
    terms, asked, within = _terms(reading), False, wait_s
    while True:
        # before the look: a write that comes in between is found
        floors = cast("Sequence[bytes]", (yield Floors(left)))
        answers = cast("Sequence[Seen]", (yield Look(left, terms)))
        if reading.asks_age and not asked:
            count_ages(reading, answers, due=State.TAKEN)
        due = _settled(reading, dict(zip(left, answers, strict=True)), found)
        if not due:
            return found
        if within <= 0:
            reading.counts.not_filled += len(due)
            raise NotFilled(reading.declared.name, list(due), wait_s)
        if not asked:
            asked = True
            _ask(reading, due)
        was = {key: floor for key, floor in zip(left, floors, strict=True) if key in due}
        left = list(due)
        within = cast("float", (yield Expect(was, within)))


def _terms(reading: Reading) -> Terms:
    """A value that was just written will do at any rate: no updater would load it again at once."""
    value_ms = reading.terms.value_ms
    return reading.terms._replace(
        no_lease=True, value_ms=None if value_ms is None else max(value_ms, FRESH_MS)
    )


def _settled(reading: Reading, answers: Mapping[bytes, Seen], found: Found) -> dict[bytes, Seen]:
    """The caller gets what is there. Returns the others."""
    due = {}
    for key, seen in answers.items():
        if seen.state in (State.FOUND, State.ABSENT):
            settle(reading, found, key, seen.value if seen.state == State.FOUND else None)
        else:
            due[key] = seen
    return due


def _ask(reading: Reading, due: Mapping[bytes, Seen]) -> None:
    """Leaves the urgent misses."""
    reading.counts.waits += len(due)
    try:
        for key, seen in due.items():
            reading.hints.awaited(key, seen.token)
    except Exception:  # noqa: BLE001  the guard
        fault()


def still(was: Sequence[tuple[bytes, bytes]], now: Sequence[bytes]) -> list[bool]:
    """Whether each of these keys has the floor that it had."""
    return [floor == before for (_, before), floor in zip(was, now, strict=True)]
