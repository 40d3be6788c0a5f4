"""One key in a hundred is poison and one is slower than the others: the healthy ones keep their rate, in virtual time.

The application reads 10,000 keys one after the other. A unit with a poisoned key fails as a whole, and is cut smaller until the
poisoned key is alone; then this key goes to quarantine. A unit with a slow key holds a slot a hundred times as long as others,
until the engine knows which key is slow.

A busy machine stands still now and then, and all loads that run at that moment take longer. Its control is the same machine
without bad rows.
"""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from statistics import median
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from stories.engine import Story, namespace
from stories.market import TOOK, Market

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.outcomes import Failure, Load

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = [b"p:%d" % number for number in range(10_000)]
_BAD = random.Random(7).sample(KEYS, 200)
POISON, SLOW = frozenset(_BAD[:100]), frozenset(_BAD[100:])
BEAT = 0.1  # seconds
READS = 200  # a beat: each key every five seconds
HELD = 3.0  # seconds
BROKEN = 10.0  # from then on there is poison, and some keys are slow
LEARNED = 50.0  # from then on the engines know which
ENDS = 60.0
SLOWER = 0.4  # seconds of a load with a slow key in it
KEPT = 0.95
WINDOW = 5.0  # seconds: each key is read once
BUSY_ENDS = 85.0  # of a story on a busy machine
BUSY_LEARNS = 60.0  # seconds
FEW = 0.04  # of all keys


def pauses(seed: int) -> list[tuple[float, float]]:
    """When a busy machine stands still, and for how long: a quarter of its time."""
    rng, at, found = random.Random(seed), 0.0, []
    while at < BUSY_ENDS:
        at += rng.expovariate(1.0)
        found.append((at, rng.uniform(0.05, 0.5)))
        at += found[-1][1]
    return found


class Table(Market):
    """A source whose rows break while it is read, on a machine that stands still now and then."""

    def __init__(
        self,
        *engines: Story,
        ends: float = ENDS,
        broken: float = BROKEN,
        pauses: Sequence[tuple[float, float]] = (),
    ) -> None:
        super().__init__(*engines)
        self._broken, self._pauses = broken, pauses
        self.rates = Counter()  # healthy keys, by windows of WINDOW seconds
        self.most_suspects = 0
        self.loaded = Counter()  # healthy keys: before the breaking, while the engines learn, and after that
        self.refreshed = Counter()  # slow keys
        for beat in range(round(ends / BEAT)):
            first = beat * READS % len(KEYS)
            for number in range(len(engines)):
                read = [key for key in KEYS[first : first + READS] if crc32(key) % len(engines) == number]
                self.offer_keys(read, beat * BEAT, kind=Kind.TOUCH, engine=number)

    def takes(self, unit, now):
        slow = now >= self._broken and not SLOW.isdisjoint(unit.keys)
        ends = now + (SLOWER if slow else TOOK)
        for at, seconds in self._pauses:
            if at < ends and at + seconds > now:
                ends += at + seconds - max(at, now)
        return ends - now

    def end(self, story, unit, seconds, now):
        self.most_suspects = max(self.most_suspects, sum(len(each.engine.slow_keys) for each in self.engines))
        torn = POISON.intersection(unit.keys) if now >= self._broken else ()
        if torn:
            failure = Failure(f"torn: {min(torn).decode()}", own=True, at_source=True)
            story.engine.on_failure(unit, failure, now, load=Load(seconds, stage="load"))
            return
        self.rates[int(now // WINDOW)] += len(set(unit.keys) - POISON - SLOW)
        self.loaded[(now >= BROKEN) + (now >= LEARNED)] += len(set(unit.keys) - POISON - SLOW)
        self.refreshed.update(SLOW.intersection(unit.keys) if now >= LEARNED else ())
        story.end(unit, now, seconds=seconds)


@pytest.mark.parametrize("engines", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_healthy_keys_keep_their_rate_beside_poison_and_slow_keys(engines, record_property):
    shared = Source("db", Bucket(6_000.0, 6_000.0, now=0.0), concurrency=5)
    spaces = [namespace("p", source=shared, every=HELD)]
    market = Table(*(Story(*spaces, gather=0.02) for _ in range(engines)))
    market.run(ENDS)

    before, _, after = (market.loaded[part] for part in range(3))
    kept = after / before * BROKEN / (ENDS - LEARNED)
    record_property(
        f"figure: rate of healthy keys beside poison and slow keys, {engines} engines", round(kept, 3)
    )
    assert kept >= KEPT
    assert len(market.refreshed) >= 40, "the slow ones have their turns, too"
    quarantined = {
        key: each.error for story in market.engines for key, each in story.engine.quarantine.keys.items()
    }
    assert quarantined == {key: f"torn: {key.decode()}" for key in POISON}


def busy(seed: int, broken: float) -> Table:
    """Two engines on a busy machine."""
    shared = Source("db", Bucket(6_000.0, 6_000.0, now=0.0), concurrency=5)
    spaces = [namespace("p", source=shared, every=HELD)]
    stories = [Story(*spaces, gather=0.02) for _ in range(2)]
    market = Table(*stories, ends=BUSY_ENDS, broken=broken, pauses=pauses(seed))
    market.run(BUSY_ENDS)
    return market


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_busy_machine_makes_few_suspects_and_healthy_keys_keep_their_rate_beside_bad_ones(
    seed, record_property
):
    control, market = busy(seed, broken=inf), busy(seed, broken=BROKEN)
    windows = range(round((BROKEN + BUSY_LEARNS) / WINDOW), round(BUSY_ENDS / WINDOW))
    kept = median(market.rates[each] / control.rates[each] for each in windows)

    record_property(f"figure: rate of healthy keys on a busy machine, seed {seed}", round(kept, 3))
    record_property(
        f"figure: suspects on a busy machine without bad rows, seed {seed}", control.most_suspects
    )
    assert control.most_suspects <= FEW * len(KEYS), "a pause is no slow key"
    assert kept >= KEPT
