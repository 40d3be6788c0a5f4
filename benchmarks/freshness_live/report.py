"""The results of a run: the table on the screen, and the rows F4-live and F7 of build/bench.json."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from table import row

from freshness_live.lane import FEED, FIXED, PRICE, TOLD, TTL
from freshness_live.statements import ON_THE_WAY_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freshness_live.lane import Result

GOAL = 0.55  # of the other's stale reads
GOAL_UP_TO = 200.0  # rows per second; above, the ratio is only reported
HEAD = (
    f"{'':<34}{'stale %':>8}{'rows/s':>8}{'worst':>7}{'reads/s':>9}{'absent':>7}{'ms p50':>8}{'p99':>7}"
    "   cores: updater readers writer postgres redis"
)


def line(result: Result) -> str:
    """A line of the table."""
    median, late = result.took
    cores = "".join(
        f"{result.cpu[kind]:>8.2f}" for kind in ("updater", "readers", "writer", "postgres", "redis")
    )
    return (
        f"{result.lane.name:<34}{result.stale * 100:>8.2f}{result.rows:>8.1f}{result.use.share:>7.2f}{result.reads:>9.0f}"
        f"{result.missing:>7}{median:>8.2f}{late:>7.2f}   {cores}"
    )


def rows(results: Sequence[Result]) -> list[dict[str, object]]:
    """The rows for build/bench.json, of all that was measured."""
    by_lane = {(each.lane.policy, each.lane.budget): each for each in results if not each.lane.restart}
    found = []
    for (policy, budget), one in by_lane.items():
        others = [by_lane.get((other, budget)) for other in (FIXED, TTL) if policy == PRICE]
        found += [_ratio(one, other) for other in others if other]
    found += [_told(each) for each in results if each.lane.policy in TOLD]
    kept = [each for each in results if each.lane.policy not in {TTL, *TOLD}]
    if kept:
        found += [_waits(kept), _worst(kept)]
    return found + _sampler(results)


def _ratio(price: Result, other: Result) -> dict[str, object]:
    budget, seconds = price.lane.budget, price.lane.traffic.seconds
    method = (
        f"stale reads, {price.stale:.2%} / {other.stale:.2%}; {price.rows:.0f} and {other.rows:.0f} rows/s at the"
        f" database, {price.reads:.0f} reads/s, {other.lane.policy} {other.lane.interval:.0f} s, {seconds:.0f} s each"
    )
    ratio = price.stale / other.stale if other.stale else inf
    goal = GOAL if budget <= GOAL_UP_TO else None
    return row(f"F7-{budget:g}-{other.lane.policy}", ratio, goal, method=method)


def _told(one: Result) -> dict[str, object]:
    how = (
        "by the feed alone: no application announces anything" if one.lane.policy == FEED else "by its writer"
    )
    method = (
        f"% of the reads that were stale at {one.lane.budget:g} rows/s and {one.lane.traffic.changes:g} changes/s, each told {how};"
        f" {one.rows:.0f} rows/s, {one.missing} reads found nothing, {one.reads:.0f} reads/s, {one.lane.traffic.seconds:.0f} s"
    )
    name = "feed" if one.lane.policy == FEED else "invalidate"
    return row(f"F10-{name}", one.stale * 100, 0.1 if one.lane.policy == FEED else None, method=method)


def _waits(kept: Sequence[Result]) -> dict[str, object]:
    priced = [each for each in kept if each.lane.policy == PRICE]
    late = max((each.took[1] for each in priced), default=0.0)
    method = f"reads that found nothing in Redis, price and fixed; p99 of an MGET {late:.1f} ms at most under price"
    return row("F7-waits", sum(each.missing for each in kept), 0.0, method=method)


def _worst(kept: Sequence[Result]) -> dict[str, object]:
    worst = max(kept, key=lambda each: each.use.share)
    method = (
        "rows in the database's log, the worst window of 1, 10 or 60 s of all lanes, as a share of budget * t + burst"
        f" ({ON_THE_WAY_S * 1000:.0f} ms on the way apart):"
        f" {worst.lane.name}, {worst.use.window:.0f} s, {worst.use.at:.0f} s after its first load"
    )
    return row("F4-live", worst.use.share, 1.0, method=method)


def _sampler(results: Sequence[Result]) -> list[dict[str, object]]:
    windows = [window for each in results for window in each.windows]
    if not windows:
        return []
    held = sum(window.holds for window in windows)
    method = f"{held} of {len(windows)} windows whose true share lies within the sampler's interval"
    return [row("F7-sampler", held / len(windows), 0.9, better="higher", method=method)]
