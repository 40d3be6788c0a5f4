"""The applications' code: ordinary cache-aside, the same for all."""

from __future__ import annotations

from cacheupdater.demo.lanes import LANES, product
from cacheupdater.demo.shop import Database, build


class Cache(dict):
    """As much of Redis as cache-aside needs; remembers each TTL."""

    def set(self, key, value, *, px):
        self[key] = value
        self.ttl = px


def test_only_the_first_reader_waits_for_the_database(tmp_path):
    build(tmp_path / "shop.db")
    cache, database = Cache(), Database(tmp_path / "shop.db")
    row = {"id": 7, "version": 1, "price": 700}
    assert product(cache, "ttl:product:7", database, number=7, ttl=2.5) == (row, True)
    assert product(cache, "ttl:product:7", database, number=7, ttl=2.5) == (row, False)
    assert cache.ttl == 2500


def test_applications_share_no_key():
    assert len({lane.key(7) for lane in LANES}) == len(LANES)
