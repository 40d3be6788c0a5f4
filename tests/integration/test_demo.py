"""The demonstration as a newcomer runs it: its checks pass, it ends by itself, and it leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import psutil
import pytest
from suite.ends import has_ended

pytestmark = pytest.mark.live

SECONDS = 8  # the shortest with time for the kill in the middle


def demo(folder, seconds, **options):
    """Its temporary files in a place of the test's."""
    command = [sys.executable, "-m", "cacheupdater", "demo", "--plain", "--duration", str(seconds)]
    environ = {**os.environ, "TMPDIR": folder, "PYTHONUNBUFFERED": "1"}  # noqa: TID251  handed on to a child
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


@pytest.fixture
def keyboard():
    """The options of a process that has a terminal of its own, and the function that types there."""
    ours, theirs = pty.openpty()

    def hold():
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    yield {"stdin": theirs, "start_new_session": True, "preexec_fn": hold}, lambda keys: os.write(ours, keys)
    os.close(theirs)
    os.close(ours)


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
    assert said.count("of all reads, those that found nothing and waited for the database") == 1
    assert said.rindex("\nok ") < said.index("As usual, "), "the main table is the last"
    assert said.splitlines()[-1].startswith("price + invalidate")


def test_demo_follows_the_keys_and_stops_everything_it_started_when_it_is_told_to_end(folder, keyboard):
    options, types = keyboard
    with demo(folder, 60, **options) as process:
        heard = []

        def until(text):
            assert any(text in (heard.append(line) or line) for line in process.stdout), "".join(heard)

        until("left, 30 rows/s")
        types(b"++")
        until("60 rows/s (SIGHUP)")
        until("left, 60 rows/s")
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said
    assert len(started) >= 6  # a Redis, an updater, four applications
    _, left = psutil.wait_procs(started, timeout=60)
    assert [each.cmdline() for each in left if not has_ended(each)] == []
