"""The part of every rate that goes with the owned partitions."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush

import pytest
from stories.engine import namespace
from suite.spending import worst

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.price.shell.partition_shares import PartitionShares

WALL = 1_700_000_000.25  # how far the time of day is ahead of the loop's clock


def nearly(rate, burst):
    """The most rows of an instant. The time of day has steps of a quarter of a microsecond, and each is one instant."""
    return burst + rate * math.ulp(WALL) + 1e-6


def shop(now=0.0, budget=(100.0, 50.0), quota=(20.0, 20.0)):
    """A source of 100 rows a second, and a quota of 20."""
    source = Source("db", Bucket(*budget, now=now), concurrency=5)
    return namespace(source=source, quota=Bucket(*quota, now=now))


def test_owner_of_a_quarter_spends_a_quarter_of_every_rate():
    one = shop()
    PartitionShares([one]).own([7], 0.0, of=4, sources=True)
    assert (one.source.bucket.rate, one.source.bucket.burst) == (25.0, 12.5)
    assert (one.quota.rate, one.quota.burst) == (5.0, 5.0)


def test_fleet_decides_about_sources_and_leaves_quotas_to_ownership():
    one = shop()
    PartitionShares([one]).own([1, 3], 0.0, of=4, sources=False)
    assert (one.source.bucket.rate, one.quota.rate) == (100.0, 10.0)


def test_owner_of_nothing_spends_nothing_and_begins_again_with_nothing_saved():
    one = shop()
    portions = PartitionShares([one])
    portions.own([0, 1], 0.0, of=2, sources=True)
    portions.own([], 10.0, of=2, sources=True)
    assert one.source.bucket.rows(100.0) == 0
    portions.own([0, 1], 200.0, of=2, sources=True)
    assert one.source.bucket.rows(200.0) == 0
    assert one.source.bucket.rows(200.1) == 10


def test_changed_budget_is_shared_in_the_same_parts():
    one = shop()
    portions = PartitionShares([one])
    portions.own([0], 0.0, of=2, sources=True)
    portions.change(one.source, 400.0, 40.0, now=1.0)
    assert (one.source.bucket.rate, one.source.bucket.burst) == (200.0, 20.0)
    portions.own([0, 1], 2.0, of=2, sources=True)
    assert one.source.bucket.rate == 400.0


class Group:
    """Updaters that share the partitions of a topic, and spend whatever they can."""

    def __init__(self, owners, partitions, *, budget, quota=(1e6, 1e6)):
        self.seed = random.randrange(10**6)
        print(f"seed {self.seed}")
        self.lot, self.partitions, self.now = random.Random(self.seed), partitions, 0.0
        self.members = [shop(budget=budget, quota=quota) for _ in range(owners)]
        self.portions = [PartitionShares([each]) for each in self.members]
        self.spent = [[] for _ in self.members]
        self.leaving = []
        self.step = 0.02 / budget[0]  # of a row: who waits for nothing is asked again after it
        for each in self.portions:
            each.divide(WALL)
            each.own((), 0.0, of=partitions, sources=True)

    def share_out(self, owners, *, eager):
        """`owners` by partition. All give up what is not theirs any more (or everything) before anybody gains."""
        for number, each in enumerate(self.portions):
            kept = [] if eager else [at for at in each._since if owners[at] == number]
            each.own(kept, self.now, of=self.partitions, sources=True)
        for number, each in enumerate(self.portions):
            mine = [at for at, owner in enumerate(owners) if owner == number]
            each.own(mine, self.now, of=self.partitions, sources=True)

    def run(self, seconds, *, busy=1.0):
        """Each looks when its bucket says so, or by chance in between; rows leave a few milliseconds later, or never."""
        end = self.now + seconds
        while self.now < end:
            self._let_go()
            wakes = [max(each.source.bucket.when(1), each.quota.when(1)) for each in self.members]
            soonest = (
                min(wakes) if self.lot.random() < 0.8 else self.now + self.lot.choice((0.001, 0.01, 0.1))
            )
            if self.leaving:
                soonest = min(soonest, self.leaving[0][0])
            self.now = min(end, max(soonest, self.now + self.step))
            self._let_go()
            for number in range(len(self.members)):
                if self.lot.random() < busy:
                    self._pay(number)

    def _pay(self, number):
        member, now = self.members[number], self.now
        source, quota = member.source.bucket, member.quota
        rows = min(source.rows(now), quota.rows(now))
        if not rows:
            return
        later = now + (0.3 if self.lot.random() < 0.05 else self.lot.choice((0.0, 0.001, 0.01)))
        for each in (source, quota):
            each.set_apart(rows)
        heappush(self.leaving, (later, number, now, rows))

    def _let_go(self):
        while self.leaving and self.leaving[0][0] <= self.now:
            _, number, began, rows = heappop(self.leaving)
            both = self.members[number].source.bucket, self.members[number].quota
            if all(each.covers(rows, began, self.now) for each in both):
                self.spent[number].append((self.now, rows))
                for each in both:
                    each.let_go(rows, self.now)
            else:
                for each in both:
                    each.put_back(rows, began, self.now)

    @property
    def all_spent(self):
        return sorted(one for spent in self.spent for one in spent)


@pytest.mark.parametrize(
    "partitions", [48, *(pytest.param(each, marks=pytest.mark.prove) for each in (12, 60))]
)
@pytest.mark.parametrize(
    "budget", [(10.0, 10.0), (10.0, 1.0), (10.0, 1.5), (10.0, 100.0), (400.0, 20.0), (0.5, 1.0)]
)
def test_many_owners_of_a_small_budget_never_spend_more_than_it_in_any_window(budget, partitions):
    """The hole that was: each owner's part of the burst was rounded up to a row, so 48 owners had 48 at once."""
    group = Group(48, partitions, budget=budget)
    rate, burst = budget
    group.share_out([at % 48 for at in range(partitions)], eager=True)
    group.run(60.0 / rate, busy=0.0)  # everybody saves up what it can
    # 4 s at the least: within half a second, chance decides how many beats are missed
    offered = max(250.0, 4.0 * rate)
    group.run(offered / rate)
    assert worst(group.all_spent, rate) <= nearly(rate, burst)
    assert sum(rows for _, rows in group.all_spent) > 0.3 * offered


