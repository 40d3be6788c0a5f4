"""`make freshness`: all policies in all worlds; the table, the goals F1 to F5, the results page with its plots.

    python -m freshness.run                        # test seed 101, in two processes
    python -m freshness.run --seeds 1,2 --only A,E # some
    python -m freshness.run --quick                # tiny worlds, some seconds: does it run at all?
    python -m freshness.run --page                 # only the page again, from the cells kept in build/

Each finished cell is kept in build/freshness.json, so an interrupted run is not lost. Only a full run of test seeds replaces
the goals' rows in build/bench.json and the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import table

from freshness import goals, report, semireal
from freshness.cells import Cell, Job, jobs, measure
from freshness.worlds import TEST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = table.FILE.with_name("freshness.json")
PROCESSES = 2  # a world takes half a gigabyte
COLUMNS = f"{'':<18}{'stale %':>9}{'age s':>10}{'p99 s':>10}{'rows/s':>9}{'max 1 s':>9}{'waited %':>10}"


def main(argv: list[str]) -> int:
    """Measures, shows and keeps."""
    options = _options(argv)
    wanted = _wanted(options)
    if options.page:
        cells = _kept()
    else:
        if not (options.quick or options.only):
            KEPT.unlink(missing_ok=True)  # all cells of a full run must come from one state of the code
        cells = []
        began = perf_counter()
        for cell in _measured(wanted, processes=1 if options.quick else PROCESSES):
            cells.append(cell)
            _show(cell)
            print(f"   {len(cells)} of {len(wanted)} cells, {perf_counter() - began:.0f} s\n", flush=True)
            if not options.quick:
                _keep(cells)
    found = goals.rows(cells)
    table.show(found)
    if not (options.quick or options.only):
        table.keep(found)
        print(f"page: {report.write(cells, found)}")
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="freshness", description=__doc__)
    parser.add_argument("--seeds", default=str(TEST_SEEDS[0]), help="1-5 to tune by, 101-105 to test by")
    parser.add_argument("--only", default="", help="worlds, such as A,E or 'orm x random'")
    parser.add_argument("--budgets", default="", help="rows/s, such as 50,200")
    parser.add_argument("--traces", type=Path, default=semireal.TRACES, help="where the traces are")
    parser.add_argument("--quick", action="store_true", help="tiny worlds")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    return parser.parse_args(argv)


def _wanted(options: argparse.Namespace) -> list[Job]:
    if not semireal.present(options.traces):
        print(f"no traces in {options.traces}: the half-real rows (F2-semi, F5) are left out")
    worlds = [name for name in options.only.split(",") if name]
    budgets = [float(each) for each in options.budgets.split(",") if each]
    return [
        job
        for job in jobs([int(each) for each in options.seeds.split(",")], options.traces, quick=options.quick)
        if (not worlds or job.world in worlds) and (not budgets or job.budget in budgets)
    ]


def _measured(wanted: list[Job], *, processes: int) -> Iterator[Cell]:
    if processes == 1:
        yield from map(measure, wanted)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure, job) for job in wanted]):
            yield done.result()


def _kept() -> list[Cell]:
    return [Cell.of(each) for each in json.loads(KEPT.read_text())] if KEPT.exists() else []


def _keep(cells: list[Cell]) -> None:
    """Keeps these cells in place of older ones of the same world, budget and seed."""
    KEPT.parent.mkdir(exist_ok=True)
    merged = {(cell.world, cell.budget, cell.seed): cell for cell in [*_kept(), *cells]}
    KEPT.write_text(json.dumps([cell.plain() for cell in merged.values()], indent=1) + "\n")


def _show(cell: Cell) -> None:
    print(f"{cell.world}, {cell.budget:g} rows/s, seed {cell.seed}")
    print(COLUMNS)
    for name, it in cell.policies.items():
        print(
            f"{name:<18}{100 * it.stale:>9.3f}{it.age:>10.3f}{it.age_p99:>10.2f}"
            f"{it.rows:>9.2f}{it.most[0]:>9}{100 * it.blocked:>10.2f}"
        )
    for name, share in cell.bounds.items():
        print(f"{name:<18}{100 * share:>9.3f}")
    print(f"as fresh by min-interval: {cell.iso_rows:.2f} rows/s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
