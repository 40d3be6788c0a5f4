"""Writes docs/reference/compat.md, the page of `make compat`, and the same table for the screen.

A run keeps the result of each version in build/compat. The page shows the last result of every version that the project claims,
with the commit of this project that was tested; so versions may run one after the other. The page names the
versions that have no result.
"""

from __future__ import annotations

import pickle
import platform
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.local.redis_server import executables, version
from compat.suite import BUILD, LINES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from compat.judging import Doubt, Row, Verdict

PATH = ROOT / "docs" / "reference" / "compat.md"


class Part(NamedTuple):
    """One topology of one version."""

    name: str
    rows: Sequence[Row]
    verdict: Verdict
    hints: Mapping[str, int]


class Result(NamedTuple):
    """One version."""

    line: str
    version: str
    commit: str  # of this project
    parts: Sequence[Part]


def line_of(row: Row) -> str:
    """A row in words."""
    counts = zip(row._fields[1:], row[1:], strict=True)
    return f"{row.kind}: " + ", ".join(f"{count:,} {name}" for name, count in counts)


def told(result: Result) -> str:
    """The result of a version, for the screen."""
    lines = [f"redis-py {result.version}"]
    for part in result.parts:
        lines += [f"  {line_of(row)}" for row in part.rows]
        lines.append(f"  hints of our side, {part.name}: {part.hints['emitted']:,}")
        lines += [f"  wavers: {_doubt(each)}" for each in part.verdict.wavering]
        lines += [f"  DIFFERS: {_doubt(each)}" for each in part.verdict.different]
    return "\n".join(lines)


def _doubt(doubt: Doubt) -> str:
    return f"{doubt.name}: redis-py {', '.join(doubt.stock)}; ours {', '.join(doubt.ours)}"


def commit() -> str:
    """The commit of this tree, with a + if something has changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def keep(result: Result) -> None:
    """Keeps the result for the page."""
    _kept(result.line).write_bytes(pickle.dumps(result))


def _kept(line: str) -> Path:
    return BUILD / f"result-{line}"


def write() -> str:
    """Writes the page from the kept results. Says what it did."""
    kept = [pickle.loads(_kept(line).read_bytes()) for line in LINES if _kept(line).exists()]
    PATH.write_text(text_of(kept), "utf-8")
    return f"written: {PATH.relative_to(ROOT)}"


def text_of(results: Sequence[Result]) -> str:
    """The page."""
    rows = [
        f"| {result.version} | {result.commit} | {' | '.join(f'{each:,}' if isinstance(each, int) else each for each in row)} |"
        for result in results
        for part in result.parts
        for row in part.rows
    ]
    server = version(executables()[0])
    return PAGE.format(
        server=server,
        python=platform.python_version(),
        missing=_missing(results),
        table=_table("redis-py | commit | kind | passed | failed | skipped | wavering | different", rows),
        hints=f"{sum(part.hints['emitted'] for result in results for part in result.parts):,}",
        wavering=_table("redis-py | run | test | stock, round by round | ours", _wavering(results)),
        failed=_table("redis-py | run | file | tests", _failed(results)),
    )


def _missing(results: Sequence[Result]) -> str:
    missing = [line for line in LINES if line not in {each.line for each in results}]
    return f"There is no result yet of redis-py {', '.join(missing)}.\n\n" if missing else ""


def _table(head: str, lines: Sequence[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + " --- |" * columns, *lines]) if lines else "None."


def _wavering(results: Sequence[Result]) -> list[str]:
    return [
        f"| {result.version} | {part.name} | `{each.name}` | {', '.join(each.stock)} | {', '.join(each.ours)} |"
        for result in results
        for part in result.parts
        for each in part.verdict.wavering
    ]


def _failed(results: Sequence[Result]) -> list[str]:
    """The number of tests that fail on both sides, by file."""
    lines = []
    for result in results:
        for part in result.parts:
            failed = (name for name, outcome in part.verdict.same.items() if outcome == "failed")
            files = Counter(name.partition("::")[0] for name in failed)
            lines += [
                f"| {result.version} | {part.name} | `{file}` | {count} |"
                for file, count in sorted(files.items())
            ]
    return lines


PAGE = """\
# redis-py's own tests

The clients of `cacheupdater_client` are drop-in replacements.
So redis-py's own test suite must have the same result with them as with redis-py: each test passes, fails or is skipped on both sides.
`make compat VERSIONS=6.2,7,8` runs the suite twice for each version, compares each test, and writes this page.
*commit* is the commit of this project that was tested.

- The suite comes from redis-py's source distribution. Each version runs in a virtual environment of its own, with Python {python}.
- *stock* is redis-py as it is. *ours* replaces `Redis` and `Sentinel`, or on a cluster `RedisCluster`, sync and asyncio, before the suite imports them.
- Both sides run at the same time, each on a Redis {server} of its own. The cluster has six nodes.
- Our side sends its hints to an updater in the same process. It has sent {hints} hints in all.

{table}

{missing}The counts of *passed*, *failed* and *skipped* are tests with this outcome on both sides.
A test whose outcome differed ran again three times, on one side after the other.
It is *different* if ours then showed an outcome that redis-py has not shown, and *wavering* otherwise.

The kind *pipelines* is the files about pipelines, sync and asyncio. *cluster* is all tests that run on a cluster, sync and asyncio.
The suite's tests of modules, TLS, Redis Enterprise and its proxy do not run: their servers are not here.
Tests of commands that are newer than the server are skipped by the suite itself.

## Wavering tests

{wavering}

## What fails on both sides

{failed}
"""
