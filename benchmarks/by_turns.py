"""P5 of this tree and of a commit, by turns in one process: how many times as long does a step of the engine take?

    python benchmarks/by_turns.py REV

`against.py` measures each tree in a process of its own. On a shared machine, two processes of the same code differ by some
hundredths. Here both engines get the same packs, step after step, so whatever disturbs one disturbs the other. One figure
takes a minute, and the same code gives 1.00 within a hundredth. It works for P5 alone, whose engine needs no server.
"""

from __future__ import annotations

import importlib
import itertools
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING

import run
import table
from against import unpacked

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

WARM_STEPS = 300  # three holds of the longest
STEPS = 900
PACKAGES = frozenset({"cacheupdater", "cacheupdater_client"})  # each tree has its own, as it has its own P5


def benchmark_of(tree: Path) -> ModuleType:
    """The tree's own P5, with the tree's own packages. The modules of this process stay as they are.

    The engine imports nothing later, or it would get the modules of this process then.
    """
    name = next((each.stem for each in run.scripts(tree, ["p5"]).values()), None)
    if name is None:
        raise SystemExit("that commit has no P5: name a later one")
    before = _taken_out(name)
    places = [str(tree), str(tree / "client"), str(tree / "benchmarks")]
    sys.path[:0] = places
    try:
        return importlib.import_module(name)
    finally:
        for each in places:
            sys.path.remove(each)
        _taken_out(name)
        sys.modules.update(before)


def _taken_out(benchmark: str) -> dict[str, ModuleType]:
    of_a_tree = PACKAGES | {benchmark}
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in of_a_tree}


def times_as_long(
    ours: ModuleType, theirs: ModuleType, kind: str, hold: float, *, steps: int = STEPS
) -> float:
    """The median of the steps: ours / theirs. They take turns in going first."""
    runs = [each.Run(hold, random.Random(5)) for each in (ours, theirs)]
    packs = ours.packs(kind, random.Random(5))
    now, ratios = 1.0, []
    for number in range(WARM_STEPS + steps):
        now += ours.STEP_S
        payloads = list(itertools.islice(packs, ours.STEP_PACKS))
        took = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            runs[which].step(payloads, now)
            took[which] = time.process_time() - began
        if number >= WARM_STEPS:
            ratios.append(took[0] / took[1])
    return statistics.median(ratios)


def main(rev: str) -> None:
    """A line per row of P5."""
    theirs = benchmark_of(unpacked(rev, table.FILE.parent / "against"))
    ours = benchmark_of(run.TREE)
    for kind, hold in ours.GOALS:
        ratio = times_as_long(ours, theirs, kind, hold)
        print(f"P5-{kind}, hold {hold:g} s: a step takes {ratio:.3f} times as long", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
