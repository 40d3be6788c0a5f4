"""The rows that a benchmark run prints and keeps: ratios measured side by side, each with its goal.

Every `p*.py` and `f*.py` here has a `run()` that returns rows made by `row`. `run.py` prints them and puts them into
`build/bench.json`, where they replace the rows of the same names.
"""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).parent.parent / "build" / "bench.json"


def row(
    name: str, ratio: float, goal: float | None, *, better: str = "lower", method: str
) -> dict[str, object]:
    """One row. Without a `goal` it is only reported."""
    ratio = float(f"{ratio:.3g}")
    met = goal is None or (ratio <= goal if better == "lower" else ratio >= goal)
    return {"name": name, "ratio": ratio, "goal": goal, "better": better, "met": met, "method": method}


def keep(rows: list[dict[str, object]], file: Path = FILE) -> None:
    """Replaces the rows of these names."""
    file.parent.mkdir(exist_ok=True)
    kept = json.loads(file.read_text()) if file.exists() else []
    names = {each["name"] for each in rows}
    merged = [each for each in kept if each["name"] not in names] + rows
    file.write_text(json.dumps(sorted(merged, key=lambda each: str(each["name"])), indent=1) + "\n")


def show(rows: list[dict[str, object]]) -> None:
    """A line per row."""
    for each in rows:
        sign = "<=" if each["better"] == "lower" else ">="
        goal = "reported" if each["goal"] is None else f"{sign} {each['goal']}"
        verdict = "" if each["goal"] is None else "met" if each["met"] else "NOT MET"
        print(f"{each['name']:<22} {each['ratio']:>9}  {goal:<10} {verdict:<8} {each['method']}")