def test_each_of_many_owners_has_its_rows_within_a_round():
    group = Group(48, 48, budget=(10.0, 10.0))
    group.share_out(list(range(48)), eager=True)
    group.run(48.0)
    for spent in group.spent:
        # every 4.8 s, less what came too late for its beat: one of twenty, so eight of ten hardly ever
        assert 3 <= len(spent) <= 10


@pytest.mark.parametrize("budget", [(10.0, 10.0), (10.0, 1.0), (10.0, 2.0), (100.0, 50.0), (30.0, 12.0)])
@pytest.mark.parametrize("eager", [True, False])
def test_all_owners_together_never_exceed_the_whole_however_partitions_move(budget, eager):
    group = Group(12, 24, budget=budget)
    rate, burst = budget
    for _ in range(60):
        members = group.lot.choice(([0], [3], [0, 1], range(4), range(12)))
        group.share_out([group.lot.choice(members) for _ in range(24)], eager=eager)
        group.run(group.lot.choice((0.01, 3.0, 30.0)) / rate, busy=group.lot.choice((0.1, 1.0)))
    assert worst(group.all_spent, rate) <= nearly(rate, burst)
    assert len(group.all_spent) > 30


def quotas_and_budgets():
    """Each quota in each budget. `make test` takes one budget for each quota, by turns, and `make prove` the others."""
    budgets = [(10.0, 10.0), (10.0, 1.0), (400.0, 400.0)]
    for turn, quota in enumerate([(5.0, 5.0), (3.0, 1.0), (7.0, 14.0), (0.5, 1.0)]):
        for number, budget in enumerate(budgets):
            marks = () if number == turn % len(budgets) else pytest.mark.prove
            yield pytest.param(budget, quota, marks=marks)


@pytest.mark.parametrize(("budget", "quota"), list(quotas_and_budgets()))
def test_quota_of_a_namespace_is_kept_over_all_owners_and_served_to_each(budget, quota):
    group = Group(48, 48, budget=budget, quota=quota)
    group.share_out(list(range(48)), eager=True)
    rate, burst = quota
    group.run(600.0 / rate)  # eight beats at the least for each owner, so that not all of them come too late
    assert worst(group.all_spent, rate) <= nearly(rate, burst)
    assert worst(group.all_spent, budget[0]) <= nearly(*budget)
    assert all(group.spent)
    assert sum(rows for _, rows in group.all_spent) > 30


def test_an_owner_of_all_partitions_saves_up_and_gives_way_when_others_come():
    group = Group(2, 48, budget=(10.0, 10.0))
    group.share_out([0] * 48, eager=True)
    group.run(5.0, busy=0.0)
    bucket = group.members[0].source.bucket
    assert bucket.rows(group.now) == 9  # and one for the first beat of somebody else
    group.share_out([at % 2 for at in range(48)], eager=False)
    assert bucket.rows(group.now) == 0


def test_clocks_that_differ_cost_no_more_than_the_rows_of_their_difference():
    group = Group(48, 48, budget=(10.0, 10.0))
    for number, each in enumerate(group.portions):
        each.divide(WALL + (0.5 if number % 2 else 0.0))
    group.share_out(list(range(48)), eager=True)
    group.run(60.0)
    assert worst(group.all_spent, 10.0) <= 10.0 + 0.5 * 10.0


def test_a_clock_that_is_set_back_by_an_hour_holds_nobody_up():
    group = Group(4, 48, budget=(10.0, 10.0))
    group.share_out([at % 4 for at in range(48)], eager=True)
    group.run(10.0)
    for each in group.portions:
        each.divide(WALL - 3600.0)
    before = len(group.all_spent)
    group.run(10.0)
    assert len(group.all_spent) - before > 50


def test_rows_of_milliseconds_that_are_dearer_than_a_beat_are_paid_back_before_the_next():
    group = Group(48, 48, budget=(10.0, 10.0))
    group.share_out(list(range(48)), eager=True)
    bucket, spent = group.members[5].source.bucket, 0.0
    for tick in range(48_000):
        now = tick / 100.0
        if bucket.rows(now, 3.0):
            bucket.take(3.0)
            spent += 3.0
    assert spent == pytest.approx(480.0 * 10.0 / 48, rel=0.1)
