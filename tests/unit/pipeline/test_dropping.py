"""What a person is told when hints are dropped because more is asked than can be loaded."""

from __future__ import annotations

import logging

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.events import of_quota
from cacheupdater.core.namespace import Namespace
from cacheupdater.pipeline.dropping import AFTER_S, NAMES_MOST, Dropping
from cacheupdater.pipeline.looking import WINDOW_S
from cacheupdater.pipeline.notices import QUIET_S, Notices
from cacheupdater_client.protocol.patterns import Pattern

SHOP, DESK = (Source(name, Bucket(100.0, 100.0, now=0.0), concurrency=1) for name in ("shop", "desk"))


def namespaces(source, *names):
    return [Namespace(name, Pattern.compile(name + ":{id:int}"), source) for name in names]


class Process:
    def __init__(self, *spaces):
        self.now = 0.0
        self.notices = Notices(lambda: self.now)
        self.dropping = Dropping(self.notices)
        self.spaces = spaces

    def live(self, seconds, *dropped):
        for _ in range(int(seconds)):
            for each in dropped:
                self.dropping.counted(*each)
            self.now += 1.0
            self.dropping.tick(self.now, self.spaces)
            self.notices.tick()

    @property
    def told(self):
        return {each.subject: each.text for each in self.notices.standing() if each.event == "dropped"}


def test_it_is_said_at_once_and_until_a_minute_without_a_drop(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    process = Process(*namespaces(SHOP, "product"))
    process.live(10, ("product", "backlog", 40))
    assert process.told == {
        "shop": "hints of product are dropped (backlog):"
        " the budget of source shop, or a quota, does not pay for all that is asked"
    }
    process.live(WINDOW_S - 1)
    assert process.told
    process.live(1 + QUIET_S)
    assert not process.told
    assert len(caplog.messages) == 2
    assert "10 times, 400 keys dropped" in caplog.messages[1]


def test_all_namespaces_that_lost_hints_within_a_minute_are_named_those_that_lost_most_first():
    process = Process(*namespaces(SHOP, "product", "price", "stock"))
    process.live(1, ("stock", "aged", 1), ("product", "backlog", 7))
    process.live(30)
    process.live(1, ("price", "aged", 3))
    assert process.told["shop"].startswith("hints of product, price, stock are dropped (aged, backlog):")
    process.live(WINDOW_S - 31)
    process.live(1, ("price", "aged", 3))
    assert process.told["shop"].startswith("hints of price are dropped (aged):")


def test_where_all_connections_are_busy_and_the_budget_is_not_used_up_the_loads_take_too_long():
    """Who raises the budget of a slow database makes it slower."""
    source = Source("slow", Bucket(10.0, 100.0, now=0.0), concurrency=2)
    [product] = namespaces(source, "product")
    process = Process(product)
    source.slots.take(product)
    process.live(10)
    process.live(1, ("product", "aged", 40))
    assert "does not pay for all that is asked" in process.told["slow"], "a connection is free"
    source.slots.take(product)
    process.live(1, ("product", "aged", 40))
    assert process.told["slow"].endswith(
        "the loads of source slow take too long for its 2 connections, and its budget is not used up"
    )
    source.bucket.take(80.0)
    process.live(1, ("product", "aged", 40))
    assert "does not pay for all that is asked" in process.told["slow"]


SHORT_OF_CONNECTIONS = "take too long for its 4 connections"


def full_source(**quota):
    """A source whose budget is not used up, and two namespaces: `slow` waits for connections."""
    source = Source("shop", Bucket(10.0, 100.0, now=0.0), concurrency=4)
    pattern = Pattern.compile("slow:{id:int}")
    slow, quick = Namespace("slow", pattern, source, **quota), *namespaces(source, "quick")
    for namespace, seconds in ((quick, 0.01), (slow, 2.0)):
        source.slots.take(namespace)
        source.slots.measured(namespace, seconds, 1.0)
    source.slots.window = 4.0
    return source, slow, quick


def test_a_slow_namespace_that_may_have_half_of_the_connections_is_told_of_them():
    source, slow, quick = full_source()
    source.slots.take(slow)
    assert source.slots.free == 1
    process = Process(slow, quick)
    process.live(10)
    process.live(1, ("slow", "aged", 40))
    assert SHORT_OF_CONNECTIONS in process.told["shop"]


def test_a_namespace_whose_quota_is_used_up_is_told_of_the_quota_though_all_connections_are_busy():
    source, slow, quick = full_source(quota=Bucket(1.0, 100.0, now=0.0))
    source.slots.take(slow)
    source.slots.take(quick)
    assert source.slots.free == 0
    process = Process(slow, quick)
    process.live(10)
    process.live(1, ("slow", "aged", 40))
    assert "a quota, does not pay for all that is asked" in process.told["shop"]


def test_a_source_is_one_line_however_many_namespaces_it_has():
    names = [f"n{number}" for number in range(NAMES_MOST + 3)]
    process = Process(*namespaces(SHOP, *names), *namespaces(DESK, "note"))
    process.live(1, ("note", "aged", 1), *((name, "aged", at + 1) for at, name in enumerate(names)))
    assert set(process.told) == {"shop", "desk"}
    assert process.told["shop"].startswith("hints of n7, n6, n5, n4, n3 and 3 more are dropped")


@pytest.mark.parametrize(
    "cause",
    [
        ("load_failed", "shop"),
        ("fleet_down", "shop"),
        ("fleet_down", of_quota("product")),
        ("load_refused", "product"),
        ("unexpected", "product"),
        ("absent", "product"),
        ("redis_down", ""),
    ],
)
def test_what_is_dropped_because_something_fails_has_no_line_beside_that(cause):
    process = Process(*namespaces(SHOP, "product"))
    process.notices.trouble(*cause, "it fails")
    process.live(3, ("product", "aged", 40))
    assert not process.told


def test_keys_that_an_outage_has_kept_waiting_are_no_sign_of_the_budget():
    process = Process(*namespaces(SHOP, "product"))
    process.notices.trouble("load_failed", "shop", "it does not answer")
    process.live(20)
    process.notices.over("load_failed", "shop")
    process.live(AFTER_S, ("product", "aged", 40))
    assert not process.told
    process.live(1, ("product", "aged", 40))
    assert process.told


def test_a_trouble_of_another_namespace_or_source_hides_nothing():
    process = Process(*namespaces(SHOP, "product"))
    process.notices.trouble("load_failed", "product", "a source with the name of our namespace")
    process.notices.trouble("load_refused", "shop", "a namespace with the name of our source")
    process.live(1, ("product", "aged", 40))
    assert process.told


def test_a_namespace_that_a_reload_has_removed_is_not_named():
    process = Process(*namespaces(SHOP, "product"))
    process.live(1, ("gone", "aged", 40))
    assert not process.told
