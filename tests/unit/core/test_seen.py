"""Which keys have a row, as far as a partition knows, and how long it remembers that."""

from __future__ import annotations

from stories.engine import Story

from cacheupdater.core.seen import GENERATION_S, Seen

A, B, C = b"p:1", b"p:2", b"p:3"


def test_keys_whose_rows_were_found_are_told_from_the_others_in_their_order():
    seen = Seen(10)
    seen.put([A, C], 0.0)
    assert seen.split([C, B, A]) == ([C, A], [B])
    assert seen.split([B]) == ([], [B])


def test_a_row_that_does_not_exist_any_more_makes_its_key_unseen():
    seen = Seen(2)
    seen.put([A], 0.0)
    seen.put([B], 0.0)
    seen.forget([A, B])
    assert A not in seen
    assert B not in seen


def test_no_more_keys_are_remembered_than_the_bound_and_the_last_half_always_is():
    seen = Seen(100)
    for number in range(1_000):
        seen.put([b"p:%d" % number], float(number))
        assert len(seen) <= 100
        assert all(b"p:%d" % each in seen for each in range(max(0, number - 49), number + 1))
    assert b"p:800" not in seen


def test_a_key_that_is_loaded_again_stays():
    seen = Seen(100)
    for number in range(1_000):
        seen.put([b"p:%d" % number, *([A] if number % 40 == 0 else [])], float(number))
        assert A in seen


def test_a_rush_of_new_rows_pushes_out_no_more_than_one_generation_a_second():
    seen = Seen(100)
    for number in range(50):
        seen.put([b"before:%d" % number], 0.0)
    for number in range(10_000):
        seen.put([b"rush:%d" % number], 1.0)
        assert all(b"before:%d" % each in seen for each in range(50))
    assert len(seen) <= 100
    assert b"rush:49" in seen
    assert b"rush:9999" not in seen

    seen.put([A], 1.0 + GENERATION_S)
    assert A in seen
    assert b"before:0" not in seen


def test_an_engine_learns_of_rows_from_its_loads_and_from_readers():
    story = Story()
    seen = story.engine._dedup.seen
    story.miss(A, at=0.0)
    story.end(story.start(0.0), 0.1, absent=True)
    story.touch(B, at=0.0)
    story.refresh(0.1)
    story.fill(C, at=0.2, began=0.1)
    assert (A in seen, B in seen, C in seen) == (False, True, True)
    story.change(B, at=1.0)
    story.end(story.start(1.0), 1.1, absent=True)
    assert B not in seen
