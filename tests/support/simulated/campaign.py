"""Many schedules: runs a block of seeds, adds up the faults, and prints the command that replays a failure."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, islice
from time import process_time

from simulated.fed_plan import draw_fed
from simulated.plan import draw
from simulated.planted_faults import PLANTED_FAULTS
from simulated.world import simulate

GARBAGE = 50_000  # objects: some ten megabytes, of ten schedules; a tenth of the time is saved


@dataclass
class Report:
    """The results of a block of seeds."""

    schedules: int = 0
    groups: int = 0  # schedules whose queue was a consumer group
    crowds: int = 0  # schedules with four updaters that want more rows than they may have
    reloaded: int = 0  # of these, those with reloads
    priced: int = 0  # schedules with the policy `price`
    fleets: int = 0  # schedules whose updaters share the budget by a record
    files: int = 0  # schedules whose updaters keep learned state
    memory: int = 0  # schedules with a feed whose updaters have memory queues
    split: int = 0  # or a log for each table
    polled: int = 0  # or tables that are polled
    seconds: float = 0.0  # of CPU
    virtual: float = 0.0
    fired: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)  # (seed, violations)


def plan_of(seed, *, fed=False):
    """The schedule of this seed; `fed`: of those with a feed."""
    return draw_fed(seed) if fed else draw(seed)


def run_seed(seed, planted="", trace=None, *, fed=False):
    """One schedule."""
    return simulate(plan_of(seed, fed=fed), PLANTED_FAULTS[planted](), trace)


def run_block(seeds, planted="", *, most_failures=5, fed=False):
    """Runs schedules until enough of them have failed."""
    report, began = Report(), process_time()
    gc.set_threshold(GARBAGE)
    for seed in seeds:
        outcome = run_seed(seed, planted, fed=fed)
        report.schedules += 1
        plan = plan_of(seed, fed=fed)
        if plan.fed:
            report.memory += plan.fed.memory
            report.split += plan.fed.split
            report.polled += plan.fed.overlap is not None
        report.groups += plan.group is not None
        report.crowds += plan.crowded
        report.reloaded += plan.reloads > 0.0
        report.priced += bool(plan.priced)
        report.fleets += plan.fleet
        report.files += plan.state
        report.virtual += outcome.seconds
        report.fired.update(outcome.fired)
        if outcome.violations:
            report.failures.append((seed, outcome.violations))
            if len(report.failures) >= most_failures:
                break
    report.seconds = process_time() - began
    return report


def first_failure(planted, breaks, *, within, begin=0):
    """The first seed at which this planted fault breaks this promise, how it does, and the number of schedules run until then.

    Only schedules that the planted fault concerns are run and counted. AssertionError if `within` of them show nothing, or if
    the planted fault does not fit the code any more: each such schedule would run to its bitter end.
    """
    fault = PLANTED_FAULTS[planted]
    concerned = (seed for seed in count(begin) if fault().concerns(plan_of(seed, fed=fault.fed)))
    for number, seed in enumerate(islice(concerned, within), 1):
        outcome = run_seed(seed, planted, fed=fault.fed)
        misfit = [each for each in outcome.violations if "TypeError(" in each]
        assert not misfit, f"{planted!r} itself is out of date: {misfit[0]}"
        violations = [each for each in outcome.violations if each.startswith(breaks)]
        if violations:
            return seed, violations, number
    raise AssertionError(f"{planted!r} has broken {breaks} in none of {within} schedules")


def explain(failures, planted="", *, fed=False):
    """A text for people: the broken promises, and the command that replays them."""
    lines, option = [], f" --planted '{planted}'" if planted else ""
    option = " --fed" + option if fed else option
    for seed, violations in failures:
        lines.append(f"seed {seed}: python tests/simulation/replay.py --seed {seed}{option} --trace")
        lines += [f"    {each}" for each in violations[:5]]
    return "\n".join(lines)


def table(fired):
    """How often each fault happened."""
    return "\n".join(f"{kind:20s} {count:7d}" for kind, count in sorted(fired.items()))
