"""P10: CPU per hint and per unit with 100, 1,000 and 10,000 namespaces, each of which is offered three times its quota.

All runs have the same rates: 6,000 misses of new keys and 2,000 rows a second, in units of one key, the dearest there are. So
the namespaces of a small run have larger quotas. What is over the quotas waits until the partition has no room for more, and is
given up then: a run counts from that time on. Time is virtual. The runs take turns slice by slice, so that noise affects all of
them. A hint costs its decoding, its acceptance, and its part of what is given up. A unit costs its part of the engine's steps,
and its end. Loads and writes cost nothing here: P6 has their cost, and no number of namespaces changes that.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, deque
from itertools import count

import rig
from dedup import Silent
from table import row

from cacheupdater.core.answers import WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.intake import take_in
from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.patterns import Pattern

NAMESPACES = (100, 1_000, 10_000)
ROWS = 2_000  # a second, of all quotas together
OFFER = 3  # times the quotas
STEP_S = 0.01
PACK = round(OFFER * ROWS * STEP_S)  # keys of a step, each of another namespace
HEAD_S = 0.02
PACE_S = 0.04  # in which no quota brings more than one row: units have one key
SLICE_S = NAMESPACES[-1] / ROWS  # the smallest quota brings a row
WARM_SLICES = 6
SLICES = 11
GOAL = 1.5  # the dearest run / the cheapest one
NEAR = 0.05  # of a quota


class Run:
    """The engine of one partition, with stand-ins for loads and writes."""

    def __init__(self, namespaces):
        self.namespaces, self.numbers, self.offsets = namespaces, count(), count()
        source = Source("main", Bucket(2 * ROWS, 2 * ROWS, now=0.0), concurrency=ROWS)
        spaces = []
        for number in range(namespaces):
            pattern = Pattern.compile(f"space{number:05d}:{{id:int}}")
            rate = ROWS / namespaces
            quota = Bucket(rate, rate, now=-number / ROWS)  # so that they do not all pay at the same moment
            spaces.append((pattern, Namespace(f"space{number:05d}", pattern, source, quota=quota)))
        chance = random.Random(1).random
        self.engine = Engine(Keyspace(spaces), Fixed(), limits=Limits(pace=PACE_S), random=chance, offset=0)
        self.heads = deque()
        self.now = 0.0
        self.rows: Counter[str] = Counter()
        self.units = 0

    def slice(self):
        """Plays some virtual seconds; microseconds per hint and per unit."""
        hints_s = units_s = 0.0
        hints, before = 0, self.units
        for _ in range(round(SLICE_S / STEP_S)):
            self.now += STEP_S
            message = Message(next(self.offsets), wire.encode_pack(wire.MISS, 1, self._new_keys()))
            began = time.process_time()
            take_in(self.engine, [message], self.now, observer=Silent())
            between = time.process_time()
            self._step()
            units_s += time.process_time() - between
            hints_s += between - began
            hints += PACK
        return hints_s / hints * 1e6, units_s / (self.units - before) * 1e6

    def _new_keys(self):
        """The namespaces take turns."""
        numbers = [next(self.numbers) for _ in range(PACK)]
        return [b"space%05d:%d" % (number % self.namespaces, number) for number in numbers]

    def _step(self):
        while self.heads and self.heads[0][0] <= self.now:
            _, unit = self.heads.popleft()
            self.engine.on_answers(unit, [WRITTEN] * len(unit.keys), self.now)
        for unit in self.engine.step(self.now).units:
            self.engine.on_statement(unit, self.now)
            self.heads.append((self.now + HEAD_S, unit))
            self.rows[unit.namespace.name] += len(unit.keys)
            self.units += 1
        self.engine.cursor.advance()
        self.engine.take_ages()

    def near(self):
        """The part of the namespaces that got their quota, within `NEAR` or one row."""
        quota = SLICES * SLICE_S * ROWS / self.namespaces
        got = [rows for rows in self.rows.values() if abs(rows - quota) <= max(1.0, NEAR * quota)]
        return len(got) / self.namespaces


def measure():
    """The runs, and the costs of their slices."""
    rig.collect_as_the_updater()
    runs = [Run(number) for number in NAMESPACES]
    for run in runs:
        for _ in range(WARM_SLICES):
            run.slice()
        run.rows.clear()
    costs = zip(*([run.slice() for run in runs] for _ in range(SLICES)), strict=True)
    return runs, list(costs)


def run():
    """The rows for `build/bench.json`."""
    runs, costs = measure()
    rows = []
    for at, what in enumerate(("hint", "unit")):
        found = [statistics.median(each[at] for each in slices) for slices in costs]
        said = ", ".join(
            f"{cost:.1f} us with {each.namespaces:,}" for cost, each in zip(found, runs, strict=True)
        )
        method = f"dearest / cheapest {what}, namespaces that are offered {OFFER} times their quotas: {said}"
        rows.append(row(f"P10-{what}", max(found) / min(found), GOAL, method=method))
    method = f"least part of the namespaces that got their quota within {NEAR:.0%} or one row, {SLICES * SLICE_S:g} virtual s"
    least = min(each.near() for each in runs)
    return [*rows, row("P10-quotas", least, 0.99, better="higher", method=method)]


if __name__ == "__main__":
    for each in run():
        print(each)
