"""F6: the policy `price` on one core: hints a second through learning and decision, bytes per key, time per tick.

Packs come as the client sends them: each key once, with its count; one hint is one read. A million keys are known before the
measurement begins. Hints arrive at a million a second of virtual time, so a tick is due every 20,000 hints. The loads that
the policy chooses are paid and answered at once, in units of 200; every tenth answer has other bytes. Keys are fresh objects,
as they come from a socket. Times are CPU times of this process, for other processes may be busy beside it.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from random import Random
from time import process_time

import numpy as np
import psutil
from table import row

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Loaded
from cacheupdater.price import Market, Price
from cacheupdater_client.protocol.patterns import Pattern

KEYS = 1_000_000
BUDGET = 1_000.0  # rows a second
BATCH = 10_000  # hints
SMALL = 250
UNIT = 200
HINTS_PER_S = 1_000_000  # of virtual time
MEASURED = {BATCH: 2_000_000, SMALL: 500_000}  # hints per run
TICKS = 600
NAMES = ("F6", "F6-uniform", "F6-250")


def names(numbers):
    """Keys of twelve bytes, new objects every time."""
    return [b"k:%010d" % number for number in numbers]


class Rig:
    """One policy, and a database that answers at once."""

    def __init__(self):
        self.source = Source("db", Bucket(BUDGET, BUDGET, now=0.0), concurrency=100)
        space = Namespace("k", Pattern.compile("k:{id:int}"), self.source, terms=Terms())
        keyspace = Keyspace([(space.pattern, space)])
        market = Market(self.source, [space], random=Random(6).random, now=0.0)
        limits = Limits(learned=2 * KEYS)
        self.policy = Price(keyspace, [space], {self.source: market}, limits=limits, now=0.0)
        self.now = 0.0
        self.loads = 0

    def fill(self):
        """Hints every key once, in random order, within ten seconds."""
        order = np.random.default_rng(6).permutation(KEYS)
        for start in range(0, KEYS, BATCH):
            self.now += 10.0 * BATCH / KEYS
            self.policy.on_hints(names(order[start : start + BATCH].tolist()), (), self.now)

    def play(self, keys, counts, seconds):
        """Plays one pack of hints, then all that is due. Returns the seconds of CPU that its tick took."""
        self.now += seconds
        self.serve(self.policy.on_hints(keys, counts, self.now))
        begin = process_time()
        asked = self.policy.tick(self.now)
        took = process_time() - begin
        self.serve(asked)
        return took

    def serve(self, keys):
        if not keys:
            return
        self.source.bucket.level(self.now)
        self.source.bucket.take(len(keys))
        for start in range(0, len(keys), UNIT):
            unit = list(keys[start : start + UNIT])
            self.loads += len(unit)
            changed = [place % 10 == 0 for place in range(len(unit))]
            self.policy.on_loaded(Loaded(Kind.TOUCH, unit, changed, self.now, ()), self.now)


def packs(batch, hints, *, zipf):
    """(keys, counts) of so many hints each."""
    rng = np.random.default_rng(60)
    popularity = 1.0 / np.arange(1, KEYS + 1) if zipf else np.ones(KEYS)
    ends = np.cumsum(popularity)
    by_rank = rng.permutation(KEYS)
    for _ in range(hints // batch):
        drawn = by_rank[np.searchsorted(ends, rng.random(batch) * ends[-1])]
        numbers, counts = np.unique(drawn, return_counts=True)
        shuffled = rng.permutation(len(numbers))
        yield names(numbers[shuffled].tolist()), counts[shuffled].tolist()


def hints_per_second(batch, *, zipf):
    rig = Rig()
    rig.fill()
    hints = MEASURED[batch]
    for keys, counts in packs(batch, hints // 4, zipf=zipf):  # hot rows into the caches, as they would be
        rig.play(keys, counts, batch / HINTS_PER_S)
    ready = list(packs(batch, hints, zipf=zipf))
    gc.collect()
    gc.freeze()
    begin, loads = process_time(), rig.loads
    for keys, counts in ready:
        rig.play(keys, counts, batch / HINTS_PER_S)
    return {"per_s": hints / (process_time() - begin), "loads": rig.loads - loads}


def tick_times():
    """The times of all ticks of some seconds, at a tenth of the traffic."""
    rig = Rig()
    rig.fill()
    took = [
        rig.play(keys, counts, 0.0201) for keys, counts in packs(2_000, 2_000 * (TICKS + 100), zipf=True)
    ][100:]
    return {"p50": float(np.quantile(took, 0.5)), "p99": float(np.quantile(took, 0.99))}


def bytes_per_key():
    """Growth of resident memory between an empty policy and one that knows a million keys, keys included."""

    def resident():
        gc.collect()
        return psutil.Process().memory_info().rss

    rig = Rig()
    rig.play(
        names(range(100)), (), 0.0
    )  # code that is loaded and compiled at first use must not count as keys
    before = resident()
    rig.fill()
    tracked = len(rig.policy.table)
    return {"bytes": (resident() - before) / tracked, "tracked": tracked}


PARTS = {
    "F6": lambda: hints_per_second(BATCH, zipf=True),
    "F6-uniform": lambda: hints_per_second(BATCH, zipf=False),
    "F6-250": lambda: hints_per_second(SMALL, zipf=True),
    "F6-bytes": bytes_per_key,
    "F6-tick": tick_times,
}


def apart(part):
    """Runs a part in a process of its own, so that its memory has nothing of another part."""
    done = subprocess.run([sys.executable, __file__, part], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run():
    """The rows for `build/bench.json`."""
    rows = []
    for name, what in zip(
        NAMES,
        (f"{BATCH}-hint packs, Zipf 1.0", f"{BATCH}-hint packs, uniform", f"{SMALL}-hint packs, Zipf 1.0"),
        strict=True,
    ):
        told = apart(name)
        method = (
            f"million hints per CPU second, {what}, {KEYS} keys, {told['loads']} loads and ticks included"
        )
        rows.append(
            row(name, told["per_s"] / 1e6, 1.0 if name == "F6" else None, better="higher", method=method)
        )
    told = apart("F6-bytes")
    method = f"growth of resident memory / {told['tracked']} keys of 12 bytes"
    rows.append(row("F6-bytes", told["bytes"], 200, method=method))
    told = apart("F6-tick")
    method = f"ms of CPU, p99 of {TICKS} ticks at {KEYS} keys; p50 {told['p50'] * 1e3:.2f}"
    rows.append(row("F6-tick", told["p99"] * 1e3, 5.0, method=method))
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(PARTS[sys.argv[1]]()))
    else:
        for each in run():
            print(each)
