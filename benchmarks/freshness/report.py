"""The results page: docs/explanation/freshness-results.md, written anew from the cells of a run.

Text that does not depend on the figures is written here. Code puts in the figures and the sentences that follow from them, so
the page never says more than was measured.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freshness import goals, plots, semireal
from freshness.cells import CHOOSY, HALF, HINTED, LEAST_GAIN, OURS, UPDATED_AT
from freshness.worlds import MEANING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from freshness.cells import Cell

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "freshness-results.md"
COLUMNS = ("ttl", "xfetch", "ahead", "min-interval", "capped", "oracle", OURS, OURS + CHOOSY)
SPARED = 0.98  # of the rows with `least_gain: 0`; above this the two count as the same
NO_GAIN = 0.95  # of the capped article's stale reads; above this the page says "no gain"

HEAD = """# How fresh, for how many rows

<!-- written by `make freshness`; do not edit -->

The tables show what readers see with the policy `price`, and with other policies that cost the same rows.
A simulator goes through all events in order and judges every read.
The policy `price` is the shipped code. It begins without learned state and has its default settings, except for `least_gain: 0`: it spends its whole budget.
Its budget is a hard limit. The other policies, except *capped*, keep to the budget only on average.

- *ttl*, *xfetch* (beta 1, 50 ms) and *ahead* (refresh-ahead from 0.75 of the ttl): readers may wait for a load.
- *min-interval*: the policy `fixed`. *capped*: the policy `fixed` behind a queue and the same bucket as ours, with the interval that is best for it.
- *oracle*: knows every true rate, and refreshes each key at a rate in proportion to sqrt(reads x changes).
- *optimum*: knows every true rate and solves the convex program; no reader waits. *blocking optimum*: the same, but readers may wait. *clairvoyant*: knows every future read and change.
- *ours, least_gain*: with the default of `least_gain`, which saves rows that would hardly prevent a stale read. If it spends fewer rows, their number stands behind the figures.
- *ours, hinted*: the application announces its changes. *ours, updated_at*: each row says when it last changed.

A stale read sees an old value. Its age is the time since that value became old; the age of a fresh read is zero. The mean age is over all reads.
"""

TAIL = """
## What this is, and is not

Made worlds: 20,000 keys, 5,000 reads/s, 100 changes/s, Poisson reads. A run takes one hour; its first twenty minutes do not count.
Half-real worlds: the changes are those of 3,281 real files in three years, mapped onto ten hours (2.2 changes/s). The reads have the order of a real ORM's reads, or are made with a real popularity (`popular`, `sessions`: Zipf 1.09, 100 reads/s).
No trace has both reads and changes, so we chose which read key stands for which file. Absolute seconds mean nothing in these worlds.
Loads take no time, a row costs one row, and values are never evicted.
The optimum assumes Poisson changes and constant rates. So the tables of bursts, shifts and real traces have no optimum.

