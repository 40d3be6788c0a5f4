"""How values are read that may be old: readers get the old value while one load brings the new one. No I/O, as in `steps`.

`aged` is a read of a value with `refresh_after` or `fail_safe`. One round trip finds the value and its age. A reader that finds
an old value and gets its lease begins a refresh in the background, and other readers begin none. `renewed` and `replaced` are
refreshes: the load of such a reader, and the load after `invalidate(serve_old=True)`. The two caches run them in a thread or
a task of their own. An error of such a load reaches no reader: it is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from cacheupdater_client.cache.steps import (
    Await,
    Begin,
    Begun,
    Found,
    Look,
    Prolong,
    Read,
    Reading,
    Release,
    Rest,
    filled,
    loaded,
    settle,
)
from cacheupdater_client.observe import NOWHERE
from cacheupdater_client.protocol.lease import Seen, State

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from cacheupdater_client.cache.flights import Flight
    from cacheupdater_client.cache.steps import Steps, Work
    from cacheupdater_client.protocol.patterns import Captures


def aged(reading: Reading, busy: Begun | None) -> Steps:
    """Reads keys whose values may be old. `terms.value_ms` is the age from which a value is loaded anew.

    `busy`: the refreshes of this process, if there can be no new one; then no lease is asked for.
    """
    found: Found = {}
    granted: dict[bytes, Seen] = {}
    taken: dict[bytes, Seen] = {}
    missing: dict[bytes, Captures] = {}
    terms = reading.terms._replace(no_lease=busy is not None)
    answers = cast("list[Seen]", (yield Look(list(reading.wanted), terms)))
    for (key, captures), seen in zip(reading.wanted.items(), answers, strict=True):
        if seen.value is None:
            missing[key] = captures
        else:
            reading.counts.note_age(seen.age_ms)
            if seen.state == State.FOUND:
                reading.counts.hits += 1
                settle(reading, found, key, seen.value)
            else:
                (granted if seen.state == State.GRANTED else taken)[key] = seen
    if granted or taken:
        if busy is None:
            new = yield from _begun(reading, granted, taken)
        else:
            new = yield from _awaited(reading, busy)
        for key, seen in {**granted, **taken}.items():
            reading.counts.hits += 1
            if key not in new:
                reading.counts.served_old += 1
            settle(reading, found, key, new.get(key, seen.value))
    if missing:
        reading.counts.misses += len(missing)
        at_any_age = reading.terms._replace(value_ms=None)
        found |= yield from filled(replace(reading, wanted=missing, terms=at_any_age))
    return found


def _begun(
    reading: Reading, granted: Mapping[bytes, Seen], taken: Mapping[bytes, Seen]
) -> Generator[Work, object, Found]:
    """Begins the loads that are due. Returns the new values that come in time."""
    if granted:
        begun = cast("Begun", (yield Begin(reading, {key: seen.token for key, seen in granted.items()})))
        left_alone = [key for key in granted if key not in begun.flights]
        if left_alone:
            yield Release(left_alone)
        return (yield from _awaited(reading, begun))
    if not reading.declared.soft_s:
        return {}
    yield Rest(list(taken), reading.declared.soft_s)
    values = cast("list[bytes | None]", (yield Read(list(taken))))
    return {
        key: value
        for (key, seen), value in zip(taken.items(), values, strict=True)
        if value not in (None, seen.value)
    }


def _awaited(reading: Reading, begun: Begun) -> Generator[Work, object, Found]:
    """Waits for this process' refreshes as long as the declaration says. Returns the new values."""
    if begun.overdue and reading.declared.grace:
        yield Prolong(begun.overdue)
    if reading.declared.soft_s and begun.flights:
        yield Await(list(begun.flights.values()), reading.declared.soft_s)
    return _landed(begun.flights)


def _landed(flights: Mapping[bytes, Flight]) -> Found:
    """What loads have brought that ended well. None: the row does not exist any more."""
    new: Found = {}
    for key, flight in flights.items():
        if flight.outcome.done() and flight.outcome.exception() is None:
            value = flight.outcome.result()
            if isinstance(value, bytes) or value is None:
                new[key] = value
    return new


def renewed(reading: Reading, flights: Mapping[bytes, Flight], tokens: Mapping[bytes, int]) -> Steps:
    """Loads keys whose leases a reader got, with the tokens of the load."""
    quiet = replace(
        reading, hints=NOWHERE, outlives=reading.declared.grace is not None
    )  # the reader has left its hint
    found: Found = {}
    yield from loaded(quiet, flights, tokens, found=found)
    return found


def replaced(reading: Reading, flights: Mapping[bytes, Flight]) -> Steps:
    """Loads keys whose rows have changed, whoever holds their leases: a load that began earlier cannot land."""
    terms = reading.terms._replace(value_ms=0, by_force=True)
    answers = cast("list[Seen]", (yield Look(list(reading.wanted), terms)))
    tokens = {key: seen.token for key, seen in zip(reading.wanted, answers, strict=True)}
    found: Found = {}
    yield from loaded(replace(reading, hints=NOWHERE), flights, tokens, found=found)
    return found
