"""`make bench AGAINST=REV`: is this tree slower than that commit, or is the machine only noisy?

    python benchmarks/against.py REV            # all benchmarks
    python benchmarks/against.py REV p5 p9      # some

Each benchmark runs in rounds of three: this tree, the commit, this tree once more, in a rotating order. A round gives one
pair (this tree / the commit) and one pair of equals (this tree / this tree). A row is *slower* if the median of its seven
pairs exceeds 1.03 by more than the equals differ. Uncommitted changes are part of this tree. The commit is unpacked beside
build/. Both trees run in this virtual environment, each with its own benchmarks; a benchmark whose file differs between the
two is marked. Exits 1 if a row is slower.
"""

from __future__ import annotations

import io
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import run
import table

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 7
ALLOWED = 1.03  # times; a change that costs more needs a reason
FILE = table.FILE.with_name("against.json")

Rows = Mapping[str, Mapping[str, object]]  # of one run, by name


class Round(NamedTuple):
    """One benchmark, run three times."""

    ours: Rows
    theirs: Rows
    again: Rows  # ours


class Verdict(NamedTuple):
    """One row of both trees. A ratio above 1 means that ours is worse, whatever the row measures."""

    name: str
    ours: float
    theirs: float
    ratio: float
    noise: float
    """How far the two runs of our own tree differ: the median of the rounds."""

    @property
    def slower(self) -> bool:
        """Whether ours is slower by more than is allowed, and by more than the machine's own noise."""
        return self.ratio > ALLOWED + self.noise


def verdicts(rounds: Sequence[Round]) -> list[Verdict]:
    """A verdict on every row that both trees have."""
    names = [name for name in rounds[0].ours if all(name in each.theirs for each in rounds)]
    return [_verdict(name, rounds) for name in names]


def _verdict(name: str, rounds: Sequence[Round]) -> Verdict:
    pairs = [_worse(each.ours[name], each.theirs[name]) for each in rounds]
    equals = [abs(_worse(each.ours[name], each.again[name]) - 1.0) for each in rounds]
    ours, theirs = (
        statistics.median(float(str(rows[name]["ratio"])) for rows in side)
        for side in ([each.ours for each in rounds], [each.theirs for each in rounds])
    )
    return Verdict(name, ours, theirs, statistics.median(pairs), statistics.median(equals))


def _worse(one: Mapping[str, object], other: Mapping[str, object]) -> float:
    """How many times worse `one` is."""
    first, second = float(str(one["ratio"])), float(str(other["ratio"]))
    if one["better"] == "higher":
        first, second = second, first
    if not second:
        return 1.0 if not first else float("inf")
    return first / second


def unpacked(rev: str, into: Path) -> Path:
    """Unpacks the commit's files, without git: a worktree would outlive an interrupted run."""
    done = subprocess.run(["git", "archive", rev], cwd=run.TREE, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"AGAINST={rev}: {done.stderr.decode().strip()}")
    shutil.rmtree(into, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # Debian 12's 3.11.2 has no filters yet; the archive is git's, of a commit of our own
        archive.extractall(into, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return into


def measured(ours: Path, theirs: Path) -> Iterable[Round]:
    """Measures round by round. The order rotates, for the first run finds the caches cold."""
    for number in range(ROUNDS):
        said: dict[int, Rows] = {}
        for turn in range(3):
            place = (number + turn) % 3
            said[place] = {str(each["name"]): each for each in run.rows_of(theirs if place == 1 else ours)}
        print(f"   round {number + 1} of {ROUNDS}", flush=True)
        yield Round(said[0], said[1], said[2])


def show(found: Sequence[Verdict], *, same: bool) -> None:
    """A line per row."""
    print(f"{'row':<24}{'this':>10}{'that':>10}{'this/that':>11}{'noise':>8}")
    for each in found:
        word = "SLOWER" if each.slower else "" if same else "the benchmark itself differs"
        print(
            f"{each.name:<24}{each.ours:>10.4g}{each.theirs:>10.4g}{each.ratio:>11.3f}{each.noise:>8.3f}  {word}"
        )


def main(rev: str, wanted: list[str]) -> int:
    """Runs benchmark after benchmark, so that compared figures come from the same minutes."""
    tree = unpacked(rev, table.FILE.parent / "against")
    theirs = run.scripts(tree, wanted)
    kept: list[Verdict] = []
    for name, ours in run.scripts(run.TREE, wanted).items():
        if name not in theirs:
            print(f"-- {name} {ours.stem}: {rev} has no such benchmark")
            continue
        print(f"-- {name} {ours.stem}", flush=True)
        found = verdicts(list(measured(ours, theirs[name])))
        show(found, same=ours.read_bytes() == theirs[name].read_bytes())
        kept += found
    if not kept:
        print("nothing was compared: name benchmarks that both trees have")
        return 2
    FILE.write_text(json.dumps([{**each._asdict(), "slower": each.slower} for each in kept], indent=1) + "\n")
    return int(any(each.slower for each in kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
