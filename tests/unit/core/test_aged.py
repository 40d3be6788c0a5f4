"""Keys that have waited too long are dropped; ten thousand namespaces that cannot be paid cost a step nothing."""

from __future__ import annotations

import time

from stories.engine import Story, namespace
from suite.pace import soonest

from cacheupdater.core.aged import LOOKS
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source

MANY = 10_000


def unpayable(number: int) -> Story:
    """So many namespaces, each with keys that wait for a quota of one row in a thousand seconds."""
    shared = Source("db", Bucket(1e6, 1e6, now=0.0), concurrency=5)
    story = Story(
        *(namespace(f"n{n}", source=shared, quota=Bucket(0.001, 1.0, now=0.0)) for n in range(number)),
        pending=10 * number,
    )
    for n in range(number):
        story.touch(b"n%d:1" % n, b"n%d:2" % n, at=1.0)
    story.step(1.0)
    return story


def test_key_is_dropped_when_it_has_waited_for_as_long_as_its_namespace_allows():
    quota = Bucket(0.001, 1.0, now=0.0)
    story = Story(namespace(quota=quota, backlog_age=5.0))
    story.touch(b"p:1", at=1.0)
    for at in (1.0, 4.0, 5.9):
        story.step(at)
        assert story.engine.tracked == 1
    story.step(7.0)
    assert story.engine.tracked == 0
    assert story.count("dropped", "aged") == 1


def test_namespaces_may_allow_different_times():
    shared = Source("db", Bucket(1e6, 1e6, now=0.0), concurrency=5)
    spaces = [
        namespace(name, source=shared, quota=Bucket(0.001, 1.0, now=0.0), backlog_age=age)
        for name, age in (("a", 20.0), ("b", 2.0))
    ]
    story = Story(*spaces)
    story.touch(b"a:1", b"b:1", at=1.0)
    left = {}
    for at in (1.0, 2.5, 4.5, 20.5, 22.5):
        story.step(at)
        left[at] = sorted(story.engine._dedup.seats)

    assert left == {1.0: [b"a:1", b"b:1"], 2.5: [b"a:1", b"b:1"], 4.5: [b"a:1"], 20.5: [b"a:1"], 22.5: []}


def test_key_that_is_due_again_is_as_old_as_its_hint():
    story = Story(namespace(backlog_age=5.0), backoff=1.0)
    story.touch(b"p:1", at=1.0)
    at = 1.0
    while story.engine.tracked and at < 60.0:
        for unit in story.step(at).units:
            story.fail(unit, at + 0.1, own=False)
        at += 0.5

    assert at <= 8.0


def test_all_keys_of_ten_thousand_namespaces_leave_by_age_in_short_steps():
    story = unpayable(300)
    at, steps = 31.5, 0
    while story.engine.tracked:
        work = story.step(at)
        assert work.wake >= at
        at, steps = max(at + 0.001, min(work.wake, at + 1.0)), steps + 1
        assert steps < 100

    assert at < 34.0, "a step with more to do asks for the next one at once"
    assert steps >= 300 / LOOKS


def test_step_with_ten_thousand_namespaces_that_cannot_be_paid_takes_a_millisecond(record_property):
    story = unpayable(MANY)
    at = [2.0]
    for when, later in (("idle", 0.01), ("pruning", 1.1)):
        took = []

        def step(later=later, took=took):
            at[0] += later
            began = time.perf_counter()
            story.step(at[0])
            took.append(time.perf_counter() - began)
            return took[-1]

        soonest(step, 0.001)
        name = f"figure: a step with {MANY} namespaces that cannot be paid, {when}, in us"
        record_property(name, f"{1e6 * min(took):.0f}")
