"""The part of every rate that goes with the partitions that are ours."""

from __future__ import annotations

import random

from engine_story import namespace

from cacheupdater.core.budget import Bucket, Source
from cacheupdater.pipeline.portions import Portions


def shop(now=0.0):
    """A source of 100 rows a second, and a quota of 20."""
    source = Source("db", Bucket(100.0, 50.0, now=now), concurrency=5)
    return namespace(source=source, quota=Bucket(20.0, 20.0, now=now))


def test_owner_of_a_quarter_spends_a_quarter_of_every_rate():
    one = shop()
    Portions([one]).own(0.25, 0.0, sources=True)
    assert (one.source.bucket.rate, one.source.bucket.burst) == (25.0, 12.5)
    assert (one.quota.rate, one.quota.burst) == (5.0, 5.0)


def test_fleet_decides_about_sources_and_leaves_quotas_to_ownership():
    one = shop()
    Portions([one]).own(0.5, 0.0, sources=False)
    assert (one.source.bucket.rate, one.quota.rate) == (100.0, 10.0)


def test_owner_of_nothing_spends_nothing_and_begins_again_with_nothing_saved():
    one = shop()
    portions = Portions([one])
    portions.own(1.0, 0.0, sources=True)
    portions.own(0.0, 10.0, sources=True)
    assert one.source.bucket.rows(100.0) == 0
    portions.own(1.0, 200.0, sources=True)
    assert one.source.bucket.rows(200.0) == 0
    assert one.source.bucket.rows(200.1) == 10


def test_changed_budget_is_shared_in_the_same_parts():
    one = shop()
    portions = Portions([one])
    portions.own(0.5, 0.0, sources=True)
    portions.change(one.source, 400.0, 40.0, now=1.0)
    assert (one.source.bucket.rate, one.source.bucket.burst) == (200.0, 20.0)
    portions.own(1.0, 2.0, sources=True)
    assert one.source.bucket.rate == 400.0


def test_all_owners_together_never_exceed_the_whole_however_partitions_move():
    """Eager rebalances, as a group of consumers has them: all give up, then all are given."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    lot, members, spent = random.Random(seed), [shop() for _ in range(4)], []
    portions = [Portions([each]) for each in members]
    now = 0.0
    for each in portions:
        each.own(0.0, now, sources=True)
    for _ in range(300):
        owners = [lot.randrange(4) for _ in range(12)]
        for number, each in enumerate(portions):
            each.own(owners.count(number) / 12, now, sources=True)
        for _ in range(lot.randrange(1, 40)):
            now += lot.choice((0.001, 0.01, 0.1))
            for each in members:
                rows = each.source.bucket.rows(now)
                each.source.bucket.take(rows)
                spent.append((now, rows))
        for each in portions:
            each.own(0.0, now, sources=True)
    for window in (1.0, 5.0):
        first, total = 0, 0
        for at, rows in spent:
            total += rows
            while spent[first][0] <= at - window:
                total -= spent[first][1]
                first += 1
            # each of four rounds up to one row at most
            assert total <= 100.0 * window + 50.0 + 4
