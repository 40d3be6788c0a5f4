"""Changes that nobody announced, told by the database's log, 20,000 times in `make prove`: no promise is ever broken.

At rest each value equals its row, whoever wrote the row, and no reader has confirmed what was not safe. Faults that are planted
in readers, sinks and engines must be found. `docs/explanation/simulation.md` says what is real and what is fake.
"""

from __future__ import annotations

from functools import partial

import pytest
from simulated import campaign
from simulated.faults import FED_KINDS
from suite.machine import apart

LEAST = 23  # how often each kind of fault must have happened in a thousand schedules
PLANTED_WITHIN = 1_000  # schedules


@pytest.mark.campaign(short=100, full=20_000, block=1_000)
def test_unannounced_changes_keep_every_promise_under_every_fault(seeds, record_property):
    report = apart(partial(campaign.run_block, fed=True), seeds)
    record_property("figure: schedules with a feed", report.schedules)
    record_property("figure: schedules with a feed, seconds of CPU", round(report.seconds, 1))
    record_property("figure: schedules with a feed, of them with memory queues", report.memory)
    record_property("figure: schedules with a feed, of them with a log for each table", report.split)
    record_property("figure: schedules with a feed, of them with tables that are polled", report.polled)
    assert not report.failures, campaign.explain(report.failures, fed=True)
    for kind in FED_KINDS:
        record_property(f"figure: schedules with a feed, {kind} fired", report.fired[kind])
    assert report.memory >= len(seeds) // 4
    assert report.split >= len(seeds) // 5
    assert report.polled >= len(seeds) // 12
    assert not [kind for kind in FED_KINDS if report.fired[kind] < LEAST * len(seeds) // 1_000]


@pytest.mark.prove
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("planted", "breaks"),
    [
        ("confirmed before queued", "K1"),
        ("a memory queue is safe", "K1"),
        ("a memory queue is safe", "S2"),
        ("fed changes of unread keys are dropped", "L1"),
        ("fed changes of unread keys are dropped", "S2"),
        ("fed changes are declined while a load runs", "L1"),
        ("the second sweep is left out", "S2"),
        ("fed changes do not lean on older hints", "K1"),
        ("polled without an overlap", "S2"),
        ("a reader without a share of the budget waits for ever", "I1"),
    ],
)
def test_schedules_find_a_planted_fault(planted, breaks, record_property):
    seed, violations, number = campaign.first_failure(planted, breaks, within=PLANTED_WITHIN)
    assert violations
    what = f"planted in the way of fed changes, {planted!r} breaks {breaks}"
    record_property(f"figure: {what}, first seed", seed)
    record_property(f"figure: {what}, in which of the schedules that it concerns", number)
