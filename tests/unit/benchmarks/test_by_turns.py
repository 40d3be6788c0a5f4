"""Two trees in one process: each runs its own code, and the slower one is found."""

from __future__ import annotations

import shutil
import sys

import by_turns
import pytest
import run
from by_turns import benchmark_of, times_as_long


@pytest.fixture
def modules(monkeypatch):
    """The modules of this process are there again afterwards."""
    before = dict(sys.modules)
    monkeypatch.setattr(by_turns, "WARM_STEPS", 3)
    yield
    sys.modules.clear()
    sys.modules.update(before)


@pytest.fixture
def slower(tmp_path):
    """This tree, whose engine does some more in each step."""
    for each in ("cacheupdater", "client"):
        shutil.copytree(run.TREE / each, tmp_path / each, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "benchmarks").mkdir()
    plain = (run.TREE / "benchmarks/dedup.py").read_text("utf-8")
    head = "    def step(self, payloads, now):\n"
    assert head in plain
    text = plain.replace(head, head + "        floor(payloads * 20)\n")
    (tmp_path / "benchmarks/dedup.py").write_text(text, "utf-8")
    return tmp_path


def test_a_slower_tree_is_found_beside_this_one(modules, slower):
    theirs, ours = benchmark_of(slower), benchmark_of(run.TREE)
    assert theirs.__file__ != ours.__file__
    assert theirs.Engine is not ours.Engine
    assert times_as_long(theirs, ours, "uniform", 0.1, steps=30) > 2.0
    assert 0.5 < times_as_long(ours, ours, "uniform", 0.1, steps=30) < 2.0


def test_the_search_path_is_as_before(modules):
    before = list(sys.path)
    benchmark_of(run.TREE)
    assert sys.path == before
