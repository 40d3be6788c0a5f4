"""Which packs a queue may forget while an older one is still open: those whose loss would lose no hint."""

from __future__ import annotations

from stories.engine import Story

from cacheupdater.core.answers import Result

A, B = b"p:1", b"p:2"


def test_packs_of_a_healthy_neighbour_are_finished_while_a_key_is_stuck():
    story = Story()
    story.change(A, at=0.0)
    stuck = story.start(0.0)
    story.touch(B, at=0.1)
    story.touch(A, B, at=0.1)
    assert story.engine.cursor.finished() == [2]
    story.end(story.start(0.1), 0.2)

    assert story.engine.cursor.finished() == [1]
    assert story.done == 0
    story.end(stuck, 0.3)
    assert story.done == 3


def test_a_change_that_merges_into_an_older_touch_is_kept_with_it():
    """Another owner would else read a touch only, and may drop it without removing the old value."""
    story = Story()
    story.touch(A, at=0.0)
    story.change(A, at=0.1)
    story.change(A, at=0.2)
    story.miss(A, at=0.3)

    assert story.engine.cursor.finished() == [2, 3]


def test_a_change_that_a_waiting_touch_covers_is_kept_with_it():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.touch(A, at=6.0)
    story.change(A, at=6.1)
    assert story.engine.cursor.finished() == []
    story.end(unit, 6.2, Result.REFUSED)

    assert story.engine.cursor.finished() == []


def test_a_change_that_waited_behind_a_failed_touch_is_kept_with_it():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.fail(unit, 0.2, own=False)

    assert story.engine.cursor.finished() == []


def test_a_miss_that_a_running_touch_serves_is_kept_with_it():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.miss(A, at=0.1)
    story.touch(A, at=0.1)
    assert story.engine.cursor.finished() == [2]
    story.end(unit, 0.2)

    assert story.done == 3


def test_a_change_that_goes_into_quarantine_with_an_older_touch_is_kept_with_it():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, Result.FAILED)

    assert story.engine.cursor.finished() == []
    story.removed(story.step(0.2).invalidation, 0.3)
    assert story.done == 2
