"""The whole service under every fault, 21,000 times in `make prove`: no promise of the design is ever broken.

In six of seven schedules its queue is a consumer group. The other queues move single partitions, and take hints back.

Faults that are planted in the service must be found within few schedules, or the simulation would prove nothing.
`docs/explanation/simulation.md` says which parts are real and which are fake.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from simulated import campaign
from simulated.faults import KINDS
from suite.machine import apart

ROOT = Path(__file__).resolve().parents[2]
LEAST = 23  # how often each kind of fault must have happened in a thousand schedules
PLANTED_WITHIN = 1_000  # schedules


@pytest.mark.campaign(short=150, full=21_000, block=1_000)
def test_service_keeps_every_promise_under_every_fault(seeds, record_property):
    report = apart(campaign.run_block, seeds)
    record_property("figure: whole-service schedules", report.schedules)
    record_property("figure: of them with a consumer group", report.groups)
    record_property(
        "figure: of them with four updaters on a topic that want more rows than they may have", report.crowds
    )
    record_property("figure: of these with reloads", report.reloaded)
    record_property("figure: of them with the policy `price`", report.priced)
    record_property("figure: of them with a fleet", report.fleets)
    record_property("figure: of them with a file of what was learned", report.files)
    assert report.priced >= len(seeds) // 4
    assert report.fleets >= len(seeds) // 50
    assert report.files >= len(seeds) // 8
    assert report.crowds >= len(seeds) // 30
    assert report.reloaded >= len(seeds) // 100
    for kind in KINDS:
        record_property(f"figure: fault {kind} fired", report.fired[kind])
    assert not report.failures, campaign.explain(report.failures)
    assert not [kind for kind in KINDS if report.fired[kind] < LEAST * len(seeds) // 1_000]


@pytest.mark.prove
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("planted", "breaks"),
    [
        ("naive", "S1"),
        ("naive", "S2"),
        ("token after the read", "S1"),
        ("no refresh after a refusal", "K1"),
        ("no refresh after a refusal", "L1"),
        ("commits scan", "K1"),
        ("absent marks outlive changes", "K1"),
        ("no hold-off", "S1"),
        ("dropped changes leave the value", "L1"),
        ("forgets paused changes", "L1"),
        ("takes each change for a set", "S2"),
        ("permits are not given back", "I1"),
        ("reads on while full", "M1"),
        ("rows are matched by their place", "V1"),
        ("replies of an exchange are crossed", "A1"),
        ("a call gets the reply of another one that is sent with it", "A1"),
        ("a claim is believed for ever", "Q1"),
        ("a new record is believed at once", "Q1"),
        ("a new record is believed after two exchanges", "Q1"),
        ("each member of a fleet spends the whole budget", "Q1"),
        ("learned keys go to another partition", "R1"),
        ("learned prices are forgotten", "R1"),
        ("overwrites foreign", "W1"),
        ("dropped changes remove foreign values", "W1"),
        ("an old value's time begins anew", "F1"),
        ("no value lives on", "F2"),
        ("values with a waiting change live on", "F3"),
        ("changes are put back as touches", "K1"),
        ("hints leave their place before they are put back", "K1"),
        ("what leans on hints that were put back is done", "K1"),
        ("the epoch is not checked at commit", "K1"),
        ("the adapter does not check the epoch", "K1"),
        ("each member spends the whole budget", "Q1"),
        ("a reloaded member spends the whole budget", "Q1"),
        ("what waits for Redis is spent already", "Q1"),
        ("work of an older epoch is kept", "K1"),
        ("an older epoch's place is kept", "I1"),
        ("a static member starts from scan", "L1"),
        ("a static member starts from scan", "K1"),
        ("new partitions are read from their end", "L1"),
        ("what retention took is not counted", "L1"),
        ("packs of an older epoch are delivered", "O1"),
        ("hand-over does not commit", "H1"),
        ("commit after settled", "H1"),
    ],
)
def test_simulation_finds_a_planted_fault(planted, breaks, record_property):
    seed, violations, number = campaign.first_failure(planted, breaks, within=PLANTED_WITHIN)
    assert violations
    what = f"planted in the service, {planted!r} breaks {breaks}"
    record_property(f"figure: {what}, first seed", seed)
    record_property(f"figure: {what}, in which of the schedules that it concerns", number)


def traces_of(first, count, hash_seed):
    replay = [sys.executable, str(ROOT / "tests/simulation/replay.py"), "--seed", str(first), "--trace"]
    command = ["env", f"PYTHONHASHSEED={hash_seed}", *replay, "--count", str(count)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [f"{each}no violation" for each in said.split("no violation\n")[:-1]]


def test_seed_makes_the_same_trace_whatever_the_hashes():
    first, second = (traces_of(1, 3, hash_seed) for hash_seed in (0, 4711))
    assert first == second
    assert all(trace.count("\n") > 30 for trace in first)
    assert len(set(first)) == 3


def test_failure_prints_the_command_that_shows_it_again():
    seed, violations, _ = campaign.first_failure("commits scan", "K1", within=PLANTED_WITHIN)
    text = campaign.explain([(seed, violations)], "commits scan")
    command = text.splitlines()[0].split(": ", 1)[1].split(maxsplit=1)[1]
    again = subprocess.run(
        f"{sys.executable} {command}", shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert violations[0] in again.stdout
