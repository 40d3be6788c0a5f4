"""Drops are counted, and the value of a dropped or quarantined change leaves Redis before the change is done."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.removals import AGAIN, REFUSALS_MAX

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

    story.engine.on_invalidated(work.invalidation, (), 0.1)
    assert story.step(0.1 + AGAIN / 2).wake == 0.1 + AGAIN
    again = story.step(0.1 + AGAIN).invalidation
    assert again.keys == [A]
    story.removed(again, 1.0)
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
    story.removed(invalidation, 0.3)
    assert story.done == 2
    assert story.engine.pending == 0


def changes_in_quarantine(*keys: bytes) -> Story:
    """At 1.0 s."""
    story = Story(max_attempts=1)
    story.touch(*keys, at=0.0)
    for unit in story.step(0.0).units:
        story.end(unit, 0.0, Result.FAILED)
    story.change(*keys, at=1.0)
    story.count("dropped", "")
    return story


def test_a_key_that_redis_refuses_is_given_up_at_last_and_its_neighbours_are_finished_at_once():
    story = changes_in_quarantine(A, B, C)
    asked, given_up, now = [], [], 1.0
    while (work := story.step(now)).invalidation is not None:
        asked.append(work.invalidation.keys)
        given_up += story.removed(work.invalidation, now, refused=[B])
        now = story.step(now).wake if story.engine.pending else now

    assert asked == [[A, B, C], *[[B]] * (REFUSALS_MAX - 1)]
    assert now == 1.0 + (REFUSALS_MAX - 1) * AGAIN
    assert given_up == [B]
    assert story.count("dropped", "removal_refused") == 1
    assert (story.done, story.engine.pending) == (2, 0)


def test_a_key_whose_refusals_take_long_is_given_up_after_thirty_seconds_of_them():
    story = changes_in_quarantine(A)
    first = story.step(1.0).invalidation
    assert story.removed(first, 16.0, refused=[A]) == []
    second = story.step(16.0 + AGAIN).invalidation

    assert story.removed(second, 31.0, refused=[A]) == [A]
    assert story.engine.pending == 0


def test_outages_between_refusals_do_not_count():
    story, now = changes_in_quarantine(A), 1.0
    for _ in range(REFUSALS_MAX - 1):
        assert story.removed(story.step(now).invalidation, now, refused=[A]) == []
        now += AGAIN
        for answers in ((), [Answer(Result.UNAVAILABLE, why="LOADING")]):
            story.engine.on_invalidated(story.step(now).invalidation, answers, now + 100.0)
            now += 100.0 + AGAIN

    assert story.engine.pending == 1
    assert story.removed(story.step(now).invalidation, now, refused=[A]) == [A]


def test_what_was_merely_read_stays_in_redis_when_its_refresh_is_refused_for_too_long():
    """The floors of a Redis whose clock has stepped back lie ahead for as long as the step was."""
    for hint, removed in ((Story.touch, []), (Story.miss, []), (Story.change, [A])):
        story = Story()
        hint(story, A, at=0.0)
        story.end(story.start(0.0), 0.0, Result.REFUSED, wait=40.0)
        invalidation = story.step(31.0).invalidation

        assert story.count("dropped", "aged") == 1
        assert (invalidation.keys if invalidation else []) == removed
