"""The numbers of this demonstration, each with its unit and reason. The shop's numbers are in `demo.plan`."""

from __future__ import annotations

PARTITIONS = 12  # divides evenly among one, two and three updaters
TOPIC, GROUP = "hints", "shop"
# the silence after which the others take an updater's partitions: short, so that it can be watched (usual: 10 s)
SESSION_S = 3
EVERY_S = 1.0  # between two refreshes of a product that is read
BUDGET = 400  # rows per second of the whole group: twice the need of both pages, so that one updater can do the work of two

WARM_UP_S = 4.0  # nothing is counted: hints must arrive, and each product be refreshed a few times
KILL_AT = 0.35  # of the run
START_AT = 0.65  # of the run: a new updater starts, or later if some partition has no owner by then
FOLLOW_UP_S = 3.0  # the least time that the new group of two works, however short the run

OWNED_TIMEOUT_S = (
    30.0  # until all partitions are owned: a session, a rebalance and ten times that for a busy machine
)
REST_S = 15.0  # at most, for the last refreshes after the last change; it takes one or two
SHARE_AGAIN = 2.0  # of the usual share of stale reads, allowed at the end: the luck of a few seconds
SHARE_SLACK = 0.02  # of all reads, beside that
TOLD_STALE = 1 / 10  # of the other page's share of stale reads, where changes are announced
# of the usual median: the time that a read may take while partitions have no owner. A machine with two cores has noise
SLOWER = 3.0
SLOWER_SLACK_S = 0.002
