"""Removals for dropped changes: only of keys that match a pattern, no faster than the budget allows loads, and none is lost."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.removals import AGAIN, REFUSALS_MAX, REFUSED_FOR

RATE = 10.0


def slow(**changed):
    """A namespace whose budget loads ten rows a second, and nothing of it while the story lasts."""
    source = Source("db", Bucket(RATE, RATE, now=0.0), concurrency=0)
    return namespace(source=source, **{"max_backlog": 1, **changed})


def keys(count, form="p:%d"):
    return [(form % n).encode() for n in range(count)]


def test_a_dropped_change_of_a_key_that_no_pattern_takes_removes_nothing():
    story = Story(slow())
    story.change(*keys(8, "p:cart:%d"), b"p:1", b"p:2", at=0.0)
    work = story.step(0.0)

    assert work.invalidation.keys == [b"p:1"]
    assert story.count("dropped", "unknown") == 8
    assert story.count("dropped", "backlog") == 1
    story.removed(work.invalidation, 0.1)
    assert story.engine.pending == 1


def test_removals_go_at_the_rate_of_the_budget_and_each_goes_in_the_end():
    story, gone, now = Story(slow()), [], 0.0
    story.change(*keys(101), at=0.0)
    while story.engine.removals_waiting or now == 0.0:
        work = story.step(now)
        if work.invalidation:
            gone += work.invalidation.keys
            story.removed(work.invalidation, now)
        assert len(gone) <= RATE + RATE * now + 1e-6
        assert work.wake > now
        now = work.wake

    assert gone == keys(100)
    assert now <= 9.0 + 1.0


def test_a_quota_that_is_less_than_the_budget_is_the_rate():
    story = Story(slow(quota=Bucket(2.0, 2.0, now=0.0)))
    story.change(*keys(101), at=0.0)

    assert len(story.step(0.0).invalidation.keys) == 2


def test_a_budget_that_grows_takes_the_rate_along():
    of = slow()
    story = Story(of)
    story.change(*keys(1001), at=0.0)
    story.step(0.0)
    of.source.bucket.change(1000.0, 1000.0, now=0.0)

    story.step(1.0)
    assert len(story.step(1.5).invalidation.keys) == pytest.approx(500, abs=1)


def test_time_that_is_spent_waiting_for_the_rate_gives_no_removal_up():
    story = Story(slow(), backlog_age=10_000.0)
    story.change(*keys(1001), at=0.0)
    now, given_up = 0.0, []
    while story.engine.removals_waiting or now == 0.0:
        work = story.step(now)
        if work.invalidation:
            given_up += story.removed(work.invalidation, now)
        now = work.wake

    assert now > 2 * REFUSED_FOR
    assert given_up == []


def test_what_redis_refuses_is_asked_for_again_without_paying_twice():
    story = Story(slow(max_backlog=1))
    story.change(*keys(11), at=0.0)
    work = story.step(0.0)
    refused = [Answer(Result.FAILED)] * len(work.invalidation.keys)
    for turn in range(REFUSALS_MAX):
        given_up = story.engine.on_invalidated(work.invalidation, refused, turn * AGAIN)
        work = story.step((turn + 1) * AGAIN)

    assert len(given_up) == 10


def test_at_the_cap_a_socket_is_not_read_any_further_and_nothing_goes_before_its_time():
    story = Story(slow(), removals=20)
    story.change(*keys(41), at=0.0)

    assert len(story.step(0.0).invalidation.keys) == RATE
    assert story.engine.full
    story.step(1.0)
    assert story.engine.removals_waiting == 20
    assert story.engine.full
    story.step(1.5)
    assert not story.engine.full
    assert story.count("removals_at_once", "") == 0


def test_at_the_cap_a_topics_removals_go_at_once_and_are_counted():
    story = Story(slow(), removals=20, senders_wait=False)
    story.change(*keys(41), at=0.0)
    gone = story.step(0.0).invalidation.keys

    assert gone == keys(20)
    assert not story.engine.full
    assert story.engine.removals_waiting == 20
    assert story.count("removals_at_once", "") == 20 - RATE


def test_before_a_hand_over_what_still_waits_goes_at_once():
    story = Story(slow())
    story.change(*keys(41), at=0.0)
    story.step(0.0)
    story.engine.hasten()

    assert story.step(0.0).invalidation.keys == keys(40)[10:]
    assert story.engine.removals_waiting == 0


def test_partitions_share_the_rate_of_a_namespace():
    of = slow()
    stories = [Story(of), Story(of)]
    for story in stories:
        story.change(*keys(101), at=0.0)
        story.engine.step(-1.0)  # both wait before the first draws
    gone = [0, 0]
    for tenth in range(100):
        for at, story in enumerate(stories):
            work = story.step(tenth / 10.0)
            gone[at] += len(work.invalidation.keys) if work.invalidation else 0

    assert sum(gone) <= RATE + RATE * 10.0
    assert min(gone) >= 0.4 * sum(gone)
