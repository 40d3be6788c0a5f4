"""Which misses come so soon after a refresh that it has served them, and for how long the engine remembers it."""

from __future__ import annotations

from math import inf

from cacheupdater.core.recent_ends import RecentEnds

A, B, C = b"p:1", b"p:2", b"p:3"
GAP = 0.1


def test_miss_within_the_gap_is_soon_and_later_is_not():
    ends = RecentEnds(GAP)
    ends.put([A, B], 1.0, 1.05)

    assert ends.soon(A, 1.06)
    assert not ends.soon(C, 1.06)
    assert ends.soon(B, 1.0999)
    assert not ends.soon(B, 1.1)


def test_the_last_end_counts():
    ends = RecentEnds(GAP)
    ends.put([A], 1.0, 1.05)
    assert ends.soon(A, 1.06)
    ends.put([A], 1.07, 1.08)
    assert ends.soon(A, 1.15)
    ends.turn(1.15)
    ends.put([A], 1.14, 1.16)
    assert ends.soon(A, 1.23)


def test_turn_forgets_nothing_whose_gap_lasts():
    ends = RecentEnds(GAP)
    ends.put([A], 1.0, 1.0)
    assert ends.soon(A, 1.0)
    ends.put([B], 1.09, 1.09)
    assert ends.soon(B, 1.09)
    ends.put([C], 1.095, 1.095)  # nobody asks before the turn
    ends.turn(1.1)

    assert not ends.soon(A, 1.1)
    assert ends.soon(B, 1.18)
    assert ends.soon(C, 1.19)


def test_nothing_is_left_after_two_gaps_and_nobody_is_woken_then():
    ends = RecentEnds(GAP)
    ends.put([A], 1.0, 1.0)
    assert ends.soon(A, 1.05)
    ends.put([B], 1.05, 1.05)
    turns = []
    while ends.wake < inf:
        turns.append(ends.wake)
        ends.turn(ends.wake)

    assert turns == [1.1, 1.1 + GAP]
    assert len(ends) == 0


def test_what_ended_long_ago_is_not_even_noted():
    ends = RecentEnds(GAP)
    ends.put([A], 1.0, 2.0)

    assert ends.wake == inf
    assert not ends.soon(A, 1.05)


def test_a_batch_loses_every_key_whose_end_may_be_remembered():
    ends = RecentEnds(GAP)
    ends.put([A], 1.0, 1.05)
    assert ends.without([C, A, B], 1.06) == [C, B]
    ends.turn(1.16)
    ends.put([B], 1.14, 1.17)
    assert ends.without([A, B, C], 1.18) == [C], "both tables count"
