"""The demonstration's shop in virtual time, under the shipped engine and policies: whatever the budget, `price` is the freshest."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from cacheupdater.core.answers import UNCHANGED, WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.outcomes import Load
from cacheupdater.core.policy import Fixed
from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import Catalogue, interval
from cacheupdater.price import Market, Price
from cacheupdater_client.protocol.patterns import Pattern

SEEDS = range(1, 4)
PART_S = plan.SHORTEST_TO_COMPARE_S
PATTERN = Pattern.compile("product:{id:int}")
LOAD_S = 0.002
PER_STEP = round(plan.READS_PER_S * plan.BATCH_S)


class Lane:
    """One application: the prices in its cache, and the rows that they have cost. `read` counts the reads that got an old price."""

    def __init__(self):
        self.cached, self.rows = {}, 0

    def stale(self, products, prices):
        return sum(self.cached[each] != prices[each] for each in products)


class Blocking(Lane):
    """Cache-aside with a TTL."""

    def __init__(self):
        super().__init__()
        self._expires = {}

    def spend(self, budget, now):
        self._ttl = interval(budget)

    def read(self, products, prices, now):
        for product in products:
            if now >= self._expires.get(product, 0.0):
                self.cached[product], self.rows = prices[product], self.rows + 1
                self._expires[product] = now + self._ttl
        return self.stale(products, prices)


class Served(Lane):
    """An engine refreshes what is read. Loads take no time."""

    def __init__(self, *, learns, seed):
        super().__init__()
        self._bucket = Bucket(plan.BUDGET, plan.BUDGET * plan.BURST_S, now=0.0)
        source, limits, random = Source("shop", self._bucket, concurrency=2), Limits(), Random(seed).random
        namespace = Namespace(
            "product", PATTERN, source, every=interval(plan.BUDGET), terms=Terms() if learns else None
        )
        keyspace, policy = Keyspace([(PATTERN, namespace)]), Fixed()
        if learns:
            market = Market(source, [namespace], random=random, now=0.0)
            policy = Price(keyspace, [namespace], {source: market}, limits=limits, now=0.0)
        self._engine, self._packs = Engine(keyspace, policy, limits=limits, random=random, offset=0), 0

    def spend(self, budget, now):
        self._bucket.change(budget, budget * plan.BURST_S, now=now)

    def read(self, products, prices, now):
        stale = self.stale(products, prices)
        keys = [b"product:%d" % each for each in dict.fromkeys(products)]
        counts = [products.count(each) for each in dict.fromkeys(products)]
        self._engine.on_hints([Hints(self._packs, Kind.TOUCH, keys, counts)], now)
        self._packs += 1
        while units := self._engine.step(now).units:
            for unit in units:
                self._load(unit, prices, now)
        return stale

    def _load(self, unit, prices, now):
        loaded = {product: prices[product] for (product,) in unit.captures}
        answers = [UNCHANGED if self.cached.get(each) == new else WRITTEN for each, new in loaded.items()]
        self.cached |= loaded
        self.rows += len(loaded)
        self._engine.on_answers(unit, answers, now, load=Load(LOAD_S))


class Day:
    """Shoppers and the back office, as the demonstration has them; all lanes see the same."""

    def __init__(self, seed):
        self._random, self._catalogue, self._now = Random(seed), Catalogue(seed), 0.0
        self._shoppers, self._changes_at = self._catalogue.shoppers(), 0.0
        self._prices = dict.fromkeys(self._catalogue.products, 0)
        self.ttl, self.fixed, self.price = (
            Blocking(),
            Served(learns=False, seed=seed),
            Served(learns=True, seed=seed),
        )
        self.lanes = (self.ttl, self.fixed, self.price)
        for lane in self.lanes:
            lane.cached |= self._prices
        self.spend(plan.BUDGET)

    def spend(self, budget):
        for lane in self.lanes:
            lane.spend(budget, self._now)

    def stale(self, seconds):
        """The share of stale reads of each lane in these seconds."""
        stale, reads = dict.fromkeys(self.lanes, 0), 0
        for _ in range(round(seconds / plan.BATCH_S)):
            self._now += plan.BATCH_S
            self._change()
            products = list(islice(self._shoppers, PER_STEP))
            reads += len(products)
            for lane in self.lanes:
                stale[lane] += lane.read(products, self._prices, self._now)
        return {lane: many / reads for lane, many in stale.items()}

    def _change(self):
        while self._changes_at <= self._now:
            self._prices[self._catalogue.changing(self._random, hot=True)] += 1
            self._changes_at += self._random.expovariate(plan.CHANGES_PER_S)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(0, id="as_it_begins"),
        pytest.param(2, id="plus_twice"),
        pytest.param(-2, id="minus_twice", marks=pytest.mark.prove),
    ],
)
def test_price_wins_at_the_budget_that_the_keys_have_chosen_and_spends_that_budget(steps):
    """A key is pressed once the policy has learned at the budget before. One day's luck decides nothing: all days count together."""
    budget = plan.BUDGETS[plan.BUDGETS.index(plan.BUDGET) + steps]
    ttl = fixed = price = rows = 0.0
    for day in map(Day, SEEDS):
        day.stale(plan.WARM_UP_S)
        day.spend(budget)
        before = day.price.rows
        seen = day.stale(PART_S)
        ttl, fixed, price = ttl + seen[day.ttl], fixed + seen[day.fixed], price + seen[day.price]
        rows += (day.price.rows - before) / PART_S
    assert price < 0.95 * min(ttl, fixed)
    assert rows / len(SEEDS) == pytest.approx(budget, rel=0.1)