To repeat: `make freshness` (`SEEDS=101,102`, `QUICK=1`, `TRACES=folder`). The figures are in `build/freshness.json`.
"""


def write(cells: list[Cell], found: list[dict[str, object]], page: Path = PAGE) -> Path:
    """The page and its plots."""
    ordered = sorted(cells, key=lambda cell: (cell.world in semireal.ROWS, cell.world, cell.budget))
    made = [cell for cell in ordered if cell.world not in semireal.ROWS]
    real = [cell for cell in ordered if cell.world in semireal.ROWS]
    folder = page.parent / "plots"
    parts = [HEAD, _goals(found, cells)]
    for title, name, some in (("Made worlds", "made", made), ("Half-real worlds", "half-real", real)):
        if some:
            plots.draw(some, folder / f"{name}.svg")
            parts.append(f"\n## {title}\n\n![Stale reads against the budget](plots/{name}.svg)\n")
            parts.append(_table(some))
    parts += [_no_gain(ordered), TAIL]
    page.write_text("".join(parts))
    return page


def mean(cells: Iterable[Cell], value: Callable[[Cell], float]) -> float:
    """The mean over seeds."""
    return float(np.mean([value(cell) for cell in cells]))


def _goals(found: list[dict[str, object]], cells: list[Cell]) -> str:
    seeds = sorted({cell.seed for cell in cells})
    head = f"| | reached | with least_gain {LEAST_GAIN:g} | goal | |\n| --- | --: | --: | --: | --- |\n"
    lines = [f"\n## Goals\n\nSeeds {', '.join(map(str, seeds))}.\n\n{head}"]
    beside = {each["name"]: each["ratio"] for each in goals.rows([cell.choosy() for cell in cells])}
    for each in found:
        verdict = "" if each["met"] else ", **not met**"
        sign = "<=" if each["better"] == "lower" else ">="
        lines.append(
            f"| {each['name']} | {each['ratio']} | {beside.get(each['name'], '')} | {sign} {each['goal']} | {each['method']}{verdict} |\n"
        )
    return "".join(lines)


def _table(cells: list[Cell]) -> str:
    lines = []
    for world, some in groupby(cells, key=lambda cell: cell.world):
        lines += _world(world, list(some))
    return "".join(lines)


def _world(world: str, cells: list[Cell]) -> list[str]:
    extra = [name for name in (UPDATED_AT, HINTED, HALF) if any(name in cell.policies for cell in cells)]
    limits = list(cells[0].bounds)
    names = [*COLUMNS, *extra]
    lines = [
        f"\n**{world}**" + (f": {MEANING[world]}" if world in MEANING else "") + "\n",
        "Stale reads in % / mean age in s. The last column has the rows/s that min-interval needs to be as fresh as ours.\n\n",
        f"| rows/s | {' | '.join([*names, *limits, 'as fresh'])} |\n",
        f"| --: {'| --: ' * (len(names) + len(limits) + 1)}|\n",
    ]
    for budget, group in groupby(cells, key=lambda cell: cell.budget):
        some = list(group)
        shown = [_verdict(some, name) for name in names]
        shown += [f"{100 * mean(some, lambda cell, name=name: cell.bounds[name]):.2f}" for name in limits]
        shown.append(f"{mean(some, lambda cell: cell.iso_rows):.3g}")
        lines.append(f"| {budget:g} | {' | '.join(shown)} |\n")
    return lines


def _verdict(some: list[Cell], name: str) -> str:
    some = [cell for cell in some if name in cell.policies]
    if not some:
        return ""
    stale = mean(some, lambda cell: 100 * cell.policies[name].stale)
    age = mean(some, lambda cell: cell.policies[name].age)
    text = f"{stale:.2f} / {age:.3g}"
    if name == OURS + CHOOSY:
        rows, all_rows = (mean(some, lambda cell, n=n: cell.policies[n].rows) for n in (name, OURS))
        text += f" ({rows:.3g})" if rows < SPARED * all_rows else ""
    return f"**{text}**" if name == OURS else text


def _no_gain(cells: list[Cell]) -> str:
    lines = ["\n## Where there is no gain\n\n"]
    groups = [list(group) for _, group in groupby(cells, key=lambda cell: (cell.world, cell.budget))]
    for some in groups:
        name = f"{some[0].world} at {some[0].budget:g} rows/s"
        mine = mean(some, lambda cell: cell.policies[OURS].stale)
        capped = mean(some, lambda cell: cell.policies["capped"].stale)
        fixed = mean(some, lambda cell: cell.policies["min-interval"].stale)
        ttl = mean(some, lambda cell: cell.policies["ttl"].stale)
        waited = mean(some, lambda cell: 100 * cell.policies["ttl"].blocked)
        if mine > NO_GAIN * min(capped, fixed):
            lines.append(
                f"- {name}: {100 * mine:.2f} % stale, min-interval {100 * fixed:.2f} %, capped {100 * capped:.2f} %.\n"
            )
        if mine > ttl:
            lines.append(
                f"- {name}: a ttl is fresher ({100 * ttl:.2f} % stale against {100 * mine:.2f} %); "
                f"{waited:.1f} % of its reads wait for the database.\n"
            )
    return "".join(lines) if len(lines) > 1 else lines[0] + "This run has no such cell.\n"
