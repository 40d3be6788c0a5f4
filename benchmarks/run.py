"""`make bench`: runs every benchmark, or the named ones, each in a process of its own on one core.

    python benchmarks/run.py            # all
    python benchmarks/run.py p5 scaling # some, by id or by file

A file is named by what it measures. A benchmark has an id, too, with which its story begins (`P5: ...`) and its rows.
Prints each row of the table at once and replaces it in build/bench.json. Missed goals are shown. The exit code stays 0, for a
busy machine is no fault of the code. `against.py` runs the same benchmarks on two commits.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import table

TREE = Path(__file__).parent.parent
_ID = re.compile(r'"""(?P<letter>[A-Z])(?P<number>\d*): ')
TIMEOUT_S = 1200  # one benchmark; each is written to end within two minutes, `scaling` within five, on a quiet machine


def scripts(tree: Path, wanted: list[str]) -> dict[str, Path]:
    """The tree's benchmarks of these ids or files, by id, in the order in which they run. Without names, all."""
    found = {}
    for file in (tree / "benchmarks").glob("*.py"):
        if said := _ID.match(file.read_text("utf-8")):
            found[said["letter"] + said["number"]] = file
    names = {name.lower() for name in wanted}
    return {
        name: found[name]
        for name in sorted(found, key=lambda name: (name[0], int(name[1:] or 0)))
        if not names or names & {name.lower(), found[name].stem}
    }


def rows_of(script: Path) -> list[dict[str, object]]:
    """The rows of a benchmark, run with the code of its own tree, whatever package is installed."""
    tree = script.parent.parent
    code = f"import json, {script.stem} as it; print(json.dumps(it.run()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'client'}"},  # noqa: TID251  handed on, not read
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main(wanted: list[str]) -> int:
    """Runs them one after the other: they measure CPU and memory, so nothing runs beside them."""
    chosen = scripts(TREE, wanted)
    if not chosen:
        there = ", ".join(f"{each} {file.stem}" for each, file in scripts(TREE, []).items())
        print(f"no benchmark of that name; there are {there}")
        return 2
    for name, script in chosen.items():
        print(f"-- {name} {script.stem}", flush=True)
        rows = rows_of(script)
        table.show(rows)
        table.keep(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
