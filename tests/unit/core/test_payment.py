"""The budget is kept at the database, even if statements leave later than they were paid for."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest
from stories.engine import Story, namespace
from suite.spending import worst

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source

RATE = BURST = 50.0
DELAYS = (0.001, 0.01, 0.3, 1.0, 2.9)
"""Seconds from a unit's start to its statement: Redis is slow, a connection must be made, the loop stands still."""


def statements(seed: int, *, told_late: bool = True, quota: bool = False) -> list[tuple[float, int]]:
    """(when, rows) as the database sees them; there is always more to load than can be paid."""
    random = Random(seed)
    bucket = Bucket(RATE, BURST, now=0.0)
    source = Source("db", Bucket(1e6, 1e6, now=0.0) if quota else bucket, concurrency=5)
    named = {"quota": bucket} if quota else {}
    story = Story(namespace(source=source, every=0.0, **named), head_timeout=100.0, gap=0.0)
    seen: list[tuple[float, int]] = []
    leaving: list[tuple[float, int, object]] = []
    now, key = 0.0, 0
    while now < 60.0:
        story.touch(*(b"p:%d" % each for each in range(key, key + 200)), at=now)
        key += 200
        for unit in story.step(now).units:
            if not told_late:
                story.engine.on_statement(unit, now)
            heappush(leaving, (now + random.choice(DELAYS), key, unit))
            key += 1
        now += random.choice((0.001, 0.1, 0.7))
        while leaving and leaving[0][0] <= now:
            at, _, unit = heappop(leaving)
            seen.append((at, len(unit.keys)))
            assert story.engine.on_statement(unit, at)
            story.end(unit, at + 0.001)
    return seen


@pytest.mark.parametrize("quota", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_window_at_the_database_is_fuller_than_the_budget_whatever_holds_statements_up(seed, quota):
    seen = statements(seed, quota=quota)
    assert sum(rows for _, rows in seen) > 0.3 * RATE * 60.0
    assert worst(seen, RATE) <= BURST + 1e-6


def test_a_bucket_that_is_told_too_early_lets_the_database_see_more():
    assert max(worst(statements(seed, told_late=False), RATE) for seed in range(5)) > 1.5 * BURST


def test_rows_that_never_left_are_there_again_and_never_more_than_the_burst():
    source = Source("db", Bucket(RATE, BURST, now=0.0), concurrency=5)
    story = Story(namespace(source=source, quota=Bucket(RATE, BURST, now=0.0)))
    story.touch(*(b"p:%d" % each for each in range(50)), at=1.0)
    unit = story.start(1.0)
    assert source.bucket.rows(9.0) == 0  # they are in the bucket until they leave
    story.unreached(unit, 9.0)
    assert (source.bucket.rows(9.0), unit.namespace.quota.rows(9.0)) == (50, 50)


def test_a_statement_must_not_leave_once_its_budget_has_gone_to_another():
    source = Source("db", Bucket(RATE, BURST, now=0.0), concurrency=5)
    story = Story(namespace(source=source))
    story.touch(*(b"p:%d" % each for each in range(50)), at=1.0)
    unit = story.start(1.0)
    source.bucket.change(RATE / 2, BURST / 2, now=1.1)
    assert not story.engine.on_statement(unit, 1.2)
    story.unreached(unit, 1.2)
    assert source.bucket.rows(1.2) == 25


def test_a_statement_must_not_leave_after_the_end_of_its_bucket():
    source = Source("db", Bucket(RATE, BURST, now=0.0), concurrency=5)
    story = Story(namespace(source=source))
    story.touch(b"p:1", at=1.0)
    unit = story.start(1.0)
    source.bucket.until = 1.1
    assert not story.engine.on_statement(unit, 1.2)
