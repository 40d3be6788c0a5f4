"""What one hint, one announcement and one load teach about their keys: the rows of a `table`, updated in batches.

Only `policy` calls it. `posterior` has the arithmetic of change rates; this module says which of it applies to which key.
"""

from __future__ import annotations

from math import expm1, inf
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.core.hints import Kind
from cacheupdater.price import posterior
from cacheupdater.price.meter import CHANGES, LOADS
from cacheupdater.price.posterior import SHAPE
from cacheupdater.price.table import FAST, IDLE, LOADED, PALM, SEEN, SLOW, SPACE, STALE, STATUS, TOUCHED, A, B

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cacheupdater.core.policy import Loaded
    from cacheupdater.price.index import Doubles
    from cacheupdater.price.spaces import Spaces
    from cacheupdater.price.table import Rows, Table

SLOW_MEMORY = 300.0
"""Seconds over which the rate of reads is averaged."""

FAST_MEMORY = 10.0
"""Seconds over which a burst is counted."""

SILENT_INTERVALS = 10.0
"""Usual intervals between reads. If readers come at random, one pause in twenty thousand is longer."""

SILENT_MIN = 5.0
"""Seconds: a shorter pause is a garbage collection, or a pack on its way."""

_JITTER = 0.05  # seconds by which two clocks may disagree about one moment between two loads
_SENSIBLE = 1e20  # what a row says beyond 64 bits is no version and no time; nor is nan
_AGE_MIN = 1.0  # seconds; nothing divides by zero, whatever a clock does
_STEADY = 20.0  # observations after which the usual burst is a moving average


def heard(memory: float, age: float) -> float:
    """The seconds that a count with this memory stands for, if counting began `age` seconds ago.

    To divide by all of `memory` from the start would make every key look unread for minutes, and its reads like a burst.
    Then a cold start would load what is read now, and not what is read and changes.
    """
    return memory * -expm1(-max(age, _AGE_MIN) / memory)


def count_reads(state: NDArray[np.float32], idle: Doubles, reads: Doubles, *, age: float) -> Doubles:
    """Updates the read counts in `state`. Returns how many more reads than usual will follow each of these.

    Reads come in bursts. By symmetry in time, a read expects as many reads after it as the fast count shows before it. A
    band of noise is subtracted, or every hot key would look bursty.
    """
    idle = np.maximum(idle, 0.0)
    slow = state[:, SLOW] * np.exp(idle / -SLOW_MEMORY)
    fast = state[:, FAST] * np.exp(idle / -FAST_MEMORY)
    seen, palm = state[:, SEEN], state[:, PALM]
    palm = palm + (fast - palm) / np.minimum(seen + 1.0, _STEADY)
    usual = slow * (heard(FAST_MEMORY, age) / heard(SLOW_MEMORY, age))
    state[:, PALM] = palm
    state[:, SEEN] = np.minimum(seen + 1.0, _STEADY)
    state[:, SLOW] = slow + reads
    state[:, FAST] = fast + reads
    return np.asarray(np.maximum(palm - usual - np.sqrt(usual), 0.0), np.float64)


def read_rate(state: NDArray[np.float32], idle: Doubles, *, age: float) -> Doubles:
    """Reads per second by now."""
    slow = state[:, SLOW] * np.exp(np.maximum(idle, 0.0) / -SLOW_MEMORY)
    return np.asarray(slow / heard(SLOW_MEMORY, age))


def known_rates(table: Table, keys: Sequence[bytes], now: float) -> list[float]:
    """Reads per second that have been heard of for minutes; 0 for strangers. What was heard for a moment only counts for
    little: it must not weigh more than a waiting reader."""
    rows = table.find(keys)
    known = rows >= 0
    state, times = table.look(rows[known])
    rates = np.zeros(len(rows))
    rates[known] = read_rate(state, now - times[:, TOUCHED], age=inf)
    return list(rates.tolist())


def silent(state: NDArray[np.float32], idle: Doubles, *, age: float) -> NDArray[np.bool_]:
    """Which keys have not been read for so long that nobody reads them any more, until their next read.

    The rate needs minutes to forget. For as long, a key whose readers have left would be kept fresh for nobody.
    """
    usual = (
        state[:, SLOW] * idle
    )  # intervals that would have passed, times the seconds that the count stands for
    return np.asarray((idle > SILENT_MIN) & (usual > SILENT_INTERVALS * heard(SLOW_MEMORY, age)))


def wanted(state: NDArray[np.float32], idle: Doubles, *, age: float) -> Doubles:
    """The expected reads per second."""
    return np.where(silent(state, idle, age=age), 0.0, read_rate(state, idle, age=age))


