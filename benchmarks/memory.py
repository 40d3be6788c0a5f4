"""P8: bytes of state per tracked key, key included, at a million keys: after filling, and after steady churn.

The figure is the growth of this process's resident memory between an empty and a full engine. Filling hints each key once and
ends its head. Churn lets every seat end and begin again several times.
"""

from __future__ import annotations

import gc
import itertools

import psutil
from dedup import PACK, STEP_PACKS, Run
from table import row

from cacheupdater_client.protocol import wire

KEYS = 1_000_000
HOLD_S = 2.0
ROUNDS = 4


def resident():
    gc.collect()
    return psutil.Process().memory_info().rss


def all_keys():
    """Every key once, in packs; new objects each time, as they come from a socket."""
    numbers = iter(range(KEYS))
    while batch := [b"product:%014d" % n for n in itertools.islice(numbers, PACK)]:
        yield wire.encode_pack(wire.TOUCH, 1, batch)


def play(run, now, seconds):
    """Plays one pass over all keys, spread over so many virtual seconds."""
    source = all_keys()
    steps = KEYS // (PACK * STEP_PACKS)
    for _ in range(steps):
        now += seconds / steps
        run.step(list(itertools.islice(source, STEP_PACKS)), now)
    return now


def measure():
    import random

    before = resident()
    run = Run(HOLD_S, random.Random(8))
    run.rng = type("Never", (), {"random": staticmethod(lambda: 1.0)})()  # no failures: memory is measured
    now = play(run, 1.0, HOLD_S * 0.9)
    filled = (resident() - before) / run.engine.tracked
    most = filled
    for _ in range(ROUNDS):
        now = play(run, now, HOLD_S * 1.02)
        if run.engine.tracked > 0.9 * KEYS:  # the first round begins while the old seats end
            most = max(most, (resident() - before) / run.engine.tracked)
    return filled, most, run.engine.tracked


def run():
    """The rows for `build/bench.json`."""
    filled, churned, tracked = measure()
    method = f"growth of resident memory / {tracked} tracked keys of 22 bytes"
    return [
        row("P8-filled", filled, 120, method=method + ", each hinted once"),
        row(
            "P8-churned",
            churned,
            170,
            method=method + f", most of {ROUNDS} rounds in which every seat was renewed",
        ),
    ]


if __name__ == "__main__":
    for each in run():
        print(each)
