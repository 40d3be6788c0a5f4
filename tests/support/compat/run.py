"""`make compat`: redis-py's own test suite, stock against ours. It passes if every test has the same outcome on both sides.

    python -m compat.run                          # the newest redis-py
    python -m compat.run 6.2,7,8                  # all that pyproject.toml claims
    python -m compat.run 8 --only tests/test_lock.py

It runs in the environment for development. `suite` fetches and installs, `sides` runs, `judging` compares, `page` writes.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from compat import page
from compat.judging import judged, rows_of
from compat.sides import CLUSTER, OURS, STANDALONE, Choice, Topology, both, in_turn
from compat.suite import LINES, Suite, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_PASSED = 1_450  # tests of the newest version; fewer mean that a server or a requirement is missing


def main() -> int:
    """The exit code: 1 if a test differs, or if too few have passed."""
    parser = argparse.ArgumentParser(description="redis-py's own tests against our clients")
    parser.add_argument("lines", nargs="?", default=LINES[-1], metavar="VERSIONS", help=",".join(LINES))
    parser.add_argument("--only", nargs="*", default=[], metavar="PATH", help="tests of the suite; no page")
    given = parser.parse_args()
    results = [_result(line, given.only) for line in given.lines.split(",")]
    for each in results:
        print(f"\n{page.told(each)}")
    faults = [text for each in results for text in _complaints(each, whole=not given.only)]
    print(*faults, sep="\n")
    if not faults and not given.only:
        for each in results:
            page.keep(each)
        print(page.write())
    return bool(faults)


def _result(line: str, only: Sequence[str]) -> page.Result:
    print(f"redis-py {line}: fetching and installing", flush=True)
    suite = prepared(line)
    parts = [_part(suite, topology, only) for topology in (STANDALONE, CLUSTER)]
    return page.Result(line, suite.version, page.commit(), [part for part in parts if part.rows])


def _part(suite: Suite, topology: Topology, only: Sequence[str]) -> page.Part:
    first = both(suite, topology, Choice(only))
    verdict = judged(first, lambda names: in_turn(suite, topology, Choice.of(names)))
    rows = rows_of(verdict, topology.name)
    for row in rows:
        print(f"  redis-py {suite.version}, {page.line_of(row)}", flush=True)
    return page.Part(topology.name, rows, verdict, first[OURS].hints)


def _complaints(result: page.Result, *, whole: bool) -> list[str]:
    said: list[str] = []
    for part in result.parts:
        said += [
            f"differs, redis-py {result.version}, {part.name}: {each}" for each in part.verdict.different
        ]
        if not part.hints["emitted"] or part.hints["faults"]:
            said.append(f"our side was not observed as it should be, {part.name}: {part.hints}")
    passed = sum(row.passed for part in result.parts for row in part.rows)
    if whole and result.line == LINES[-1] and passed < LEAST_PASSED:
        said.append(f"only {passed:,} tests have passed, and {LEAST_PASSED:,} should")
    return said


if __name__ == "__main__":
    sys.exit(main())
