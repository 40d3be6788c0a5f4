"""`make bench`: every benchmark, or those that are named, each in a process of its own on one core.

    python benchmarks/run.py            # all
    python benchmarks/run.py p5 scaling # some

Prints the table as it goes and replaces its rows in build/bench.json. Goals that are not met are shown, not hidden;
the exit code stays 0, for a busy machine is no fault of the code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import table

HERE = Path(__file__).parent
SCRIPTS = ("[fp][0-9]*.py", "scaling.py")
TIMEOUT_S = 1200  # one benchmark; each is written to end within two minutes, `scaling` within five, on a quiet machine


def main(wanted: list[str]) -> int:
    """Runs them one after the other: they measure CPU and memory, so nothing runs beside them."""
    scripts = [
        each
        for pattern in SCRIPTS
        for each in sorted(HERE.glob(pattern))
        if not wanted or any(f"{each.stem}_".startswith(f"{name.lower()}_") for name in wanted)
    ]
    if not scripts:
        print(
            f"no benchmark of that name; there are {[each.stem for each in sorted(HERE.glob('p[0-9]*.py'))]}"
        )
        return 2
    for script in scripts:
        print(f"-- {script.stem}", flush=True)
        code = f"import json, {script.stem} as it; print(json.dumps(it.run()))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=HERE,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        rows = json.loads(done.stdout.splitlines()[-1])
        table.show(rows)
        table.keep(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
