"""`fixed`: a least interval per key, whatever the key."""

from __future__ import annotations

from stories.engine import namespace

from cacheupdater.core.policy import Fixed


def test_fixed_holds_for_what_the_namespace_says():
    assert Fixed().hold(namespace(every=2.5)) == 2.5


def test_fixed_loads_whatever_is_touched():
    keys = [b"p:1", b"p:2"]

    assert Fixed().on_hints(keys, (), 0.0) == keys


def test_fixed_asks_for_nothing_by_itself_and_learns_nothing():
    assert list(Fixed().tick(0.0)) == []
    assert not Fixed().learns
