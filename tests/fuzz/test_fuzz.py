"""No input of a stranger ends an updater, holds it up or fills its memory. `make prove` tries a million inputs in ten minutes.

The full form runs a process for each target, with the lowest priority. It prints the command that replays what it found. It
is steered by coverage where atheris has a wheel. The short form takes seconds and tries the same inputs each time.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import pytest
from fuzz import fuzzing
from fuzz.fuzzing import Found, Guard, plainly, until
from fuzz.targets import TARGETS
from suite.machine import PATIENCE

ROOT = Path(__file__).parents[2]
SHORT_INPUTS = 300
FULL_S = 600.0 / len(TARGETS)  # all together take at least ten minutes
WORKING_S = 3600.0  # for the least urgent process of a busy machine
LEAST = 1_000_000
LEAKS = 6  # one in so many of a run's inputs is tried again, to see what memory stays


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_in_a_short_while_is_more_than_an_updater_bears(name):
    target = TARGETS[name]
    with ExitStack() as stack:
        plainly(Guard(target.make(stack)), target, seed=1, enough=until(SHORT_INPUTS, 0.0))


def test_all_targets_together_hear_a_million_inputs():
    assert sum(each.inputs for each in TARGETS.values()) >= LEAST


@pytest.mark.campaign
@pytest.mark.prove
@pytest.mark.timeout(WORKING_S)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_more_than_an_updater_bears(name, amount, record_property):
    inputs, seconds = amount(0, TARGETS[name].inputs), amount(0.0, FULL_S)
    seed = SystemRandom().randrange(1, 1 << 31)  # a new one each time, so that each run looks elsewhere
    said = fuzzed(name, seed, inputs, "--seconds", str(seconds))
    record_property(f"figure: inputs of {name}, seed {seed}", said["inputs"])
    record_property(f"figure: ms of the slowest of {name}", said["slowest_ms"])
    assert said["inputs"] >= inputs
    left = fuzzed(
        name, seed, inputs // LEAKS, "--plain"
    )  # atheris keeps memory itself, so our leaks show only without it
    record_property(f"figure: MiB that {inputs // LEAKS:,} inputs of {name} have left", left["grown_mib"])


def fuzzed(name, seed, inputs, *more):
    """The last words of a run that found nothing."""
    command = [
        sys.executable,
        "tests/support/fuzz/fuzzing.py",
        name,
        "--seed",
        str(seed),
        "--inputs",
        str(inputs),
        *more,
    ]
    done = subprocess.run(
        command, cwd=ROOT, preexec_fn=lambda: os.nice(PATIENCE), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


# --- the guard itself -----------------------------------------------------------------------------------


def raises(_):
    raise KeyError("nobody expected it")


def ends(_):
    raise SystemExit(70)


def hangs(_):
    for _ in range(30_000_000):
        pass


@pytest.mark.prove
@pytest.mark.parametrize("target", [raises, ends, hangs])
def test_an_input_that_is_not_borne_is_found(target):
    with pytest.raises(Found):
        Guard(target)(b"x")


def test_an_input_that_takes_much_memory_is_found(monkeypatch):
    """The peak is planted, for the tests' own process may already have had a high one."""
    peaks = iter([100.0, 110.0, 150.0])
    monkeypatch.setattr(fuzzing, "peak", lambda: next(peaks))
    guard = Guard(len)
    guard(b"x")
    guard(b"little")
    with pytest.raises(Found, match="it took 40 MiB"):
        guard(b"much")


def test_inputs_that_leave_something_behind_are_found(monkeypatch):
    monkeypatch.setattr(fuzzing, "peak", itertools.count(100, 20).__next__)
    guard = Guard(len)
    for _ in range(4):
        guard(b"x")
    with pytest.raises(Found, match="5 inputs have left 80 MiB"):
        guard(b"x")


def test_what_is_found_is_told_with_the_command_that_shows_it_again(tmp_path):
    program = (
        "import sys; sys.path.insert(0, 'tests/support'); from fuzz import fuzzing, targets\n"
        "targets.TARGETS['bad'] = targets.Target(lambda _: lambda data: 1 / (b'7' not in data), lambda: [b'1'], 9)\n"
        "sys.argv[1:] = ['bad', '--plain', '--inputs', '100000', '--seed', '3']\n"
        "sys.exit(fuzzing.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError" in done.stdout
    replay = next(line for line in done.stdout.splitlines() if line.startswith("replay: "))
    file = ROOT / replay.split()[-1]
    assert b"7" in file.read_bytes()
    file.unlink()
    assert "--seed 3 --inputs" in done.stdout
