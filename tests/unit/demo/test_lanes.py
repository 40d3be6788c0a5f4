"""The applications' code: ordinary cache-aside, and shoppers who are the same for all."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

from cacheupdater.demo import plan
from cacheupdater.demo.lanes import LANES, popular, product
from cacheupdater.demo.shop import Database, build


class Cache(dict):
    """As much of Redis as cache-aside needs; remembers each TTL."""

    def set(self, key, value, *, ex):
        self[key] = value
        self.ttl = ex


def test_only_the_first_reader_waits_for_the_database(tmp_path):
    build(tmp_path / "shop.db")
    cache, database = Cache(), Database(tmp_path / "shop.db")
    row = {"id": 7, "version": 1, "price": 700}
    assert product(cache, "ttl:product:7", database, 7) == (row, True)
    assert product(cache, "ttl:product:7", database, 7) == (row, False)
    assert cache.ttl == plan.TTL_S


def test_shoppers_with_the_same_seed_look_at_the_same_products():
    first, second, other = (list(islice(popular(Random(seed)), 3000)) for seed in (1, 1, 2))
    assert first == second != other


def test_some_products_are_popular_and_all_exist():
    seen = Counter(islice(popular(Random(1)), 20_000))
    assert set(seen) <= set(range(1, plan.PRODUCTS + 1))
    assert len(seen) > 0.9 * plan.PRODUCTS
    assert seen.most_common(1)[0][1] > 10 * 20_000 / plan.PRODUCTS


def test_applications_share_no_key():
    assert len({lane.key(7) for lane in LANES}) == len(LANES)
