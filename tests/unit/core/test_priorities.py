"""High comes before normal, and normal before low; a lower priority gets its least share all the same."""

from __future__ import annotations

from collections import defaultdict
from statistics import quantiles

import pytest
from stories.engine import Story, namespace
from stories.market import Market

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.priorities import LEAST_SHARE, Priority

HIGH, NORMAL, LOW = Priority


def source(rate: float, *, concurrency: int = 5) -> Source:
    return Source("db", Bucket(rate, rate, now=0.0), concurrency=concurrency)


def market_of(shared: Source, *priorities: Priority, engines: int = 1) -> Market:
    """A namespace of each priority, by its name in small letters, in every engine."""
    spaces = [namespace(each.name.lower(), source=shared, priority=each) for each in priorities]
    return Market(*(Story(*spaces) for _ in range(engines)))


def offer(market: Market, rates: dict[str, float], seconds: float, *, kind: Kind = Kind.MISS) -> None:
    for name, rate in rates.items():
        for engine in range(len(market.engines)):
            market.offer(name, rate / len(market.engines), seconds, kind=kind, engine=engine)


@pytest.mark.parametrize("engines", [pytest.param(1, marks=pytest.mark.prove), 4])
def test_with_capacity_for_half_of_the_offer_high_is_whole_and_low_has_its_least_share(engines):
    market = market_of(source(600.0), HIGH, NORMAL, LOW, engines=engines)
    offer(market, {"high": 400.0, "normal": 400.0, "low": 400.0}, 30.0)
    market.run(30.0)

    total = sum(market.rows.values())
    assert total >= 0.97 * 600.0 * 29.0
    assert market.rows["high"] >= 0.97 * 400.0 * 29.0
    assert market.rows["low"] == pytest.approx(LEAST_SHARE[LOW] * total, rel=0.1)


class Waits(Market):
    """How long each loaded key has waited, by its priority and the kind of its hint."""

    def __init__(self, *engines: Story) -> None:
        super().__init__(*engines)
        self.by_kind: dict[tuple[str, Kind], list[float]] = defaultdict(list)
        self._kinds: dict[bytes, Kind] = {}

    def _hint(self, keys, kind, engine, now):
        self._kinds.update(dict.fromkeys(keys, kind))
        super()._hint(keys, kind, engine, now)

    def takes(self, unit, now):
        for key in unit.keys:
            self.by_kind[unit.namespace.name, self._kinds[key]].append(now - self._since[key])
        return super().takes(unit, now)


@pytest.mark.parametrize("engines", [1, pytest.param(4, marks=pytest.mark.prove)])
def test_inside_a_priority_misses_come_before_changes_and_changes_before_touches(engines, record_property):
    rate, seconds = 600.0, 60.0
    offered = {"high": 80.0, "normal": 240.0, "low": 80.0}  # of each kind: twice the rate in all
    market = Waits(*market_of(source(rate), HIGH, NORMAL, LOW, engines=engines).engines)
    for kind in Kind:
        offer(market, offered, seconds, kind=kind)
    market.run(seconds)

    served = {(name, kind): market.by_kind[name, kind] for name in offered for kind in Kind}
    part = {found: len(waits) / (seconds * offered[found[0]]) for found, waits in served.items()}
    late = {found: quantiles(waits, n=100)[98] for found, waits in served.items() if len(waits) > 100}
    for (name, kind), p99 in late.items():
        record_property(
            f"figure: half of the offer can be paid, {engines} partitions, {name} {kind.name.lower()}",
            f"{part[name, kind]:.0%} loaded, p99 {1000 * p99:.0f} ms",
        )
    assert all(part["high", kind] >= 0.99 and late["high", kind] <= 0.25 for kind in Kind)
    assert part["normal", Kind.MISS] >= 0.99
    assert 0.3 <= part["normal", Kind.CHANGE] < 0.5, "what misses leave"
    assert part["normal", Kind.TOUCH] <= 0.01
    # a backlog that is full gives up misses before changes, so some changes of low come to the front
    assert part["low", Kind.MISS] > 2.0 * part["low", Kind.CHANGE] > part["low", Kind.TOUCH] == 0.0
    low = offered["low"] * sum(part["low", kind] for kind in Kind)
    assert low == pytest.approx(LEAST_SHARE[LOW] * rate, rel=0.1)


@pytest.mark.parametrize("engines", [1, pytest.param(4, marks=pytest.mark.prove)])
def test_high_that_wants_everything_leaves_the_least_shares(engines):
    market = market_of(source(600.0), HIGH, NORMAL, LOW, engines=engines)
    offer(market, {"high": 900.0, "normal": 400.0, "low": 400.0}, 30.0)
    market.run(30.0)

    total = sum(market.rows.values())
    for each in (NORMAL, LOW):
        assert market.rows[each.name.lower()] == pytest.approx(LEAST_SHARE[each] * total, rel=0.1)


def test_low_gets_everything_that_the_others_leave():
    market = market_of(source(600.0), HIGH, NORMAL, LOW)
    offer(market, {"high": 100.0, "low": 900.0}, 20.0)
    market.run(20.0)

    assert market.rows["high"] >= 0.97 * 100.0 * 19.5
    assert market.rows["low"] >= 0.97 * 500.0 * 19.0


def test_high_key_waits_for_no_long_unit_of_low():
    market = market_of(source(500.0), HIGH, LOW)
    offer(market, {"high": 5.0, "low": 2000.0}, 20.0)
    market.run(20.0)

    assert market.rows["high"] >= 95
    assert market.waited["high"] <= 0.25


def test_priority_that_was_away_has_saved_up_nothing():
    """Low comes after a minute in which only high was busy."""
    shared = source(600.0)
    market = market_of(shared, HIGH, LOW)
    offer(market, {"high": 900.0}, 70.0)
    market.offer("low", 500.0, 10.0, kind=Kind.MISS, since=60.0)
    market.run(60.0)
    before = market.rows["high"]
    market.run(70.0)

    high = market.rows["high"] - before
    assert market.rows["low"] == pytest.approx(LEAST_SHARE[LOW] * (high + market.rows["low"]), rel=0.2)


def test_one_high_namespace_comes_before_a_thousand_of_normal():
    shared = source(500.0)
    many = [namespace(f"n{number}", source=shared) for number in range(1_000)]
    market = Market(Story(namespace("high", source=shared, priority=HIGH), *many))
    market.offer("high", 200.0, 10.0, kind=Kind.MISS)
    for each in many:
        market.offer(each.name, 2.0, 10.0, kind=Kind.MISS)
    market.run(10.0)

    assert market.rows["high"] >= 0.95 * 200.0 * 9.5
    assert sum(market.rows.values()) >= 0.95 * 500.0 * 9.5
