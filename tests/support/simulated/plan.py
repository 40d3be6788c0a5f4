"""One schedule, drawn from its seed: its size, its limits, its faults and their rates.

Times are a fifth or a tenth of the real ones and limits are small, so that a few virtual seconds and a handful of
keys reach every corner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from cacheupdater.core.limits import Limits
from simulated.faults import (
    AT_GROUPS,
    TO_GROUPS,
    draw_file_rates,
    draw_fleet_rates,
    draw_group_rates,
    draw_rates,
)

BUDGETS = (30.0, 100.0, 1000.0)  # rows a second; the burst is at least a second's worth
FLEET_BUDGET = 20.0  # of a fleet: so little that shares matter
FLEET_BURSTS = (
    2.0,
    3.0,
    5.0,
)  # rows: more would hide double spending; with less than one each, owners take turns
CROWD = 4  # members of one group
CROWD_BUDGETS = (10.0, 20.0)
CROWD_BURSTS = (1.0, 3.0, 8.0, 20.0)  # rows: with fewer than there are partitions, members take turns
CROWD_QUOTAS = (0.0, 4.0, 10.0)
KEEP_MS = 60_000
OUTAGES_S = (0.1, 0.5, 1.5)
FILLED_S = 1.0  # by then most keys that have a row have a value
LONG_OUTAGE_S = 3.0  # a ttl and a half


@dataclass(frozen=True)
class GroupPlan:
    """A consumer group instead of a queue that moves single partitions."""

    static: bool  # its members have instance ids
    rebalance: float  # seconds that a rebalance waits for its members
    adapter: bool = False  # its members are the real adapter, not our model of it


@dataclass(frozen=True)
class FeedPlan:
    """A log that tells the updaters of each commit, and programs that commit and announce nothing."""

    memory: bool  # each updater has a memory queue of its own
    split: bool  # each table has a log of its own, so changes of two tables come in any order
    events_max: int  # changes of a batch
    pack_keys: int
    room: int  # keys, or packs of a memory queue, that may wait for the queue
    unconfirmed: int  # batches
    pause: float  # mean seconds between two transactions
    last: bool  # whether the last transaction truncates a table while loads are under way
    overlap: float | None = None  # seconds, if tables are polled; None: there is a log


@dataclass(frozen=True)
class Plan:
    """The parameters of a world."""

    seed: int
    rates: dict
    partitions: int
    updaters: int
    applications: int
    keys: int  # per namespace
    busy: float  # seconds in which applications work and faults happen
    pause: float  # mean seconds between two actions of an application
    share_of_changes: float
    share_of_deletes: float
    ways: dict  # how changes are announced, with weights
    every: float  # hold of the namespace a if its policy is `fixed`; b has none
    missing_ttl: float
    ttl: float
    budget: float
    burst: float
    quota: float  # of the namespace b; 0 for none
    concurrency: int
    max_backlog: int
    limits: Limits
    lag: float  # seconds by which loads read behind the primary
    hold_off_ms: int
    priced: bytes  # prefixes of the namespaces whose policy is `price`; the others' is `fixed`
    price: float  # of a row, to begin with: stale reads prevented
    least_gain: float
    worth: float  # of a stale read
    max_age: float | None
    group: GroupPlan | None
    fleet: bool  # whether updaters share the budget by a record in Redis
    grown: bool  # whether that record is old when they begin
    state: bool  # whether they keep their learned state in a file
    stamp: str  # how a row of the namespace a tells its last change
    script_keys: int  # the most that one call of a script may carry
    window: int  # calls of one exchange
    foreign: float  # share of an application's actions that write a foreign value
    replace: bool  # whether refreshes replace such values
    fills: float = 0.0  # share of the misses after which the reader sets the value itself
    paused: float = 0.0  # how often an operator pauses a namespace for a while
    crowded: bool = False  # whether many members share few rows, and applications read in bursts
    reloads: float = 0.0  # how often a member reads its configuration again
    fail_safe: float = 0.0  # seconds beyond the ttl that values live while the database is away
    outages: tuple = OUTAGES_S  # seconds: how long the database is away
    away: bool = (
        False  # whether nothing fails but the database, once, for long: then no value that is read may expire
    )
    fed: FeedPlan | None = None

    def hold(self, key):
        """Seconds in which touches of this key are declined."""
        if key[:1] in self.priced:
            return self.limits.gap
        return self.every if key[:1] == b"a" else 0.0

    @property
    def ttl_ms(self):
        return int(self.ttl * 1000)


def draw(seed):
    """The schedule of this seed."""
    random = Random(f"plan {seed}")
    pick = random.choice
    lags = random.random() < 0.1
    tight = random.random() < 0.25
    ways = {"invalidate": 6, "write_through": 3}
    if not lags and random.random() < 0.5:
        ways |= {"delete": 3, "hint": 1, "silence": 1}
    rates = draw_rates(random)
    prices = Random(f"prices {seed}")
    group = _draw_group(Random(f"group {seed}"), rates)
    beyond = Random(f"beyond {seed}")
    fleet = beyond.random() < 0.04
    if lags or fleet:
        # Redis' clock times a hold-off and a claim: a jump would end them early
        rates.pop("redis_clock_ahead", None)
    plan = Plan(
        seed=seed,
        rates=rates,
        partitions=pick((1, 1, 2)),
        updaters=pick((1, 2)),
        applications=pick((1, 2)),
        keys=pick((1, 2, 4)),
        busy=random.uniform(0.4, 1.1),
        pause=pick((0.03, 0.1)),
        share_of_changes=pick((0.05, 0.2, 0.5)),
        share_of_deletes=pick((0.0, 0.1, 0.4)),
        ways=ways,
        every=pick((0.15, 0.4)),
        missing_ttl=pick((0.2, 0.5)),
        ttl=pick((0.5, 60.0, 60.0)),
        budget=(budget := pick(BUDGETS)),
        burst=budget,
        quota=pick((0.0, 20.0)),
        concurrency=pick((1, 2, 5)),
        max_backlog=pick((1, 3)) if tight else 100,
        limits=Limits(
            gap=0.05,
            head_timeout=0.7,
            unit_keys=pick((1, 3, 200)),
            max_attempts=pick((2, 5)),
            backoff=0.05,
            backoff_max=0.3,
            backlog_age=pick((0.2, 1.0)) if tight else 30.0,
            pending=pick((2, 5)) if tight else 1000,
            quarantined=pick((1, 100)),
            quarantine_for=0.5,
            absent=pick((1, 100)),
            prune=0.1,
        ),
        lag=0.1 if lags else 0.0,
        hold_off_ms=150 if lags else 0,
        # a third; seldom both, for that costs thrice as much as the rest of a schedule
        priced=pick((*[b""] * 11, b"a", b"a", b"b", b"b", b"ab")),
        price=prices.choice((1e-3, 0.1, 1.0, 1.0, 5.0)),
        least_gain=prices.choice((0.0, 0.02, 0.1, 0.2)),
        worth=prices.choice((1.0, 1.0, 1.0, 100.0)),
        max_age=prices.choice((*[None] * 7, 1.0)),
        group=group,
        fleet=fleet,
        grown=False,
        state=False,
        stamp=beyond.choice(("", "", "version", "age")),
        script_keys=beyond.choice((1, 2, 100)),
        window=beyond.choice((1, 4)),
        foreign=beyond.choice((*[0.0] * 5, 0.1, 0.3)),
        replace=beyond.random() < 0.3,
    )
    return _with_putting_back(_with_crowd(_with_operator(_with_fail_safe(_with_its_group(plan, beyond)))))


def _with_putting_back(plan):
    """In most schedules with a queue that moves single partitions, which takes hints back, few of them count as a long tail.

    These queues are rare, so some groups become one, unless they are a fleet or a crowd.
    """
    random = Random(f"putting back {plan.seed}")
    if plan.group and not (plan.fleet or plan.crowded) and random.random() < 0.1:
        ours = {kind: rate for kind, rate in plan.rates.items() if kind not in {*AT_GROUPS, *TO_GROUPS}}
        plan = replace(plan, group=None, rates=ours)
    after, behind = random.choice(((5.0, 16), (0.1, 1), (0.1, 1), (0.4, 3)))
    most = random.choice((3, 1000))
    limits = replace(plan.limits, put_back_after=after, put_back_behind=behind, put_back_keys=most)
    return replace(plan, limits=limits)


def _with_crowd(plan):
    """In one of ten groups four members share a topic and few rows, and half of these are reloaded again and again.

    Rows that are spent twice show only if all of them are wanted. So there are fewer of the other faults, as for a fleet.
    Learned refreshes would go on for ever, so slowly that the group would never be seen at rest.
    """
    random = Random(f"crowd {plan.seed}")
    if plan.group is None or plan.fleet or plan.away or plan.priced or random.random() >= 0.1:
        return plan
    return replace(
        plan,
        crowded=True,
        rates={kind: rate for kind, rate in plan.rates.items() if random.random() < 0.5},
        group=replace(plan.group, rebalance=random.choice((0.3, 1.0))),
        reloads=random.choice((0.0, 4.0, 4.0)) if plan.group.adapter else 0.0,
        updaters=CROWD,
        partitions=random.choice((4, 8)),
        applications=2,
        keys=16,
        every=0.15,
        concurrency=5,
        budget=random.choice(CROWD_BUDGETS),
        burst=random.choice(CROWD_BURSTS),
        quota=random.choice(CROWD_QUOTAS),
        busy=random.uniform(2.0, 3.0),
    )


def _with_operator(plan):
    """In a seventh of the schedules an operator pauses namespaces. In half of these, and of as many others, readers fill keys."""
    random = Random(f"operator {plan.seed}")
    if plan.fleet or plan.away:
        return plan
    draw = random.random()
    paused = random.choice((1.0, 3.0)) if draw < 0.15 else 0.0
    return replace(plan, paused=paused, fills=random.choice((0.0, 0.5))) if draw < 0.3 else plan


def _with_fail_safe(plan):
    """Half of the values that expire soon live on while the database is away. A few schedules have one long outage."""
    random = Random(f"fail_safe {plan.seed}")
    if plan.fleet:
        return plan
    if random.random() < 0.03:
        return _with_long_outage(plan, random)
    if plan.ttl < 1.0 and random.random() < 0.5:
        return replace(plan, fail_safe=random.choice((0.3, 2.0)))
    return plan


def _with_long_outage(plan, random):
    """Much is read, little is changed, and no limit is in the way."""
    return replace(
        plan,
        rates={"db_outage": 1.0},
        fail_safe=random.choice((1.0, 60.0)),
        outages=(LONG_OUTAGE_S,),
        away=True,
        ttl=2.0,
        every=0.15,
        busy=FILLED_S + 0.5 + LONG_OUTAGE_S,
        pause=0.03,
        share_of_changes=0.02,
        foreign=0.0,
        budget=1000.0,
        burst=1000.0,
        quota=0.0,
        max_backlog=100,
        limits=replace(plan.limits, pending=1000, backlog_age=30.0),
    )


def _with_its_group(plan, random):
    return _with_file(_with_fleet(plan, random), random)


def _with_fleet(plan, random):
    """A fleet needs several members, much to do, little to share, and time to find its shares.

    A share that is spent twice shows only if all of the budget is wanted. So there are fewer of the other faults, which leave
    a part of it unspent, and most fleets begin with an old record, without the wait of a young one.
    """
    if not plan.fleet:
        return plan
    others = {kind: rate for kind, rate in plan.rates.items() if random.random() < 0.5}
    return replace(
        plan,
        rates=others | draw_fleet_rates(random),
        grown=random.random() < 0.7,
        updaters=random.choice((2, 2, 3)),
        partitions=4,
        applications=2,
        pause=0.03,
        keys=8,
        every=0.15,
        concurrency=5,
        budget=FLEET_BUDGET,
        burst=random.choice(FLEET_BURSTS),
        busy=random.uniform(2.5, 4.0),
    )


def _with_file(plan, random):
    """Adds a file of learned state, mostly to schedules that learn."""
    if not plan.priced or random.random() < 0.3:
        return plan
    return replace(plan, rates=plan.rates | draw_file_rates(random), state=True)


def _draw_group(random, rates):
    """Draws a group for 24 of 25 schedules, and adds the faults of groups."""
    if random.random() < 0.04:
        return None
    rates |= draw_group_rates(random)
    # within the supervisor's time to hand over, which is not scaled; or far too short for it
    return GroupPlan(
        static=random.random() < 0.5,
        rebalance=random.choice((0.3, 1.0, 7.0, 7.0)),
        adapter=random.random() < 0.5,
    )
