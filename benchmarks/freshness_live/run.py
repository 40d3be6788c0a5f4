"""`make freshness-live`: every policy at every budget, on real servers; the table, and the rows of build/bench.json.

    python -m freshness_live.run                             # 10 minutes a lane: 112 minutes
    python -m freshness_live.run --seconds 90                # shorter; price has then learned less
    python -m freshness_live.run --budgets 200 --lanes price,ttl --no-restart

The order of the lanes rotates from budget to budget. A third of each lane is warm-up. Each result is kept at once, so an
interrupted run is not lost. Results of lanes below a minute are only shown.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import table

from freshness_live import report
from freshness_live.lane import POLICIES, PRICE, TOLD, Lane, measure
from freshness_live.servers import servers
from freshness_live.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_S = 60.0  # of the sampler's measured share
WINDOWS_MIN = 6  # in a lane, however short
KEPT_S = 60.0  # shorter lanes are still in their transients; their figures would mislead
RESTART_S = 120.0  # two windows of the longest kind
RESTART_BUDGET = TOLD_BUDGET = 200.0


def main(argv: list[str]) -> int:
    """Measures, shows and keeps."""
    options = _options(argv)
    traffic = Traffic(seconds=options.seconds)
    results = []
    print(report.HEAD, flush=True)
    with servers() as all_servers:
        for lane in _lanes(options, traffic):
            judged = traffic.seconds - traffic.warm
            result = measure(lane, all_servers, look=min(WINDOW_S, judged / WINDOWS_MIN), tell=_progress)
            results.append(result)
            _progress("")
            print(report.line(result), flush=True)
            if traffic.seconds >= KEPT_S:
                table.keep(report.rows(results))
    print()
    table.show(report.rows(results))
    return 0


def _lanes(options: argparse.Namespace, traffic: Traffic) -> list[Lane]:
    lanes = []
    for turn, budget in enumerate(options.budgets):
        shift = turn % len(options.lanes)
        order = options.lanes[shift:] + options.lanes[:shift]
        lanes += [Lane(policy, budget, traffic) for policy in order]
    lanes += [Lane(policy, TOLD_BUDGET, traffic) for policy in options.told]
    if options.restart:
        short = Traffic(seconds=min(options.seconds, RESTART_S))
        lanes.append(Lane(PRICE, RESTART_BUDGET, short, restart=True))
    return lanes


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="freshness_live.run", description="Policies on real servers.")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each lane; 600")
    parser.add_argument(
        "--budgets", type=_budgets, default=[50.0, 200.0, 800.0], help="rows per second; 50,200,800"
    )
    parser.add_argument("--lanes", type=_policies, default=list(POLICIES), help="price,fixed,ttl")
    parser.add_argument(
        "--told",
        type=_told,
        default=list(TOLD),
        help="lanes whose changes are told: price+feed,price+invalidate",
    )
    parser.add_argument(
        "--no-restart", dest="restart", action="store_false", help="without the lane whose updater is killed"
    )
    return parser.parse_args(argv)


def _budgets(text: str) -> list[float]:
    return [float(each) for each in text.split(",")]


def _policies(text: str) -> list[str]:
    return _some(text, POLICIES)


def _told(text: str) -> list[str]:
    return _some(text, TOLD) if text else []


def _some(text: str, known: Sequence[str]) -> list[str]:
    lanes = text.split(",")
    if unknown := set(lanes) - set(known):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
    return lanes


def _progress(text: str) -> None:
    """Prints a line that the next one overwrites, on a terminal only."""
    if sys.stdout.isatty():
        print(f"\r{text:<60}\r", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
