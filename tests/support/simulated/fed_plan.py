"""Schedules with a feed: most rows are changed by programs that announce nothing, and updaters read the database's log.

`draw_fed` takes a schedule of `plan.draw` and adds the feed and its faults. `world` plays both kinds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

from simulated.faults import AT_GROUPS, AT_QUEUES, TO_GROUPS, draw_feed_rates
from simulated.plan import FeedPlan, draw

SEEDS_APART = 1_000_000  # so that each schedule tries other plans until one suits
OVERLAP_S = 1.0  # longer than the slowest transaction
VANISHING = ("group_retention", "group_anew")  # what the queue loses, no feed tells again


def draw_fed(seed):
    """The schedule of this seed."""
    random = Random(f"fed {seed}")
    plan = next(each for each in map(draw, count(seed, SEEDS_APART)) if _suits(each))
    memory = random.random() < 0.4
    if random.random() < 0.7:  # what is learned costs three times as much as the rest of a schedule
        plan = replace(plan, priced=b"", state=False)
    others = {*VANISHING, *((*AT_GROUPS, *TO_GROUPS, *AT_QUEUES) if memory else ())}
    rates = {kind: rate for kind, rate in plan.rates.items() if kind not in others}
    fed = replace(
        plan,
        seed=seed,
        rates=rates | draw_feed_rates(random),
        group=None if memory else plan.group,
        ways={"silence": 3, "invalidate": 2, "write_through": 1},
        fed=FeedPlan(
            memory=memory,
            split=random.random() < 0.3,
            events_max=random.choice((1, 2, 1000)),
            pack_keys=random.choice((1, 2, 500)),
            room=random.choice((8, 1000, 1000)),
            unconfirmed=random.choice((2, 10_000)),
            pause=random.choice((0.03, 0.1)),
            last=random.random() < 0.2,
        ),
    )
    return _polled(fed) if random.random() < 0.15 else fed


def _polled(plan):
    """Tables are polled, so nobody sees that a row is gone. A transaction commits within the overlap."""
    return replace(
        plan,
        rates={kind: rate for kind, rate in plan.rates.items() if kind != "feed_lost"},
        share_of_deletes=0.0,
        fed=replace(plan.fed, split=False, last=False, overlap=OVERLAP_S),
    )


def _suits(plan):
    """Replicas need a hold-off, which a feed has not. Fleets, crowds and long outages have checks of their own."""
    return not (plan.lag or plan.fleet or plan.crowded or plan.away)
