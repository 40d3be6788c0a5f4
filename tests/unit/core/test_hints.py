"""A pack counts its reads: as somebody has added them up already, or anew once keys have left it."""

from __future__ import annotations

from cacheupdater.core.hints import Hints, Kind

KEYS = [b"p:1", b"p:2", b"p:3"]


def test_reads_are_the_sum_of_the_counts_or_the_keys_where_nothing_is_counted():
    assert Hints(0, Kind.TOUCH, KEYS, (2, 3, 4)).reads == 9
    assert Hints(0, Kind.TOUCH, KEYS, ()).reads == 3


def test_a_sum_that_is_known_already_is_not_added_up_again():
    class Once(list):
        def __iter__(self):
            raise AssertionError("added up")

    assert Hints(0, Kind.TOUCH, KEYS, Once((2, 3, 4)), counted=9).reads == 9


def test_a_pack_that_keys_have_left_adds_up_anew():
    left, gone = Hints(0, Kind.TOUCH, KEYS, (2, 3, 4), counted=9).without({b"p:2"})
    assert (left.reads, gone) == (6, 3)
    left, gone = Hints(0, Kind.TOUCH, KEYS, ()).without({b"p:2"})
    assert (left.reads, gone) == (2, 1)


def test_what_leaves_takes_its_token_along():
    left, _ = Hints(0, Kind.TOUCH, KEYS, (), tokens=(10, 20, 30)).without({b"p:2"})
    assert (list(left.keys), list(left.tokens)) == ([b"p:1", b"p:3"], [10, 30])
