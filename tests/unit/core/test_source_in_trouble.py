"""A source of which a part or everything is slow, or away: what it is asked meanwhile, and afterwards."""

from __future__ import annotations

from statistics import quantiles

import pytest
from stories.engine import Story, namespace
from stories.market import TOOK, Market

from cacheupdater.core.breaker import OPEN_S, RAMP_S
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.outcomes import Failure, Load

TIMEOUT_S = 1.0
RATE = 500.0


class Database(Market):
    """Loads of some namespaces time out; in an outage, all of them are refused, or time out."""

    def __init__(
        self, *engines: Story, slow: str = "", away: tuple[float, float] = (0.0, 0.0), hangs: bool = False
    ):
        super().__init__(*engines)
        self.slow, self.away, self.hangs = slow, away, hangs
        self.asked: list[tuple[float, int]] = []  # (when, rows)
        self.fresh: list[tuple[float, float]] = []  # (when, seconds since the hint)
        self.under_way = self.most_under_way = 0

    def is_away(self, now: float) -> bool:
        return self.away[0] <= now < self.away[1]

    def takes(self, unit, now):
        self.asked.append((now, len(unit.keys)))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if unit.namespace.name in self.slow or (self.is_away(now) and self.hangs):
            return TIMEOUT_S
        return 0.001 if self.is_away(now) else TOOK

    def end(self, story, unit, seconds, now):
        self.under_way -= 1
        refused = seconds == 0.001
        if seconds == TIMEOUT_S or refused:
            load = Load(0.0 if refused else seconds, stage="load", asked=not refused)
            failure = Failure("away", own=False, slow=not refused, at_source=True)
            story.engine.on_failure(unit, failure, now, load=load)
            return
        load = Load(seconds, stage="write")
        if unit.namespace.name == "quick":
            self.fresh += [(now, now - self._since[key]) for key in unit.keys]
        story.engine.on_answers(unit, story.written(unit), now, load=load)


def database(names: str, *, engines: int = 1, every: float = 5.0, **how) -> Database:
    shared = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=5)
    spaces = [namespace(name, source=shared, every=every) for name in [*names, "quick"]]
    return Database(*(Story(*spaces) for _ in range(engines)), **how)


@pytest.mark.parametrize("late", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("engines", [1, 3])
def test_a_miss_beside_four_namespaces_whose_statements_time_out_is_loaded_at_once(
    engines, late, record_property
):
    """At first nothing is answered: the breaker opens, and a probe closes it. `late` is when the healthy misses begin."""
    story = database("abcd", engines=engines, slow="abcd")
    for name in "abcd":
        for engine in range(engines):
            story.offer(name, 20.0 / engines, 30.0, kind=Kind.MISS, engine=engine)
    story.offer("quick", 10.0, 30.0 - late, kind=Kind.MISS, since=late)
    story.run(30.0)

    assert max(wait for _, wait in story.fresh) <= 4.0
    waits = [wait for when, wait in story.fresh if when > 5.0]
    assert len(waits) >= 240
    p90 = quantiles(waits, n=10)[-1]
    name = f"figure: p90 of a miss beside four slow namespaces, {engines} partitions, {late:g} s late, in ms"
    record_property(name, f"{1000 * p90:.1f}")
    assert p90 <= 0.05


@pytest.mark.parametrize("hangs", [False, True], ids=["refused", "hanging"])
@pytest.mark.parametrize("engines", [1, 3])
def test_source_that_is_away_is_only_probed_and_then_eased_in(hangs, engines):
    story = database("", engines=engines, away=(10.0, 40.0), hangs=hangs)
    for engine in range(engines):
        story.offer("quick", 100.0 / engines, 60.0, kind=Kind.MISS, engine=engine)
    story.run(60.0)

    opened = 10.0 + 2.0 * TIMEOUT_S + 0.5
    meanwhile = [when for when, _ in story.asked if opened <= when < 40.0]
    assert len(meanwhile) <= (40.0 - opened) / OPEN_S + 1, "nothing but probes"
    assert len(meanwhile) >= (40.0 - opened) / (OPEN_S + TIMEOUT_S) - 1, "and the probes come"
    back = min(when for when, _ in story.fresh if when >= 40.0)
    assert back <= 40.0 + OPEN_S + TIMEOUT_S + 0.1
    for seconds in (1.0, 2.0, 3.0, 4.0):
        rows = sum(rows for when, rows in story.asked if back < when <= back + seconds)
        assert rows <= 10 + RATE * seconds**2 / (2.0 * RAMP_S) + 1, "the ramp"
    late = [wait for when, wait in story.fresh if when > back + 3.0 * RAMP_S]
    assert max(late) <= 0.1, "and then all is as before"
    assert story.most_under_way <= 5


def test_what_is_eased_in_comes_in_no_more_statements_than_usual():
    """A database with cold caches must not get a statement for each row."""
    story = database("", every=0.3, away=(10.0, 20.0))
    keys = [b"quick:%d" % number for number in range(400)]
    for turn in range(80):
        story.offer_keys(keys, turn * 0.5, kind=Kind.TOUCH)
    story.run(40.0)

    usual = sum(5.0 <= when < 10.0 for when, _ in story.asked)
    back = min(when for when, _ in story.fresh if when >= 20.0)
    eased = [rows for when, rows in story.asked if back < when <= back + RAMP_S]
    assert sum(eased) >= 0.9 * RATE * RAMP_S / 2, "the ramp is used"
    assert len(eased) <= 1.5 * usual


class Refreshed(Database):
    """When each key was loaded first after the outage."""

    def __init__(self, *engines: Story, **how):
        super().__init__(*engines, **how)
        self.first: dict[bytes, float] = {}

    def end(self, story, unit, seconds, now):
        if now >= self.away[1]:
            for key in unit.keys:
                self.first.setdefault(key, now)
        super().end(story, unit, seconds, now)


@pytest.mark.parametrize("late", [0.001, 0.005, 0.02])
def test_partitions_share_what_is_eased_in(late):
    """Both have more than can be paid, and one hears its readers a moment later now and then."""
    shared = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=5)
    story = Refreshed(*(Story(namespace("quick", source=shared, every=0.3)) for _ in "ab"), away=(10.0, 22.0))
    keys = [b"quick:%d" % number for number in range(400)]
    for turn in range(130):
        story.offer_keys(keys[::2], turn * 0.2, kind=Kind.TOUCH, engine=0)
        story.offer_keys(keys[1::2], turn * 0.2 + turn % 7 * late, kind=Kind.TOUCH, engine=1)
    story.run(32.0)

    paid = (2.0 * RAMP_S * len(keys) / RATE) ** 0.5  # seconds of the ramp until each key can have been paid
    assert len(story.first) == len(keys)
    assert max(story.first.values()) - min(story.first.values()) <= 1.1 * paid


