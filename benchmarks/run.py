"""`make bench`: runs every benchmark, or the named ones, each in a process of its own on one core.

    python benchmarks/run.py            # all
    python benchmarks/run.py p5 scaling # some

Prints each row of the table at once and replaces it in build/bench.json. Missed goals are shown. The exit code stays 0, for a
busy machine is no fault of the code. `against.py` runs the same benchmarks on two commits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import table

TREE = Path(__file__).parent.parent
SCRIPTS = ("[fp][0-9]*.py", "scaling.py")
TIMEOUT_S = 1200  # one benchmark; each is written to end within two minutes, `scaling` within five, on a quiet machine


def scripts(tree: Path, wanted: list[str]) -> list[Path]:
    """The tree's benchmarks of these names, in the order in which they run. Without names, all."""
    return [
        each
        for pattern in SCRIPTS
        for each in sorted((tree / "benchmarks").glob(pattern))
        if not wanted or any(f"{each.stem}_".startswith(f"{name.lower()}_") for name in wanted)
    ]


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
        print(f"no benchmark of that name; there are {[each.stem for each in scripts(TREE, [])]}")
        return 2
    for script in chosen:
        print(f"-- {script.stem}", flush=True)
        rows = rows_of(script)
        table.show(rows)
        table.keep(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
