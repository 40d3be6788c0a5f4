"""Namespaces share a source's budget by rows; small requests have no advantage."""

from __future__ import annotations

from collections import Counter
from statistics import quantiles
from typing import TYPE_CHECKING

import pytest
from stories.engine import Story, namespace
from stories.market import Market

from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.turns import BEHIND

if TYPE_CHECKING:
    from cacheupdater.core.unit import Unit


class Undecided(Market):
    """The first units of each namespace cost the source nothing."""

    def __init__(self, *engines: Story, first: int) -> None:
        super().__init__(*engines)
        self._left = Counter({each.name: first for story in engines for each in story.namespaces})

    def _happen(self, what, now: float) -> None:
        if len(what) != 3 or not self._left[what[1].namespace.name]:
            super()._happen(what, now)
            return
        story, unit, _ = what
        self._left[unit.namespace.name] -= 1
        self.rows[unit.namespace.name] -= len(unit.keys)
        story.engine.on_unasked(unit, [Answer(Result.UNDECIDED, 0.1)] * len(unit.keys), now)
        self._wakes = [now] * len(self.engines)


class Quiet(Market):
    """Notes how long each row of all but the flood has waited for its start."""

    def __init__(self, *engines: Story) -> None:
        super().__init__(*engines)
        self.waits: list[float] = []

    def takes(self, unit: Unit, now: float) -> float:
        if unit.namespace.name != "flood":
            self.waits += [now - self._since[key] for key in unit.keys]
        return super().takes(unit, now)


class Looked(Bucket):
    """Tells how often somebody wanted to know."""

    def __init__(self, rate: float, burst: float) -> None:
        super().__init__(rate, burst, now=0.0)
        self.looks = 0

    def rows(self, now: float, cost: float = 1.0) -> int:
        self.looks += 1
        return super().rows(now, cost)


def source(rate: float) -> Source:
    return Source("db", Bucket(rate, rate, now=0.0), concurrency=5)


@pytest.mark.parametrize("gather", [0.0, 0.005])
def test_busy_namespace_gets_its_fair_share_beside_twenty_neighbours(gather):
    shared = source(500.0)
    small = [f"n{number}" for number in range(20)]
    story = Story(*(namespace(name, source=shared) for name in ["busy", *small]), gather=gather)
    market = Market(story)
    market.offer("busy", 200.0, 20.0, kind=Kind.MISS)
    for name in small:
        market.offer(name, 30.0, 20.0, kind=Kind.TOUCH)
    market.run(20.0)

    fair = 500.0 * 20.0 / 21
    assert market.rows["busy"] >= 0.95 * fair
    assert min(market.rows[name] for name in small) >= 0.9 * fair
    assert sum(market.rows.values()) >= 0.98 * 500.0 * 19.9


@pytest.mark.prove
@pytest.mark.parametrize("engines", [1, 4])
def test_busy_namespace_gets_its_fair_share_and_no_more_beside_a_thousand_small_neighbours(engines):
    shared = source(500.0)
    small = [f"n{number}" for number in range(1_000)]
    spaces = [namespace(name, source=shared) for name in ["busy", *small]]
    market = Market(*(Story(*spaces) for _ in range(engines)))
    for engine in range(engines):
        market.offer("busy", 200.0 / engines, 30.0, kind=Kind.MISS, engine=engine)
        for name in small:
            market.offer(name, 1.2 / engines, 30.0, kind=Kind.TOUCH, engine=engine)
    market.run(5.0)
    before = market.rows.copy()
    market.run(30.0)

    rows = market.rows - before
    fair = sum(rows.values()) / 1_001
    assert fair == pytest.approx(25.0 / 2, rel=0.02)
    assert 0.9 * fair - 1 <= rows["busy"] <= 1.1 * fair + 1
    assert min(rows[name] for name in small) >= 0.8 * fair - 1


