"""`make compat`: redis-py's own test suite, stock against ours. It passes if every test has the same outcome on both sides.

    python -m compat.run                          # the newest redis-py
    python -m compat.run 6.2,7,8                  # all that pyproject.toml claims
    python -m compat.run 8 --only tests/test_lock.py

It runs in the environment for development. `suite` fetches and installs, `sides` runs, `judging` compares, `page` writes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import TYPE_CHECKING

from compat import page
from compat.judging import failed_on_both, judged, rows_of
from compat.sides import CLUSTER, OURS, STANDALONE, Choice, Topology, both, in_turn
from compat.suite import LINES, Suite, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_PASSED = 1_450  # tests of a version; fewer mean that a server or a requirement is missing


def main() -> int:
    """The exit code: 1 if a test differs, if too few have passed, or if a version did not come to its end."""
    parser = argparse.ArgumentParser(description="redis-py's own tests against our clients")
    parser.add_argument("lines", nargs="?", default=LINES[-1], metavar="VERSIONS", help=",".join(LINES))
    parser.add_argument("--only", nargs="*", default=[], metavar="PATH", help="tests of the suite; no page")
    given = parser.parse_args()
    faults = [fault for line in given.lines.split(",") for fault in _faults(line, given.only)]
    print(*faults, sep="\n")
    return bool(faults)


def _faults(line: str, only: Sequence[str]) -> list[str]:
    """Runs one version and writes its section of the page. The other versions run, whatever happens here."""
    try:
        result = _result(line, only)
    except (OSError, RuntimeError, subprocess.SubprocessError) as e:
        return [f"no result of redis-py {line}: {e}"]
    print(f"\n{page.told(result)}", flush=True)
    incomplete = _gaps(result, whole=not only)
    if not only and not incomplete:
        print(page.put(result), flush=True)
    return incomplete + [
        f"differs, redis-py {result.version}, {part.name}: {each}"
        for part, each in result.doubts
        if each.differs
    ]


def _result(line: str, only: Sequence[str]) -> page.Result:
    print(f"redis-py {line}: fetching and installing", flush=True)
    suite = prepared(line)
    parts = [_part(suite, topology, only) for topology in (STANDALONE, CLUSTER)]
    return page.Result(line, suite.version, page.tree(), [part for part in parts if part.rows])


def _part(suite: Suite, topology: Topology, only: Sequence[str]) -> page.Part:
    first = both(suite, topology, Choice(only))
    if failed := failed_on_both(first):  # some only because their server is not on the port that they expect
        later = in_turn(suite, topology, Choice.of(failed, whole=False))
        first = {side: first[side].updated(later[side]) for side in first}
    verdict = judged(first, lambda names, whole: in_turn(suite, topology, Choice.of(names, whole=whole)))
    rows = rows_of(verdict, topology.name)
    for row in rows:
        print(f"  redis-py {suite.version}, {page.line_of(row)}", flush=True)
    return page.Part(topology.name, rows, verdict, first[OURS].hints)


def _gaps(result: page.Result, *, whole: bool) -> list[str]:
    """Why this is not a result of the whole suite."""
    said = [
        f"our side was not observed as it should be, redis-py {result.version}, {part.name}: {dict(part.hints)}"
        for part in result.parts
        if not part.hints["emitted"] or part.hints["faults"]
    ]
    passed = sum(row.passed for part in result.parts for row in part.rows)
    if whole and passed < LEAST_PASSED:
        said.append(
            f"redis-py {result.version}: only {passed:,} tests have passed, and {LEAST_PASSED:,} should"
        )
    return said


if __name__ == "__main__":
    sys.exit(main())
