"""Shows one schedule again: `python tests/simulation/replay.py --seed N --trace`.

It also runs blocks of seeds (`--seed N --count M`), and plants a fault (`--planted naive`) to show their traces.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "client"), str(ROOT / "tests" / "support")]


def traced(seed, planted, *, fed):
    """Whether the schedule breaks a promise. Prints all of it."""
    from simulated import campaign

    print(campaign.plan_of(seed, fed=fed))
    outcome = campaign.run_seed(seed, planted, trace=print, fed=fed)
    print(*outcome.violations or ["no violation"], sep="\n")
    return bool(outcome.violations)


def main():
    from simulated import campaign
    from simulated.planted_faults import PLANTED_FAULTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1, help="so many seeds from there on")
    parser.add_argument("--planted", choices=sorted(PLANTED_FAULTS), default="")
    parser.add_argument("--fed", action="store_true", help="schedules with a feed")
    parser.add_argument("--trace", action="store_true", help="print every event")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    if arguments.trace:
        broken = [traced(seed, arguments.planted, fed=arguments.fed) for seed in seeds]
        return any(broken)
    report = campaign.run_block(seeds, arguments.planted, fed=arguments.fed)
    print(campaign.table(report.fired))
    rate = report.schedules / report.seconds
    print(f"{report.schedules} schedules, {rate:.0f} a second, {report.virtual:.0f} virtual seconds")
    print(campaign.explain(report.failures, arguments.planted, fed=arguments.fed) or "no violation")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
