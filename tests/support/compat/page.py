"""Writes docs/reference/compat.md, the page of `make compat`, and the same counts for the screen.

The page has a section for each version that the project claims. A run writes the sections of its versions, each as soon as the
version has ended, and leaves the others as they are. So versions may run one after the other, on any day and machine: a section
names the client's content, the Python and the Redis of its run. The page names the versions that have no section.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.local.redis_server import executables, version
from compat.judging import FAR_MORE, ROUNDS
from compat.suite import LINES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    tree: str  # of the client
    parts: Sequence[Part]

    @property
    def doubts(self) -> list[tuple[Part, Doubt]]:
        return [(part, each) for part in self.parts for each in part.verdict.doubts]


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


def tree() -> str:
    """Git's name for the content of the client, which outlives a rebase; with a + if it was changed since the last commit."""
    commands = ("rev-parse", "--short=10", "HEAD:client"), ("status", "--porcelain", "--", "client")
    name, changed = (
        subprocess.run(
            ["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=True
        ).stdout.strip()
        for command in commands
    )
    return f"{name}{'+' * bool(changed)}"


def put(result: Result) -> str:
    """Writes the section of this version. Says what it did."""
    old = PATH.read_text("utf-8") if PATH.exists() else ""
    PATH.write_text(text_with(result, old), "utf-8")
    return f"written: {PATH.relative_to(ROOT)}, the section of redis-py {result.version}"


def text_with(result: Result, old: str) -> str:
    """The page, with the sections of the old page for all other versions."""
    found = {line: section for section in _SECTION.findall(old) for line in LINES if _is_of(line, section)}
    found[result.line] = section_of(result)
    missing = [line for line in LINES if line not in found]
    gap = f"There is no result yet of redis-py {', '.join(missing)}.\n\n" if missing else ""
    sections = "\n".join(f"{found[line].strip()}\n" for line in LINES if line in found)
    return PAGE.format(rounds=ROUNDS, more=FAR_MORE + 1, gap=gap, sections=sections)


def _is_of(line: str, section: str) -> bool:
    return re.match(rf"## redis-py {re.escape(line)}\b", section) is not None


def section_of(result: Result) -> str:
    """One version's part of the page."""
    rows = [
        f"| {row.kind} | {' | '.join(f'{each:,}' for each in row[1:])} |"
        for part in result.parts
        for row in part.rows
    ]
    return SECTION.format(
        version=result.version,
        tree=result.tree,
        python=platform.python_version(),
        server=version(executables()[0]),
        hints=f"{sum(part.hints['emitted'] for part in result.parts):,}",
        table=_table("kind | passed | failed | unfinished | skipped | wavering | different", rows),
        doubts=_table("run | test | verdict | redis-py, round by round | ours", _doubts(result)),
        failed=_table("run | file | outcome | tests", _failed(result)),
    )


def _table(head: str, lines: Sequence[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + " --- |" * columns, *lines]) if lines else "None."


def _doubts(result: Result) -> list[str]:
    return [
        f"| {part.name} | `{each.name}` | {'different' if each.differs else 'wavering'} "
        f"| {', '.join(each.stock)} | {', '.join(each.ours)} |"
        for part, each in result.doubts
    ]


def _failed(result: Result) -> list[str]:
    """The number of tests that fail or do not finish on both sides, by file."""
    lines = []
    for part in result.parts:
        files = Counter(
            (name.partition("::")[0], outcome)
            for name, outcome in part.verdict.same.items()
            if outcome not in {"passed", "skipped"}
        )
        lines += [
            f"| {part.name} | `{file}` | {outcome} | {count} |"
            for (file, outcome), count in sorted(files.items())
        ]
    return lines


_SECTION = re.compile(r"^## redis-py .*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)

PAGE = """\
# redis-py's own tests

The clients of `cacheupdater_client` are drop-in replacements.
So redis-py's own test suite must have the same result with them as with redis-py: each test passes, fails or is skipped on both sides.
`make compat VERSIONS=6.2,7,8` runs the suite twice for each version, compares each test, and writes this page.
A run of fewer versions writes their sections only.

- The suite comes from redis-py's source distribution. Each version runs in a virtual environment of its own.
- *stock* is redis-py as it is. *ours* replaces `Redis` and `Sentinel`, or on a cluster `RedisCluster`, sync and asyncio, before the suite imports them.
- Both sides run at the same time, each on a Redis of its own. The cluster has six nodes.
- Our side sends its hints to an updater in the same process.

The counts of *passed*, *failed* and *skipped* are tests with this outcome on both sides.
A test is *unfinished* on both sides if pytest hung or died in it; another pytest then ran the tests that were left.
The kind *pipelines* is the files about pipelines, sync and asyncio.
The kinds *cluster sync* and *cluster asyncio* are all tests that run on a cluster.
The suite's tests of modules, TLS, Redis Enterprise and its proxy do not run: their servers are not here.
Tests of commands that are newer than the server are skipped by the suite itself.

A test that failed on both sides ran again, on one side after the other and on the ports that the suite expects. This outcome counts.
A test whose outcome differed ran again in {rounds} rounds, on one side after the other: in the first round with all tests of its file, then alone.
It is *different* if ours then showed an outcome that redis-py has not shown, or if one side showed an outcome in at least {more} rounds more than the other.
`make compat` then fails.
It is *wavering* otherwise: its outcome depends on the moment.

{gap}{sections}"""

SECTION = """\
## redis-py {version}

Tested: the client whose `git rev-parse HEAD:client` begins with {tree}, with Python {python} and Redis {server}.
Our side sent {hints} hints.

{table}

Tests whose outcome differed in the first round:

{doubts}

What does not pass on both sides:

{failed}
"""
