"""Measured times in tests, on a machine of unknown pace.

Other processes only ever add to a time. So a bound is kept if one of several tries keeps it; a fault adds to every try, so no
try keeps the bound: `soonest`. For mere waiting there is `PATIENCE_S`, which costs time only if a test fails.
"""

from __future__ import annotations

from time import monotonic, process_time

from suite.beside import Beside

PATIENCE_S = 60.0
TRIES = 8
_ROUNDING_MS = 50  # a server's clock is not the test's, and a ttl is told in whole milliseconds


def soonest(attempt, within, *, tries=TRIES):
    """Calls `attempt()` until it takes no longer than `within` seconds. Returns its result.

    An attempt that does more than the timed work returns the seconds itself, as a float.
    """
    took = []
    while len(took) < tries:
        began = monotonic()
        said = attempt()
        took.append(said if isinstance(said, float) else monotonic() - began)
        if took[-1] <= within:
            return said
    raise AssertionError(_never(took, within))


async def soonest_of(attempt, within, *, tries=TRIES):
    """The same for a coroutine function."""
    took = []
    while len(took) < tries:
        began = monotonic()
        said = await attempt()
        took.append(said if isinstance(said, float) else monotonic() - began)
        if took[-1] <= within:
            return said
    raise AssertionError(_never(took, within))


def _never(took, within):
    return f"not within {within:g} s in {len(took)} tries: {[round(each, 3) for each in took]}"


class Metronome(Beside):
    """Measures how late the machine wakes a thread that only sleeps: a control for stories that cannot be repeated."""

    BEAT_S = 0.02

    def __init__(self):
        super().__init__()
        self.latest = 0.0  # the most seconds that a wake-up was late

    def run(self):
        began = monotonic()
        while not self.ended.wait(self.BEAT_S):
            now = monotonic()
            self.latest, began = max(self.latest, now - began - self.BEAT_S), now


def left_ms(of_ms, began):
    """The least that is left of a time of so many milliseconds, if it began at this monotonic time or later."""
    return of_ms - 1000 * (monotonic() - began) - _ROUNDING_MS


def busiest(times, seconds):
    """The most of these times, which are in order, in any window of so many seconds."""
    most = begin = 0
    for end, at in enumerate(times):
        while times[begin] < at - seconds:
            begin += 1
        most = max(most, end - begin + 1)
    return most


LOOP, USUAL_LOOP_S = (
    1_000_000,
    0.06,
)  # of processor time, where the bounds of the tests in CPU seconds were found


def slowness(tries=TRIES):
    """How many times longer than usual this machine computes just now; 1 if it does not. The pace of a shared machine differs
    by four within an hour, and processor time differs with it."""
    return max(1.0, min(_loop_s() for _ in range(tries)) / USUAL_LOOP_S)


def _loop_s():
    began, total = process_time(), 0
    for number in range(LOOP):
        total += number
    return process_time() - began
