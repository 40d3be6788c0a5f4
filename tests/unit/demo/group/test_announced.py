"""Only an updater's value that is new enough serves an announced change."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from cacheupdater.demo.group.announced import Announced
from cacheupdater.demo.group.books import QUIET, TOLD
from cacheupdater.demo.shop import Change, build


class Cache(dict):
    """As much of Redis as is looked at."""

    def mget(self, keys):
        return [self.get(key) for key in keys]

    def put(self, page, product, version, **more):
        self[page.key(product)] = json.dumps({"id": product, "version": version, **more})

    def close(self):
        """There is nothing to close."""


@pytest.fixture
def cache():
    return Cache()


@pytest.fixture
def announced(tmp_path, cache):
    build(tmp_path / "shop.db")
    with closing(Announced("redis://127.0.0.1:1", tmp_path / "shop.db")) as announced:
        announced._cache.close()
        announced._cache = cache
        for version, committed in ((2, 10.0), (3, 11.0)):
            announced.offer(Change(7, version, committed, committed))
        yield announced


@pytest.mark.parametrize(
    ("put", "lost"),
    [
        ({}, 2),
        ({"version": 1, "by": "updater"}, 2),
        ({"version": 2, "by": "updater"}, 1),
        ({"version": 3, "by": "updater"}, 0),
        ({"version": 3}, 2),
    ],
    ids=["nothing there", "too old", "between both", "new enough", "put there by a reader"],
)
def test_a_change_is_lost_until_an_updater_has_loaded_it(announced, cache, put, lost):
    if put:
        cache.put(TOLD, 7, **put)
    announced.look(12.5)
    assert (announced.total, announced.lost) == (2, lost)
    assert announced.delays == [2.5, 1.5][: 2 - lost]


def test_a_change_of_the_other_page_is_none_of_this_one(announced, cache):
    cache.put(QUIET, 7, 3, by="updater")
    announced.look(12.5)
    assert announced.lost == 2


def test_a_value_that_was_seen_once_serves_although_it_is_gone_later(announced, cache):
    cache.put(TOLD, 7, 3, by="updater")
    announced.look(12.5)
    cache.clear()
    announced.look(13.0)
    assert (announced.lost, len(announced.delays)) == (0, 2)


def test_values_of_both_pages_are_held_against_the_database_and_absent_ones_are_not_stale(announced, cache):
    assert announced.stale() == 0
    cache.put(QUIET, 7, 1, by="updater")
    cache.put(TOLD, 7, 1)
    assert announced.stale() == 0
    cache.put(QUIET, 8, 0, by="updater")
    cache.put(TOLD, 9, 2)
    assert announced.stale() == 2
