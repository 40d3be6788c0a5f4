"""A change that a feed told: what is read is loaded and stays readable meanwhile, anything else only loses its value."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source

A, B = b"p:1", b"p:2"


def test_a_key_that_is_read_is_loaded_and_its_value_stays_meanwhile():
    story = Story()
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.1)
    story.fed(A, at=1.0)
    work = story.step(1.0)

    assert [unit.keys for unit in work.units] == [[A]]
    assert work.invalidation is None
    assert story.count("fed", "refreshed") == 1


def test_a_key_that_nobody_reads_costs_no_row_and_its_pack_is_done_once_redis_has_removed_it():
    story = Story()
    story.fed(A, B, at=0.0)
    work = story.step(0.0)

    assert (work.units, work.invalidation.keys, story.done) == ([], [A, B], 0)
    assert story.count("fed", "removed") == 2
    story.removed(work.invalidation, 0.1)
    assert (story.done, story.engine.pending) == (1, 0)


def test_a_key_whose_hold_is_over_is_read_no_more():
    story = Story(namespace(every=5.0))
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.1)
    story.step(6.0)
    story.fed(A, at=7.0)
    assert story.step(7.0).invalidation.keys == [A]


def test_a_change_while_a_load_runs_is_loaded_again_for_that_load_may_have_read_the_old_row():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.fed(A, at=0.1)
    story.end(unit, 0.2)
    assert story.starts(0.3) == [[A]]


def test_a_change_that_an_older_hint_stands_for_is_done_only_with_that_hint():
    """A memory queue dies with its process, and the feed must not be confirmed before the key is refreshed."""
    story = Story(namespace(source=Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)))
    story.change(A, at=0.0)
    story.fed(A, at=0.1)
    story.step(0.2)
    assert (story.done, story.engine.cursor.finished()) == (0, [])
    story.end(story.start(1.0), 1.1)
    assert story.done == 2


@pytest.mark.parametrize("read", [Story.touch, Story.miss])
@pytest.mark.parametrize("runs", [False, True])
def test_a_read_that_a_fed_change_stands_for_is_done_only_with_that_change(read, runs):
    """Whoever reads the change again after a crash knows no reader of the key, and only removes the value."""
    story = Story()
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.1)
    story.fed(A, at=1.0)
    unit = story.start(1.0) if runs else None
    read(story, A, at=1.1)
    assert (story.done, story.engine.cursor.finished()) == (1, [])
    story.end(unit or story.start(2.0), 2.1)
    assert story.done == 3


def test_a_read_that_merges_into_the_tail_of_a_fed_change_is_done_only_with_it():
    story = Story(namespace(every=0.5))
    story.touch(A, at=0.0)
    first = story.start(0.0)
    story.fed(A, at=0.1)
    story.touch(A, at=1.0)  # its hold is over while the load still runs
    story.end(first, 1.1)
    assert (story.done, story.engine.cursor.finished()) == (1, [])
    story.end(story.start(2.0), 2.1)
    assert story.done == 3


def test_reads_of_other_keys_and_reads_after_the_load_lean_on_no_fed_change():
    """A pack that leans is reported late, and lies in a memory queue until then."""
    story = Story()
    story.touch(A, B, at=0.0)
    story.end(story.start(0.0), 0.1)
    story.fed(A, at=1.0)
    story.touch(B, at=1.1)
    assert 2 in story.engine.cursor.finished()
    story.end(story.start(1.2), 1.3)
    story.fed(B, at=2.0)
    story.touch(A, at=2.1)
    assert 4 in story.engine.cursor.finished()


def test_what_is_known_of_fed_changes_follows_what_is_loaded():
    story = Story(namespace(source=Source("db", plenty(), concurrency=10)))
    for number in range(3_000):
        key, at = b"p:%d" % number, float(number)
        story.touch(key, at=at)
        story.end(story.start(at), at + 0.1)
        story.fed(key, at=at + 0.2)
        story.end(story.start(at + 0.2), at + 0.3)
    assert len(story.engine._fed._loaded) <= 1_025


def test_keys_of_nobody_are_left_alone():
    story = Story()
    story.fed(b"p:cart", b"q:1", A, at=0.0)
    assert story.step(0.0).invalidation.keys == [A]
    assert story.count("dropped", "unknown") == 2


def test_announced_changes_are_loaded_as_before():
    story = Story()
    story.change(A, at=0.0)
    assert story.starts(0.0) == [[A]]


def test_plenty_is_no_reason_to_load_what_nobody_reads():
    story = Story(namespace(source=Source("db", plenty(), concurrency=10)))
    story.fed(A, at=0.0)
    assert story.step(0.0).units == []
