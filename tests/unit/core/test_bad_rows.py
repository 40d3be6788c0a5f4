"""One key in a hundred is poison and one is slower than the others: the healthy ones keep their rate, in virtual time.

The application reads 10,000 keys one after the other. A unit with a poisoned key fails as a whole, and is cut smaller until the
poisoned key is alone; then this key goes to quarantine. A unit with a slow key holds a slot a hundred times as long as others,
until the engine knows which key is slow.
"""

from __future__ import annotations

import random
from collections import Counter
from zlib import crc32

import pytest
from stories.engine import Story, namespace
from stories.market import TOOK, Market

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.outcomes import Failure, Load

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


class Table(Market):
    """A source whose rows break while it is read."""

    def __init__(self, *engines: Story) -> None:
        super().__init__(*engines)
        self.loaded = Counter()  # healthy keys: before the breaking, while the engines learn, and after that
        self.refreshed = Counter()  # slow keys
        for beat in range(round(ENDS / BEAT)):
            first = beat * READS % len(KEYS)
            for number in range(len(engines)):
                read = [key for key in KEYS[first : first + READS] if crc32(key) % len(engines) == number]
                self.offer_keys(read, beat * BEAT, kind=Kind.TOUCH, engine=number)

    def takes(self, unit, now):
        return SLOWER if now >= BROKEN and not SLOW.isdisjoint(unit.keys) else TOOK

    def end(self, story, unit, seconds, now):
        torn = POISON.intersection(unit.keys) if now >= BROKEN else ()
        if torn:
            failure = Failure(f"torn: {min(torn).decode()}", own=True, at_source=True)
            story.engine.on_failure(unit, failure, now, load=Load(seconds, stage="load"))
            return
        self.loaded[(now >= BROKEN) + (now >= LEARNED)] += len(set(unit.keys) - POISON - SLOW)
        self.refreshed.update(SLOW.intersection(unit.keys) if now >= LEARNED else ())
        story.end(unit, now, seconds=seconds)


@pytest.mark.parametrize("engines", [1, 2])
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
