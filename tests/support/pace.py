"""Times that tests are about, on a machine whose pace nobody knows.

Whatever else runs only ever adds to a time. So a bound is kept if one of several tries keeps it, and a fault, which adds to
every try, keeps none: `soonest`. What is merely waited for has `PATIENCE_S`, which costs time only where a test fails.
"""

from __future__ import annotations

from time import monotonic

PATIENCE_S = 60.0
TRIES = 8


def soonest(attempt, within, *, tries=TRIES):
    """Calls `attempt()` until it has once taken no longer than `within` seconds; what it returned then.

    An attempt that does more than what is timed returns its seconds itself, as a float.
    """
    took = []
    while len(took) < tries:
        began = monotonic()
        said = attempt()
        took.append(said if isinstance(said, float) else monotonic() - began)
        if took[-1] <= within:
            return said
    raise AssertionError(f"not within {within:g} s in {tries} tries: {[round(each, 3) for each in took]}")
