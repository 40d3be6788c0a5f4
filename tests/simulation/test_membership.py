"""Members share a depot through pauses, kills, lost calls and set clocks: 20,000 schedules in `make prove`.

In no schedule do two epochs' commits both count, no cursor moves back, no pack is lost, nobody works on what another owns, and at
rest each partition is its rightful member's. Half of the packs are urgent, and lie in a lane of their own. A failure
prints its seed and the command that plays the schedule again.
"""

from __future__ import annotations

import pytest
from members.campaign import PLANTED_FAULTS, run_block
from members.plan import FAULTS
from suite.machine import apart

FOUND_WITHIN = 400  # schedules, for each fault that is planted


@pytest.mark.campaign(short=100, full=20_000, block=2_500)
def test_members_keep_the_promises_of_their_depot(seeds, record_property):
    report = apart(run_block, seeds)
    assert not report.failure, report.failure
    record_property("figure: members of a depot, schedules", report.schedules)
    record_property("figure: members of a depot, seconds of CPU", round(report.seconds, 1))
    for kind in ("claims", "packs", "refused", *FAULTS):
        record_property(f"figure: members of a depot, {kind}", report.counts[kind])
        assert report.counts[kind] >= len(seeds) / 25, "a kind that hardly occurs proves little"


@pytest.mark.prove
@pytest.mark.parametrize("planted", PLANTED_FAULTS)
def test_schedules_find_a_planted_fault(planted):
    report = run_block(range(FOUND_WITHIN), planted)
    assert report.failure
    assert f'python -m members {report.schedules - 1} "{planted}"' in report.failure
