"""The two forms of the suite: the tests and the size of each, and the skipped tests in its summary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
SUITE = """
import pytest

def test_ordinary(): pass

@pytest.mark.prove
def test_long(): pass

@pytest.mark.campaign(short=3, full=20, block=10)
def test_schedules(seeds): print("seeds", seeds)

def test_story(amount): print("amount", amount(2, 5))

def test_of_another_server(): pytest.skip("needs what is not here")
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  prove\n  campaign\n")

    def run(*arguments):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "suite.proving",
            "-s",
            "-v",
            "-p",
            "no:cacheprovider",
        ]
        environ = {**os.environ, "PYTHONPATH": str(SUPPORT)}  # noqa: TID251  handed on to a child
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_short_form_has_all_but_what_is_long_and_a_share_of_each_campaign(run):
    said = run()
    assert "test_ordinary" in said
    assert "test_long" not in said
    assert "seeds range(0, 3)" in said
    assert "amount 2" in said
    assert "left out, needs what is not here:\n  test_suite.py::test_of_another_server" in said


def test_full_form_has_what_is_long_and_all_of_each_campaign(run):
    said = run("--prove")
    assert "test_ordinary" not in said
    assert "test_long" in said
    assert "seeds range(0, 10)" in said
    assert "seeds range(10, 20)" in said
    assert "amount 5" in said


def test_full_form_is_as_many_times_as_large_as_it_is_told(run):
    said = run("--prove", "--times", "2")
    assert "seeds range(30, 40)" in said
    assert "amount 10" in said


def test_no_block_of_a_campaign_begins_after_the_time_it_is_given_and_the_summary_names_each(run):
    said = run("--prove", "--within", "0")
    assert "test_long PASSED" in said
    assert "amount 5" in said
    assert "seeds range" not in said
    left = said.partition("left out, its turn came after the 0 s that the campaigns had:")[2]
    assert "test_schedules[0-9]" in left
    assert "test_schedules[10-19]" in left
    assert "seeds range(10, 20)" in run("--prove", "--within", "600")
    assert "seeds range(0, 3)" in run("--within", "0")


def test_no_story_begins_after_the_time_it_is_given(run):
    said = run("--prove", "--stories-within", "0")
    assert "test_long SKIPPED" in said
    assert "amount 5" not in said
    assert "seeds range(10, 20)" in said
    left = said.partition("left out, its turn came after the 0 s that the stories had:")[2]
    assert "test_long" in left
    assert "test_story" in left


def test_full_form_begins_where_it_is_told_and_runs_all_the_same(run):
    order = ["test_long", "seeds range(0, 10)", "seeds range(10, 20)", "amount 5"]
    for turn in (1, 4_000_000_002):
        said = run("--prove", "--turn", str(turn))
        first = turn % 4
        assert sorted(order, key=said.index) == order[first:] + order[:first]
    said = run("--prove")
    assert sorted(order, key=said.index) == order