def test_nothing_is_spent_while_the_source_is_away():
    story = database("", away=(10.0, 40.0))
    story.offer("quick", 100.0, 40.0, kind=Kind.MISS)
    story.run(12.5)
    bucket = story.engines[0].namespaces[0].source.bucket
    before = bucket.spent
    story.run(39.9)

    assert bucket.spent - before <= 1.0, "what a refused statement has paid is given back"


def test_probe_that_is_cut_off_gives_its_permit_back():
    shared = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=5)
    story = Story(namespace(source=shared))
    for number in range(3):
        story.miss(b"p:%d" % number, at=1.0)
        unit = story.start(1.0)
        story.engine.on_failure(
            unit,
            Failure("refused", own=False, at_source=True),
            1.0,
            load=Load(0.0, stage="load", asked=False),
        )
    story.miss(b"p:9", at=1.5)
    assert story.starts(1.5) == []
    (probe,) = story.step(2.1).units
    assert story.starts(2.2) == [], "one probe at a time"
    story.miss(b"p:10", at=2.3)
    assert story.starts(2.3) == []
    story.engine.on_cut_off(probe, 2.35)
    assert len(story.starts(2.4)) == 1


@pytest.mark.parametrize("count", [400, 1])
@pytest.mark.parametrize("engines", [1, 3])
def test_an_outage_makes_no_suspects(engines, count):
    """More is read than can be paid, and each probe hangs. A single key is the probe each time."""
    story = database("", engines=engines, every=0.3, away=(10.0, 22.0), hangs=True)
    keys = [b"quick:%d" % number for number in range(count)]
    for turn in range(50):
        for engine in range(engines):
            story.offer_keys(keys[engine::engines], turn * 0.5, kind=Kind.TOUCH, engine=engine)
    story.run(22.0)

    assert [len(each.engine.slow_keys) for each in story.engines] == [0] * engines
    assert [len(each.engine.quarantine) for each in story.engines] == [0] * engines


def test_an_outage_that_begins_while_another_key_is_answered_quarantines_nobody():
    """The first timeout has a witness by chance. Of two keys, each is every other probe."""
    story = database("", engines=2, every=0.3, away=(10.0, 60.0), hangs=True)
    for turn in range(120):
        story.offer_keys([b"quick:0"], turn * 0.5, kind=Kind.TOUCH, engine=0)
        story.offer_keys([b"quick:1"], turn * 0.5 - TOOK / 2, kind=Kind.TOUCH, engine=1)
    story.run(60.0)

    assert [len(each.engine.quarantine) for each in story.engines] == [0, 0]


class SlowRows(Database):
    """Loads with the first key of an engine time out, be it alone or with others."""

    def takes(self, unit, now):
        slow = any(int(key.partition(b":")[2]) < len(self.engines) for key in unit.keys)
        return TIMEOUT_S if slow else super().takes(unit, now)


@pytest.mark.parametrize("engines", [1, 3])
def test_a_slow_row_in_every_unit_does_not_close_the_source_to_the_others(engines):
    """Nothing at the source is answered at first, so the breaker opens. A probe is a single key, and most keys are healthy."""
    shared = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=5)
    story = SlowRows(*(Story(namespace("quick", source=shared, every=0.8)) for _ in range(engines)))
    keys = [b"quick:%d" % number for number in range(100)]
    for turn in range(20):
        for engine in range(engines):
            story.offer_keys(keys[engine::engines], float(turn), kind=Kind.TOUCH, engine=engine)
    story.run(15.0)
    loaded = len(story.fresh)
    story.run(20.0)

    healthy = len(keys) - engines
    assert len(story.fresh) - loaded >= 0.95 * 5 * healthy, "each healthy key each second"
    assert sum(len(each.engine.slow_keys) for each in story.engines) <= engines


def test_a_slow_key_that_is_left_alone_is_quarantined():
    """Nobody else asks anything of the source, so its breaker opens, and the key is the probe each time."""
    shared = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=5)
    story = SlowRows(Story(namespace("quick", source=shared)))
    keys = [b"quick:%d" % number for number in range(100)]
    story.offer_keys(keys[50:], 0.0, kind=Kind.MISS)
    story.offer_keys(keys[:50], 1.0, kind=Kind.MISS)
    story.run(25.0)

    assert len(story.fresh) == 99
    assert list(story.engines[0].engine.quarantine.keys) == keys[:1]
