"""The demonstration as a newcomer runs it: its checks pass, it ends by itself, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from suite.ends import has_ended

pytestmark = pytest.mark.live

SECONDS = 8  # the shortest with time for the kill in the middle


def demo(folder, seconds):
    """Its temporary files in a place of the test's."""
    command = [sys.executable, "-m", "cacheupdater", "demo", "--plain", "--duration", str(seconds)]
    environ = {**os.environ, "TMPDIR": folder, "PYTHONUNBUFFERED": "1"}  # noqa: TID251  handed on to a child
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def folder():
    """A short path, for a unix socket lies in it; and nothing is left there."""
    made = Path(tempfile.mkdtemp(prefix="cu"))
    yield str(made)
    assert list(made.iterdir()) == []
    made.rmdir()


@pytest.mark.prove
def test_demo_passes_its_own_checks_with_the_updater_killed_in_the_middle(folder):
    with demo(folder, SECONDS) as process:
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert "FAILED" not in said
    assert said.count("\nok ") == 7, said  # without the comparisons, which take longer
    for text in ("kill -9", "hints reach it again", "fresh", "No gain.", "Losses.", "price + invalidate"):
        assert text in said


def test_demo_stops_everything_it_started_when_it_is_told_to_end(folder):
    with demo(folder, 60) as process:
        heard = []
        assert any("warm-up" in (heard.append(line) or line) for line in process.stdout), "".join(heard)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said
    assert len(started) >= 6  # a Redis, an updater, four applications
    _, left = psutil.wait_procs(started, timeout=60)
    assert [each.cmdline() for each in left if not has_ended(each)] == []
