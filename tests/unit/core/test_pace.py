"""Changed keys that nobody reads leave Redis at a pace of their own: quicker than loads, and never all at once."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.pace import UNREAD_RATE


def test_unread_keys_do_not_wait_for_the_budget_but_for_redis():
    """A statement that changes more rows than the budget loads in an hour."""
    source = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)
    story = Story(namespace(source=source), pending=1_000_000)
    keys = [b"p:%d" % n for n in range(12_000)]
    for at in range(0, len(keys), 1000):
        story.fed(*keys[at : at + 1000], at=0.0)
    now, gone = 0.0, []
    while story.engine.pending:
        work = story.step(now)
        if work.invalidation is not None:
            gone += work.invalidation.keys
            story.removed(work.invalidation, now)
        now = work.wake if story.engine.pending else now

    assert gone == keys
    assert now <= len(keys) / UNREAD_RATE + 0.2
    assert story.engine.removals_waiting == 0  # of dropped changes


def test_unread_keys_of_a_partition_that_goes_are_removed_at_once():
    source = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)
    story = Story(namespace(source=source), pending=1_000_000)
    keys = [b"p:%d" % n for n in range(3 * round(UNREAD_RATE))]
    story.fed(*keys, at=0.0)
    first = story.step(0.0).invalidation.keys
    story.engine.hasten()
    assert [*first, *story.step(0.0).invalidation.keys] == keys
