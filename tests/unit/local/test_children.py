"""A child process of ours: what `pause` promises."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from cacheupdater.local.children import Child

THREADS = 16
BUSY = f"""
import threading
begin = threading.Event()
def work():
    begin.wait()
    while True:
        sum(range(10_000))
for _ in range({THREADS}):
    threading.Thread(target=work).start()
print("ready", flush=True)
begin.set()
"""


class Busy(Child):
    """A program of many threads, none of which waits any more once all have been started."""

    _STOP_TIMEOUT_S = 5.0


@pytest.fixture
def busy(tmp_path):
    child, log = Busy(), tmp_path / "log"
    child._run([sys.executable, "-c", BUSY], log)
    while "ready" not in log.read_text("utf-8"):
        assert child.running
    yield child
    child.kill()


def states(pid):
    """The state of each thread, as the kernel has it: T is stopped."""
    found = (path.read_text("utf-8") for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    return [text.rpartition(")")[2].split()[0] for text in found]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the states of threads are read from /proc")
def test_a_paused_program_stands_still_in_all_its_threads_and_goes_on_afterwards(busy):
    for _ in range(30):
        busy.pause()
        assert states(busy.pid) == ["T"] * (THREADS + 1)
        busy.resume()
    assert busy.running


@pytest.mark.parametrize("collected", [False, True], ids=["ended", "ended and collected"])
def test_a_program_that_has_ended_can_be_paused(busy, collected):
    os.kill(busy.pid, signal.SIGKILL)
    # WNOWAIT leaves the dead program where it is, as a program is that has just ended
    os.waitid(os.P_PID, busy.pid, os.WEXITED | os.WNOWAIT)
    if collected:
        busy._process.wait()
    busy.pause()
    assert not busy.running
    assert busy._process.returncode == -signal.SIGKILL
