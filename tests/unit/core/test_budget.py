"""The cost of a row for a source: one if the budget is in rows; the time that loads have taken if it is in time."""

from __future__ import annotations

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Cost, Source


def source(*, timed):
    return Source("db", Bucket(1000.0, 1000.0, now=0.0), concurrency=5, timed=timed)


def test_a_row_of_a_budget_in_rows_costs_one_however_long_it_took():
    cost = Cost(source(timed=False))
    cost.settle(10, 10.0, 5_000.0)

    assert cost.per_row == 1.0


def test_the_cost_of_a_row_follows_what_loads_take():
    cost = Cost(source(timed=True))
    for _ in range(100):
        cost.settle(10, 10 * cost.per_row, 70.0)

    assert cost.per_row == pytest.approx(7.0, rel=0.01)


def test_a_load_that_took_longer_than_was_paid_is_a_debt_of_the_bucket():
    database = source(timed=True)
    Cost(database).settle(10, 10.0, 70.0)

    assert database.bucket.level(0.0) == -60.0


def test_a_pause_of_ours_does_not_make_a_row_dear():
    cost = Cost(source(timed=True))
    cost.settle(1, 1.0, 3_600_000.0)

    assert cost.per_row == pytest.approx(0.9 + 0.1 * 60_000.0)


def test_what_is_due_is_worth_what_its_rows_cost_by_now():
    database = source(timed=True)
    cost = Cost(database)
    cost.wait(100)
    assert database.due == 100.0
    for _ in range(100):
        cost.settle(10, 0.0, 70.0)
    assert database.due == pytest.approx(100 * cost.per_row)
    cost.wait(-100)
    assert database.due == pytest.approx(0.0, abs=1e-6)


def test_each_namespace_knows_its_own_due_rows():
    database = source(timed=True)
    one, other = Cost(database), Cost(database)
    one.wait(100)
    other.wait(7)
    assert (one.due, other.due) == (100, 7)
