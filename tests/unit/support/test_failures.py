"""A failure is on the screen before the next test has ended, with and without workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
SUITE = """
import pytest

@pytest.fixture
def broken():
    raise OSError("no server")

def test_first(): assert 1 == 2, "one is not two"

def test_second(broken): pass

def test_last(): pass
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_is_printed_when_it_happens(tmp_path, workers):
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "suite.failures",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
    ]
    environ = {**os.environ, "PYTHONPATH": str(SUPPORT)}  # noqa: TID251  handed on to a child
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    before, passed, _ = done.stdout.partition(
        "test_last PASSED" if workers == "0" else "PASSED test_suite.py::test_last"
    )
    assert passed, done.stdout + done.stderr
    assert "failed: test_suite.py::test_first, call" in before
    assert "one is not two" in before
    assert "failed: test_suite.py::test_second, setup" in before
    assert "no server" in before
