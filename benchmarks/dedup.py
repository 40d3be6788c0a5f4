"""P5: the automaton with all its rules against the floor, decoding the same packs into a `set()`. And resolution.

20 packs of 500 keys arrive per step of 10 virtual milliseconds: a million hints a second over a million keys, drawn by Zipf's
law or evenly; 2 % of the packs are changes and misses. Heads take 20 ms, 1 % of the units have a refused key, and 0.5 % fail.
Engine and floor take turns step by step in one process, so that noise affects both. Steps count after 3 virtual seconds, when
as many seats end as begin. Captures are not parsed: that belongs to building a unit, and its cost is a row of its own.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from bisect import bisect
from collections import deque

from table import row

from cacheupdater.core.answers import WRITTEN, Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.outcomes import Failure
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.intake import take_in
from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.patterns import Pattern

KEYS = 1_000_000
PACK = 500
STEP_PACKS = 20
STEP_S = 0.01
HEAD_S = 0.02
WARM_STEPS = 320
STEPS = 520
GOALS = {("zipf", 0.1): 4.0, ("uniform", 0.1): 7.5, ("zipf", 1.0): None, ("uniform", 1.0): None}
UNBOUNDED = 10**9


class Silent:
    """An observer that does nothing."""

    def count(self, metric, amount, *, label="", reason=""): ...

    def measure(self, metric, value, *, label=""): ...

    def level(self, metric, value, *, label=""): ...

    def end(self, metric, *, label=""): ...


class Pinned:
    """A pattern whose captures cost nothing."""

    def __init__(self, pattern):
        self.prefix = pattern.prefix

    def parse_many(self, keys):
        return keys


def draws(kind, rng):
    """An endless stream of key numbers."""
    if kind == "uniform":
        while True:
            yield rng.randrange(KEYS)
    weights = list(itertools.accumulate(1.0 / rank for rank in range(1, KEYS + 1)))
    numbers = list(range(KEYS))
    rng.shuffle(numbers)
    while True:
        yield numbers[min(bisect(weights, rng.random() * weights[-1]), KEYS - 1)]


def packs(kind, rng):
    """Encoded packs, as from a client that counts duplicates."""
    numbers = draws(kind, rng)
    while True:
        keys = list(dict.fromkeys(b"product:%014d" % n for n in itertools.islice(numbers, PACK)))
        lot = rng.random()
        hint = wire.TOUCH if lot < 0.98 else wire.MISS if lot < 0.99 else wire.CHANGE
        yield wire.encode_pack(hint, 1, keys)


def engine(hold):
    """One partition without limits: the automaton is measured, not the budget."""
    pattern = Pattern.compile("product:{id}")
    source = Source("main", Bucket(UNBOUNDED, UNBOUNDED, now=0.0), concurrency=UNBOUNDED)
    namespace = Namespace("product", Pinned(pattern), source, every=hold, max_backlog=UNBOUNDED)
    return Engine(
        Keyspace([(pattern, namespace)]),
        Fixed(),
        limits=Limits(pending=UNBOUNDED),
        random=random.random,
        offset=0,
    )


class Run:
    """The engine, with stand-ins for loads and writes."""

    def __init__(self, hold, rng):
        self.engine, self.rng = engine(hold), rng
        self.heads = deque()
        self.offset = 0

    def step(self, payloads, now):
        messages = []
        for payload in payloads:
            messages.append(Message(self.offset, payload))
            self.offset += 1
        take_in(self.engine, messages, now, observer=Silent())
        self.heads.extend((now + HEAD_S, unit) for unit in self.engine.step(now).units)
        while self.heads and self.heads[0][0] <= now:
            self.end(self.heads.popleft()[1], now)
        self.engine.cursor.advance()
        self.engine.take_ages()

    def end(self, unit, now):
        lot = self.rng.random()
        if lot < 0.005:
            self.engine.on_failure(unit, Failure("unreachable", own=False), now)
            return
        answers = [WRITTEN] * len(unit.keys)
        if lot < 0.015:
            answers[0] = Answer(Result.REFUSED, wait=0.001)
        self.engine.on_answers(unit, answers, now)


def floor(payloads):
    seen = set()
    for payload in payloads:
        seen.update(wire.decode_pack(payload).keys)


def membership(payloads, seats):
    """The cost of one look-up per hint, which any design pays that keeps its keys in one dict."""
    for payload in payloads:
        [key for key in wire.decode_pack(payload).keys if key not in seats]


def measure(kind, hold):
    rng = random.Random(5)
    run, source = Run(hold, rng), packs(kind, rng)
    ratios, members, costs, now = [], [], [], 1.0
    for step in range(STEPS):
        now += STEP_S
        payloads = list(itertools.islice(source, STEP_PACKS))
        began = time.process_time()
        run.step(payloads, now)
        between = time.process_time()
        floor(payloads)
        ended = time.process_time()
        membership(payloads, run.engine._dedup.seats)
        if step >= WARM_STEPS:
            members.append((time.process_time() - ended) / (ended - between))
            ratios.append((between - began) / (ended - between))
            costs.append((between - began) / (STEP_PACKS * PACK) * 1e9)
    return statistics.median(ratios), statistics.median(members), statistics.median(costs), run.engine.tracked


def resolution():
    """The cost per accepted key of finding its namespace."""
    rng = random.Random(5)
    rows = []
    for spaces in (1, 10, 3000):
        patterns = [Pattern.compile(f"space{n:04d}:{{id:int}}") for n in range(spaces)]
        keyspace = Keyspace([(each, each) for each in patterns])
        keys = [b"space%04d:%d" % (rng.randrange(spaces), rng.randrange(KEYS)) for _ in range(PACK)]
        times = []
        for _ in range(51):
            began = time.process_time_ns()
            for _ in range(20):
                keyspace.resolve_many(keys)
            times.append((time.process_time_ns() - began) / (20 * PACK))
        method = f"ns per accepted key, {PACK} keys of mixed namespaces in one batch, median of 51"
        rows.append(row(f"P5-resolution-{spaces}", statistics.median(times), None, method=method))
    return rows


def run():
    """The rows for `build/bench.json`."""
    rows = []
    for (kind, hold), goal in GOALS.items():
        ratio, member, cost, tracked = measure(kind, hold)
        name = f"P5-{kind}" if goal else f"P5-{kind}-hold-1s"
        method = (
            f"decode + automaton / decode + set(), hold {hold:g} s, {tracked} keys tracked; "
            f"median of {STEPS - WARM_STEPS} interleaved steps; {cost:.0f} ns a hint"
        )
        rows.append(row(name, ratio, goal, method=method))
        what = f"decode + one membership test in a dict of {tracked} keys / decode + set(): what the memory alone costs"
        rows.append(row(f"{name}-membership", member, None, method=what))
    return rows + resolution()


if __name__ == "__main__":
    for each in run():
        print(each)