def announced(table: Table, spaces: Spaces, rows: Rows, now: float) -> None:
    """An announcement dates the first change since the last load: until then nothing had changed in silence."""
    fresh = rows[table.state[rows, STATUS] < STALE]
    since = np.maximum(now - table.times[fresh, LOADED], 0.0)
    a, b = table.state[fresh][:, (A, B)].astype(np.float64).T
    learned = posterior.dated(a, b, np.ones(len(fresh)), since, tau=since, prior=_prior(table, spaces, fresh))
    _store(table.state, fresh, learned)
    silent = table.with_silent()
    a, b = silent[fresh].astype(np.float64).T
    _store(silent, fresh, posterior.unchanged(a, b, since))


def filled(table: Table, keys: Sequence[bytes], began: Sequence[float]) -> None:
    """Readers have loaded these keys: the values are so young. Nobody has compared them, so nothing is learned of changes."""
    rows = table.find(keys)
    known = rows >= 0
    np.maximum.at(table.times[:, LOADED], rows[known], np.array(began, np.float64)[known])


def on_loaded(
    table: Table,
    spaces: Spaces,
    rows: Rows,
    changed: Doubles,
    *,
    loaded: Loaded,
    stamps: Doubles | None,
) -> None:
    """A load has ended. It tells one bit per key, or more if the key's row says more. Where `changed` is nan, its bytes tell nothing."""
    state = table.state[rows]
    space = state[:, SPACE].astype(np.intp)
    tau = np.maximum(loaded.began - table.times[rows, LOADED], 0.0)
    # An announced change was learned from its announcement; and a value that was absent could not be compared.
    told = (state[:, STATUS] < STALE) & (loaded.kind is Kind.TOUCH)
    if stamps is not None:
        told &= ~_learn_stamps(table, spaces, rows, tau=tau, stamps=stamps, loaded=loaded)
    for moved, some in ((False, told & (changed == 0.0)), (True, told & (changed == 1.0))):
        if some.any():
            _learn_bit(table, spaces, rows[some], tau[some], moved=moved)
    if loaded.kind is Kind.TOUCH:
        proven = np.isfinite(changed)
        for number, market in enumerate(spaces.markets):
            mine = (spaces.market[space] == number) & proven
            where = spaces.within[space[mine]]
            market.meter.add(LOADS, where, np.ones(len(where)))
            market.meter.add(CHANGES, where, changed[mine])
    table.state[rows, STATUS] = IDLE
    table.times[rows, LOADED] = np.maximum(table.times[rows, LOADED], loaded.began)


def _learn_bit(table: Table, spaces: Spaces, rows: Rows, tau: Doubles, *, moved: bool) -> None:
    """The bytes tell only whether there was a change."""
    for array in (table.state, table.silent):
        if array is not None:
            a, b = array[rows][:, (A, B)].astype(np.float64).T
            if moved:
                _store(array, rows, posterior.changed(a, b, tau, prior=_prior(table, spaces, rows)))
            else:
                _store(array, rows, posterior.unchanged(a, b, tau))


def _learn_stamps(
    table: Table,
    spaces: Spaces,
    rows: Rows,
    *,
    tau: Doubles,
    stamps: Doubles,
    loaded: Loaded,
) -> NDArray[np.bool_]:
    """Learns exactly from rows that say more than whether their bytes differ. Returns which rows did."""
    said = np.abs(stamps) < _SENSIBLE
    rows, tau, stamps = rows[said], tau[said], stamps[said]
    if not len(rows):
        return said
    terms = spaces.namespaces[int(table.state[rows[0], SPACE])].terms
    ages = terms is not None and terms.stamp == "age"
    stamps = loaded.began - stamps if ages else stamps
    before = table.with_stamp()[rows]
    table.with_stamp()[rows] = stamps
    silent = table.state[rows, STATUS] < STALE  # an announced change was learned from its announcement
    rows, tau, stamps, before = rows[silent], tau[silent], stamps[silent], before[silent]
    first = np.isnan(before)
    moved = first | (stamps > before + (_JITTER if ages else 0.0))
    if ages:  # the stamp dates the last change, and nothing has happened since
        events, exposure = moved.astype(np.float64), np.where(moved, loaded.began - stamps, tau)
    else:
        events, exposure = np.where(first, 0.0, stamps - before), np.where(first, 0.0, tau)
    for array in (table.state, table.silent):
        if array is not None:
            a, b = array[rows][:, (A, B)].astype(np.float64).T
            prior = _prior(table, spaces, rows)
            _store(array, rows, posterior.dated(a, b, events, exposure, tau=tau, prior=prior))
    return said


def _prior(table: Table, spaces: Spaces, rows: Rows) -> tuple[Doubles, Doubles]:
    return np.full(len(rows), SHAPE), spaces.prior[table.state[rows, SPACE].astype(np.intp)]


def _store(array: NDArray[np.float32], rows: Rows, pair: tuple[Doubles, Doubles] | list[Doubles]) -> None:
    array[rows, A], array[rows, B] = pair
