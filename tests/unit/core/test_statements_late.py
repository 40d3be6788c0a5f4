"""The budget is kept where it matters, at the database: also when statements leave later than they were paid for."""

from __future__ import annotations

from random import Random

import pytest
from engine_story import Story, namespace

from cacheupdater.core.budget import Bucket, Source

RATE = BURST = 50.0
STALLS = (
    0.0,
    0.0,
    0.0,
    0.01,
    0.3,
    1.0,
    2.9,
)  # seconds in which the loop stands still between payment and statement


def statements(seed: int, *, told: bool) -> list[tuple[float, int]]:
    """(when, rows) as the database sees them; there is always more to load than can be paid."""
    random = Random(seed)
    source = Source("db", Bucket(RATE, BURST, now=0.0), concurrency=100)
    story = Story(namespace(source=source, every=0.0), head_timeout=100.0, gap=0.0)
    seen: list[tuple[float, int]] = []
    now, key = 0.0, 0
    while now < 60.0:
        story.touch(*(b"p:%d" % each for each in range(key, key + 200)), at=now)
        key += 200
        units = story.step(now).units
        now += random.choice(STALLS)
        for unit in units:
            seen.append((now, len(unit.keys)))
            if told:
                story.engine.on_statement(unit, now)
            story.end(unit, now)
        now += random.choice((0.0, 0.1, 0.7))
    return seen


def worst(seen: list[tuple[float, int]], span: float) -> float:
    """The fullest window, as a share of what the budget allows in it."""
    return max(
        sum(rows for at, rows in seen if begin <= at <= begin + span) / (RATE * span + BURST)
        for begin, _ in seen
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_window_at_the_database_is_fuller_than_the_budget_whatever_holds_statements_up(seed):
    seen = statements(seed, told=True)
    assert sum(rows for _, rows in seen) > 0.3 * RATE * 60.0
    for span in (1.0, 10.0):
        assert worst(seen, span) <= 1.0 + RATE * 0.02 / (RATE * span + BURST)  # 20 ms are no delay


def test_a_bucket_that_is_not_told_lets_the_database_see_more():
    assert max(worst(statements(seed, told=False), 1.0) for seed in range(20)) > 1.2
