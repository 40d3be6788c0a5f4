"""Two trees in one process: each runs its own code, and the slower one is found."""

from __future__ import annotations

import shutil
import sys

import by_turns
import pytest
import run
from by_turns import benchmark_of, times_as_long

STEP = "    def step(self, payloads, now):\n"


@pytest.fixture
def slower(tmp_path):
    """This tree, whose engine does some more in each step, and whose P5 has another name."""
    for each in ("cacheupdater", "client"):
        shutil.copytree(run.TREE / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    plain = (run.TREE / "benchmarks/dedup.py").read_text("utf-8")
    assert STEP in plain
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/p5_of_old.py").write_text(
        plain.replace(STEP, f"{STEP}        floor(payloads * 20)\n"), "utf-8"
    )
    return tmp_path


@pytest.mark.prove
def test_a_slower_tree_is_found_beside_this_one(slower, monkeypatch):
    monkeypatch.setattr(by_turns, "WARM_STEPS", 3)
    theirs, ours = benchmark_of(slower), benchmark_of(run.TREE)
    assert theirs.Engine is not ours.Engine
    assert times_as_long(theirs, ours, "uniform", 0.1, steps=30) > 2.0
    assert 0.5 < times_as_long(ours, ours, "uniform", 0.1, steps=30) < 2.0


def test_the_process_keeps_its_modules_and_its_search_path(slower):
    modules, path = dict(sys.modules), list(sys.path)
    benchmark_of(slower)
    assert sys.path == path
    assert {name: sys.modules[name] for name in modules} == modules


def test_a_tree_without_p5_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no P5"):
        benchmark_of(tmp_path)
