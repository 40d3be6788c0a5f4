"""F1 to F5: the goals judged by the cells, as rows for build/bench.json.

"Worst" and "within" mean the worst cell; "geomean" is over cells (and seeds, if there are several).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from table import row

from freshness import semireal
from freshness.cells import GAPPED, HINTED, OURS, REAL_BUDGETS, UPDATED_AT

if TYPE_CHECKING:
    from collections.abc import Callable

    from freshness.cells import Cell

TINY = 1e-6  # below this share of stale reads, ratios are meaningless


def rows(cells: list[Cell]) -> list[dict[str, object]]:
    """Every goal for which these cells have figures."""
    made = [cell for cell in cells if cell.world in "ABCDEFGH"]
    real = [cell for cell in cells if cell.world in semireal.ROWS]
    return [
        *_against_the_article(made),
        *_same_freshness(made, real),
        *_optimum(made),
        *_budget(cells),
        *_hints(real),
    ]


def _against_the_article(made: list[Cell]) -> list[dict[str, object]]:
    if not made:
        return []
    stale = [_over(cell, "stale") for cell in made]
    return [
        row(
            "F1", _geomean(stale), 0.42, method=f"stale reads / capped article, geomean of {len(made)} cells"
        ),
        row("F1-worst", max(stale), 1.0, method="the worst of these cells"),
        row(
            "F1-age",
            _geomean([_over(cell, "age") for cell in made]),
            0.35,
            method="mean age of staleness, geomean",
        ),
    ]


def _over(cell: Cell, what: str) -> float:
    mine, theirs = (getattr(cell.policies[name], what) for name in (OURS, "capped"))
    return max(mine, TINY) / max(theirs, TINY)


def _same_freshness(made: list[Cell], real: list[Cell]) -> list[dict[str, object]]:
    out = []
    for name, cells, goal in (("F2", made, 1 / 3), ("F2-semi", real, 1 / 1.7)):
        if cells:
            share = _geomean([cell.policies[OURS].rows / cell.iso_rows for cell in cells])
            method = f"our rows / rows of min-interval as fresh, geomean of {len(cells)} cells"
            out.append(row(name, share, round(goal, 3), method=method))
    return out


def _optimum(made: list[Cell]) -> list[dict[str, object]]:
    free, gapped = (
        "stale reads / optimum of known rates, worst cell",
        "the same where no key is loaded more often than every gap",
    )
    wanted: list[tuple[str, str, str, tuple[str, float, str]]] = [
        ("F3-ABCDH", "ABCDH", OURS, ("optimum", 1.12, free)),
        ("F3-ABCDH-gap", "ABCDH", OURS, (GAPPED, 1.12, gapped)),
        ("F3-G", "G", OURS, ("optimum", 1.25, free)),
        ("F3-E", "E", OURS, ("optimum", 1.65, free)),
        ("F3-E-updated_at", "E", UPDATED_AT, ("optimum", 1.10, free)),
    ]
    out = []
    for name, settings, policy, (bound, goal, method) in wanted:
        cells = [cell for cell in made if cell.world in settings]
        if cells:
            worst = max(cell.policies[policy].stale / cell.bounds[f"{bound}, run"] for cell in cells)
            out.append(row(name, worst, goal, method=method))
    return out


def _budget(cells: list[Cell]) -> list[dict[str, object]]:
    use = max(cell.window_use() for cell in cells)
    return [row("F4", use, 1.0, method="fullest window of 1, 10, 60 s / (budget t + burst), all our runs")]


def _hints(real: list[Cell]) -> list[dict[str, object]]:
    out = []
    wanted: list[tuple[str, Callable[[float], bool], float]] = [
        ("F5-3.6U", lambda budget: budget == REAL_BUDGETS[2], 0.2),
        ("F5-0.9U", lambda budget: budget == REAL_BUDGETS[1], 6.0),
    ]
    for name, fits, goal in wanted:
        stale = [100 * cell.policies[HINTED].stale for cell in real if fits(cell.budget)]
        if stale:
            out.append(
                row(name, max(stale), goal, method="% stale with all changes announced, worst half-real row")
            )
    return out


def _geomean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))