@pytest.mark.parametrize("engines", [4, *(pytest.param(each, marks=pytest.mark.prove) for each in (1, 12))])
def test_nobody_waits_for_a_namespace_that_sends_nine_hints_of_ten(engines, record_property):
    shared = source(500.0)
    quiet = [f"n{number}" for number in range(20)]
    spaces = [namespace(name, source=shared) for name in ["flood", *quiet]]
    market = Quiet(*(Story(*spaces) for _ in range(engines)))
    for number, name in enumerate(quiet):
        market.offer(name, 10.0, 20.0, kind=Kind.TOUCH, engine=number % engines)
    for engine in range(engines):
        market.offer("flood", 1_800.0 / engines, 20.0, kind=Kind.MISS, engine=engine)
    market.run(20.0)

    p99 = quantiles(market.waits, n=100)[-1]
    record_property(f"figure: p99 of a wait beside a flood, {engines} partitions, ms", 1_000 * p99)
    assert len(market.waits) == 4_000
    assert p99 <= 0.01, "a few rows at 500 a second; the flood's units take 100 ms each"
    assert market.rows["flood"] >= 0.98 * 300.0 * 19.0


def test_namespace_that_was_served_while_nobody_else_wanted_anything_owes_nobody_anything():
    """It spends what the bucket has saved up, and then a hundred neighbours come."""
    shared = Source("db", Bucket(500.0, 200.0, now=-1.0), concurrency=5)
    small = [f"n{number}" for number in range(100)]
    story = Story(*(namespace(name, source=shared) for name in ["busy", *small]))
    market = Market(story)
    market.offer_now([b"busy:%d" % (1_000_000 + each) for each in range(190)], kind=Kind.MISS)
    market.run(0.0001)
    alone = market.rows["busy"]
    assert alone == 190
    market.offer("busy", 200.0, 20.0, kind=Kind.MISS)
    for name in small:
        market.offer(name, 12.0, 20.0, kind=Kind.TOUCH)
    market.run(20.0)

    owed = 2.0 * BEHIND
    assert market.rows["busy"] - alone >= 0.95 * 500.0 * (20.0 - owed) / 101


def test_what_a_stall_has_saved_up_is_for_all_in_line():
    """The loop stood still for most of a second, and now everybody wants something."""
    shared = Source("db", Bucket(500.0, 500.0, now=-0.8), concurrency=50)
    small = [f"n{number}" for number in range(20)]
    market = Market(Story(*(namespace(name, source=shared) for name in ["busy", *small])))
    market.offer_now([b"busy:%d" % (1_000_000 + each) for each in range(1_000)], kind=Kind.MISS)
    for name in small:
        market.offer_now([b"%s:%d" % (name.encode(), 1_000_000 + each) for each in range(50)], kind=Kind.MISS)
    market.run(0.01)

    assert market.rows["busy"] <= 2 * 400.0 / 21
    assert sum(market.rows[name] > 0 for name in small) >= 15, "a turn is some 24 rows"


@pytest.mark.parametrize("engines", [1, 2])
def test_units_that_were_answered_without_a_load_take_nothing_of_a_share(engines):
    """The first of each namespace, until it is known whose values it holds; the busy one's first are long."""
    shared = source(500.0)
    small = [f"n{number}" for number in range(20)]
    spaces = [namespace(name, source=shared) for name in ["busy", *small]]
    market = Undecided(*(Story(*spaces) for _ in range(engines)), first=3)
    for number in range(engines):
        keys = [b"busy:%d" % (1_000_000 + 1_000 * number + each) for each in range(600)]
        market.offer_now(keys, kind=Kind.MISS, engine=number)
        market.offer("busy", 200.0 / engines, 10.0, kind=Kind.MISS, engine=number)
        for name in small:
            market.offer(name, 30.0 / engines, 10.0, kind=Kind.TOUCH, engine=number)
    market.run(10.0)

    assert market.rows["busy"] >= 0.95 * 500.0 * 10.0 / 21


def test_key_of_a_quiet_namespace_does_not_wait_for_the_long_units_of_busy_ones():
    shared = source(500.0)
    busy = [f"b{number}" for number in range(5)]
    story = Story(*(namespace(name, source=shared) for name in ["quiet", *busy]))
    market = Market(story)
    for name in busy:
        market.offer(name, 300.0, 10.0, kind=Kind.MISS)
    market.offer("quiet", 5.0, 10.0, kind=Kind.MISS)
    market.run(10.0)

    assert market.rows["quiet"] >= 48
    assert market.waited["quiet"] <= 0.25
    assert sum(market.statements.values()) <= 25 * 10.0, "and they still go in long units"


