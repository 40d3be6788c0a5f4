"""Two hundred readers in four processes ask for one missing key: who loads, and how long the others wait."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from live.updater_process import ROOT, eventually
from suite.pace import soonest

from cacheupdater.local.children import dying_with_us

PROGRAM = Path(__file__).parents[1] / "support" / "reading" / "crowd.py"
PROCESSES, READERS = 4, 50  # of each process, half of them threads and half tasks
LOAD_S = 0.5
LEASE_S = 3.0
LATE_S = 0.5  # threads that start, replies that wait for the processor; a tenth of this is usual
TIMEOUT_S = 0.5
HANGS_S = 6.0  # long after everybody was told, on a machine that is a second late too

pytestmark = pytest.mark.live


@contextmanager
def crowd(url, timeout, load_s, *, threads=READERS // 2, tasks=READERS // 2):
    """The processes, each with its readers."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "client")))
    command = [sys.executable, str(PROGRAM), url, str(threads), str(tasks), timeout, str(load_s)]
    with ExitStack() as stack:
        started = []
        for _ in range(PROCESSES):
            process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PATH": os.defpath, "PYTHONPATH": path},
            )
            stack.callback(ended, process)
            started.append(process)
        for process in started:
            assert process.stdout.readline() == "ready\n"
        yield started


def ended(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def ask(processes, key):
    for process in processes:
        process.stdin.write(f"{key}\n")
        process.stdin.flush()


def answers(processes):
    """What each reader got, and how long it waited."""
    return [each for process in processes for each in json.loads(process.stdout.readline())]


def test_two_hundred_readers_of_a_missing_key_cost_one_load(redis_url, plain, amount, record_property):
    rounds = amount(3, 30)
    with crowd(redis_url, "30s", LOAD_S) as processes:  # one load, however late its holder is
        for key in range(rounds):
            plain.delete("loads")
            ask(processes, key)
            assert [said for said, _ in answers(processes)] == [key] * PROCESSES * READERS
            assert plain.llen("loads") == 1
    record_property("figure: stampedes of 200 readers, each with one load", rounds)


def test_a_holder_that_is_killed_costs_one_more_load_and_nobody_waits_longer_than_its_lease_and_a_load(
    redis_url, plain, amount, record_property
):
    keys = count()

    def killed():
        """One stampede whose loader is killed; the longest wait of the others."""
        key = next(keys)
        plain.delete("loads")
        with crowd(redis_url, f"{LEASE_S:g}s", LOAD_S) as processes:
            ask(processes, key)
            eventually(lambda: plain.llen("loads"))
            holder = int(plain.lindex("loads", 0))
            os.kill(holder, signal.SIGKILL)
            others = [each for each in processes if each.pid != holder]
            got = answers(others)
        assert [said for said, _ in got] == [key] * len(others) * READERS
        if plain.llen("loads") == 1:
            return math.inf  # its value had landed before it was killed
        assert plain.llen("loads") == 2
        return max(waited for _, waited in got)

    waits = [soonest(killed, LEASE_S + LOAD_S + LATE_S) for _ in range(amount(1, 10))]
    assert min(waits) > LOAD_S, "nobody waited for the lease of the dead: this test proves nothing"
    record_property("figure: longest wait after the lease holder's death, in s", f"{max(waits):.2f}")


@pytest.mark.prove
@pytest.mark.parametrize(
    ("threads", "tasks"),
    [pytest.param(0, 50, id="tasks"), pytest.param(50, 0, id="threads")],
)
def test_a_loader_that_hangs_keeps_nobody_longer_than_the_timeouts_allow(
    redis_url, plain, threads, tasks, record_property
):
    """A thread that runs the loader itself cannot be interrupted; all others are told. The control is the same crowd with a
    loader that returns at once: so long the machine takes to ask and to answer."""
    keys = count()

    def hung():
        with crowd(redis_url, "30s", 0.0, threads=threads, tasks=tasks) as processes:
            ask(processes, next(keys))
            late = max(waited for _, waited in answers(processes))
        with crowd(redis_url, f"{TIMEOUT_S:g}s", HANGS_S, threads=threads, tasks=tasks) as processes:
            ask(processes, next(keys))
            told = [waited for said, waited in answers(processes) if said == "timeout"]
        assert len(told) >= PROCESSES * (threads + tasks - 1)
        return max(told) - late

    longest = soonest(hung, 3 * TIMEOUT_S + LATE_S)
    kind = "threads" if threads else "tasks"
    record_property(
        f"figure: longest wait of {kind} for a loader that hangs, beyond that of a quick one, timeout {TIMEOUT_S:g} s",
        f"{longest:.2f}",
    )
