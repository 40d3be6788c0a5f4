"""Plots the share of stale reads against the budget, for all policies, with a panel per world, in one SVG.

The same run draws the same bytes: ids have a fixed salt, there is no date, and text stays text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from freshness.cells import HINTED, OURS, UPDATED_AT
from freshness.worlds import MEANING

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from freshness.cells import Cell

COLUMNS = 3
FLOOR = 0.01  # %; below it a line leaves the panel
LOOKS = {
    "ttl": ("#8c8c8c", "--"),
    "xfetch": ("#b9a36b", ":"),
    "ahead": ("#7fa8b8", ":"),
    "min-interval": ("#555555", "-"),
    "capped": ("#a1584f", "-"),
    "oracle": ("#6b8f4e", ":"),
    UPDATED_AT: ("#7a4fa3", "--"),
    HINTED: ("#7a4fa3", "--"),
    OURS: ("#1f5fbf", "-"),
}


def draw(cells: list[Cell], file: Path) -> None:
    """All worlds of these cells into one file."""
    mpl.rcParams.update({"svg.hashsalt": "freshness", "svg.fonttype": "none", "font.size": 9})
    names = list(dict.fromkeys(cell.world for cell in cells))
    lines = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(11, 3.1 * lines + 0.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(lines, COLUMNS)).ravel()
    for name, panel in zip(names, panels, strict=False):
        _panel(panel, [cell for cell in cells if cell.world == name])
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    handles = {line.get_label(): line for panel in panels for line in panel.get_lines()}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False)
    file.parent.mkdir(exist_ok=True, parents=True)
    figure.savefig(file, metadata={"Date": None})


def _panel(panel: Axes, cells: list[Cell]) -> None:
    budgets = sorted({cell.budget for cell in cells})
    for name, (colour, style) in LOOKS.items():
        shares = [
            _mean(
                [cell.policies[name].stale for cell in cells if cell.budget == at and name in cell.policies]
            )
            for at in budgets
        ]
        if any(share is not None for share in shares):
            shown = [np.nan if share is None else max(100 * share, FLOOR) for share in shares]
            width = 2.2 if name == OURS else 1.2
            panel.plot(budgets, shown, color=colour, linestyle=style, linewidth=width, label=name, marker=".")
    bound = "optimum" if "optimum" in cells[0].bounds else "clairvoyant"
    lowest = [
        100 * (_mean([cell.bounds[bound] for cell in cells if cell.budget == at]) or 0.0) for at in budgets
    ]
    shown = [each if each >= FLOOR else np.nan for each in lowest]  # zero has no place on this scale
    panel.plot(budgets, shown, color="#333333", linestyle="-.", linewidth=0.9, label=bound)
    panel.set(xscale="log", yscale="log", xlabel="rows/s", ylabel="stale reads, %")
    panel.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    panel.minorticks_off()
    world = cells[0].world
    panel.set_title(f"{world}: {MEANING[world]}" if world in MEANING else world, fontsize=9)
    panel.grid(visible=True, linewidth=0.3)


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
