"""What is dropped is counted, and a dropped or quarantined change leaves Redis before it is done."""

from __future__ import annotations

from engine_story import Story, namespace

from cacheupdater.core.answers import Result
from cacheupdater.core.removals import REFUSALS_MAX

A, B, C = b"p:1", b"p:2", b"p:3"


def test_dropped_change_leaves_redis_and_is_finished_when_redis_says_so():
    story = Story(namespace(max_backlog=1))
    story.change(A, at=0.0)
    story.change(B, at=0.0)
    work = story.step(0.0)
    assert work.invalidation.keys == [A]
    assert story.engine.pending == 2
    story.end(work.units[0], 0.1)
    assert story.done == 0

    story.engine.on_invalidated(work.invalidation, done=False)
    again = story.step(0.2).invalidation
    assert again.keys == [A]
    story.engine.on_invalidated(again, done=True)
    assert story.done == 2


def test_dropped_touch_is_counted_and_finished():
    story = Story(namespace(max_backlog=1))
    story.touch(A, at=0.0)
    story.touch(B, at=0.0)
    work = story.step(0.0)

    assert work.invalidation is None
    assert story.count("dropped", "backlog") == 1
    story.end(work.units[0], 0.1)
    assert story.done == 2


def test_change_of_a_quarantined_key_leaves_redis():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.0, Result.FAILED)
    story.change(A, at=1.0)

    assert story.step(1.0).invalidation.keys == [A]


def test_quarantined_change_takes_its_tail_along():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, Result.FAILED)
    invalidation = story.step(0.2).invalidation

    assert invalidation.keys == [A]
    assert story.done == 0
    story.engine.on_invalidated(invalidation, done=True)
    assert story.done == 2
    assert story.engine.pending == 0


def test_a_key_that_redis_refuses_goes_apart_and_is_given_up_at_last():
    story = Story(max_attempts=1)
    keys = [b"p:%d" % n for n in range(8)]
    story.touch(*keys, at=0.0)
    for unit in story.step(0.0).units:
        story.end(unit, 0.0, Result.FAILED)
    story.change(*keys, at=1.0)
    given_up = story.count("dropped", "quarantined")
    removed, asked = [], 0
    while (invalidation := story.step(1.0).invalidation) is not None:
        asked += 1
        if keys[3] in invalidation.keys:
            story.engine.on_refused(invalidation)
        else:
            removed += invalidation.keys
            story.engine.on_invalidated(invalidation, done=True)

    assert sorted(removed) == sorted(set(keys) - {keys[3]})
    assert asked == 2 * 3 + REFUSALS_MAX  # it is halved three times
    assert story.count("dropped", "quarantined") == given_up + 1
    assert (story.done, story.engine.pending) == (2, 0)


def test_what_was_merely_read_stays_in_redis_when_its_refresh_is_refused_for_too_long():
    """The floors of a Redis whose clock has stepped back lie ahead for as long as the step was."""
    for hint, removed in ((Story.touch, []), (Story.miss, []), (Story.change, [A])):
        story = Story()
        hint(story, A, at=0.0)
        story.end(story.start(0.0), 0.0, Result.REFUSED, wait=40.0)
        invalidation = story.step(31.0).invalidation

        assert story.count("dropped", "aged") == 1
        assert (invalidation.keys if invalidation else []) == removed