def test_partitions_of_one_process_share_alike_and_none_starves_another():
    shared = source(500.0)
    small = [f"n{number}" for number in range(20)]
    spaces = [namespace(name, source=shared) for name in ["busy", *small]]
    market = Market(Story(spaces[0]), *(Story(*spaces[1:]) for _ in range(4)))
    market.offer("busy", 200.0, 20.0, kind=Kind.MISS)
    for at, name in enumerate(small):
        market.offer(name, 30.0, 20.0, kind=Kind.TOUCH, engine=1 + at % 4)
    market.run(20.0)

    fair = 500.0 * 20.0 / 21
    assert market.rows["busy"] >= 0.95 * fair
    assert sum(market.rows.values()) >= 0.98 * 500.0 * 19.9
    stirred = market.hinted + 5 * sum(market.statements.values())
    assert market.steps <= stirred + 5 * sum(market.statements.values()), "and nobody asks all the time"


def test_namespace_has_one_share_however_many_partitions_it_has():
    shared = source(500.0)
    spaces = [namespace(name, source=shared) for name in ("wide", "narrow")]
    market = Market(*(Story(*spaces) for _ in range(4)))
    for engine in range(4):
        market.offer("wide", 200.0, 20.0, kind=Kind.MISS, engine=engine)
    market.offer("narrow", 800.0, 20.0, kind=Kind.MISS)
    market.run(20.0)

    assert market.rows["narrow"] >= 0.95 * 5_000.0


def test_turn_of_an_engine_that_has_left_holds_up_nobody():
    shared = source(100.0)
    spaces = [namespace(name, source=shared) for name in "ab"]
    gone, left = Story(spaces[0]), Story(spaces[1])
    gone.miss(*(b"a:%d" % n for n in range(50)), at=0.0)
    assert gone.starts(0.0) == []
    left.miss(*(b"b:%d" % n for n in range(50)), at=0.0)
    assert left.starts(0.0) == []
    gone.engine.leave()

    assert [len(keys) for keys in left.starts(0.1)] == [10]


def test_a_step_looks_only_at_lanes_to_which_something_has_happened():
    """Thousands of namespaces that wait for their quota cost nothing while nothing happens to them."""
    shared = source(1e6)
    spaces = [namespace(f"n{number}", source=shared, quota=Looked(0.001, 1.0)) for number in range(300)]
    story = Story(*spaces)
    for each in spaces:
        story.miss(b"%s:1" % each.name.encode(), at=1.0)
    story.step(1.0)
    before = sum(each.quota.looks for each in spaces)
    story.miss(b"n7:2", at=2.0)
    story.step(2.0)

    assert sum(each.quota.looks for each in spaces) <= before + 3


@pytest.mark.parametrize("engines", [1, 3])
def test_namespaces_share_by_their_weights(engines):
    shared = source(700.0)
    spaces = [
        namespace(name, source=shared, weight=weight) for name, weight in (("a", 1), ("b", 2), ("c", 4))
    ]
    market = Market(*(Story(*spaces) for _ in range(engines)))
    for each in spaces:
        for engine in range(engines):
            market.offer(each.name, 700.0 / engines, 20.0, kind=Kind.MISS, engine=engine)
    market.run(20.0)

    total = sum(market.rows.values())
    assert total >= 0.98 * 700.0 * 19.0
    for each in spaces:
        assert market.rows[each.name] == pytest.approx(total * each.weight / 7, rel=0.05)


def test_heavy_namespace_that_wants_little_leaves_the_rest_to_others_by_their_weights():
    shared = source(500.0)
    spaces = [
        namespace(name, source=shared, weight=weight) for name, weight in (("a", 100), ("b", 1), ("c", 3))
    ]
    market = Market(Story(*spaces))
    market.offer("a", 100.0, 20.0, kind=Kind.MISS)
    market.offer("b", 500.0, 20.0, kind=Kind.MISS)
    market.offer("c", 500.0, 20.0, kind=Kind.MISS)
    market.run(20.0)

    assert market.rows["a"] >= 0.98 * 100.0 * 19.5
    assert market.rows["c"] == pytest.approx(3 * market.rows["b"], rel=0.05)
