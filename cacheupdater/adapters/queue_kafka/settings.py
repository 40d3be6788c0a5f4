"""How we speak to Kafka: every number and setting, with its reason.

`member` builds its consumer from them, the other modules take their waits. All of it follows from one number that an
operator chooses, the session: how long a member may be silent before its partitions go to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

if TYPE_CHECKING:
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

SESSION = (
    45.0  # seconds; Kafka's own default since 3.0: longer than the restart of a process with a static id
)
HEARTBEATS = (
    15  # per session; one lost packet, or a loop that is blocked for a while, must not cost the partitions
)
# Seconds between two heartbeats, however long the session: with one of them a member hears of a rebalance, and must then hand
# over within what REBALANCE leaves.
HEARTBEAT_MOST = 3.0
# Seconds that a hand-over may take: the supervisor's 5 s for the work and 1 s for tasks that resist, and the commit.
SETTLE = 8.0
# Seconds that the group waits for a member before it goes on without it. It hears of a rebalance with its next
# heartbeat and then hands over.
REBALANCE = 15.0
# Seconds. A join is answered when all have joined or REBALANCE is over, so it must be more; and well below a session,
# so that a connection which has died silently is noticed and renewed before the session ends.
REQUEST = REBALANCE + 5.0
METADATA_AGE = 30.0  # seconds after which added partitions are noticed
RETRY = 0.25  # seconds between two attempts of aiokafka; it logs each, and its default of 0.1 s floods the log of an outage
# Seconds a broker may hold a fetch that finds nothing. A partition that is resumed or placed waits for the fetch under
# way, so this is its latency; and an idle updater sends 5 fetches a second and broker.
FETCH_WAIT = 0.2
FETCH_BYTES = (
    256 * 1024
)  # per partition and fetch, as stored: some 25 packs of 500 keys, or 100 compressed; a pause throws one away
FETCH_BYTES_ALL = (
    8 * 1024 * 1024
)  # per fetch: memory is this and the lanes, whatever the number of partitions
POLL_WAIT = (
    0.1  # seconds; a poll returns at the first pack, this bounds how late it sees that a rebalance has passed
)
POLL_PARCELS = 2000  # taken from aiokafka at once: one a partition, whatever is in it
AGAIN = 0.5  # seconds until a broker that failed us is asked again
COMMIT_EVERY = 0.2  # seconds: all partitions of a process commit together, five requests a second
COMMIT_WITHIN = 2.0  # seconds; a commit is tried again anyway, and hand-over waits for it
ANSWER_WITHIN = 5.0  # seconds for the watch's question to a broker; no answer in that time counts as away
CLOSE_WITHIN = 3.0  # seconds for the farewell (LeaveGroup); what hangs then is abandoned, the session ends it
PATIENCE = 3  # sessions of standing still until the watch ends the process: see `patience`


def consumer(session: float) -> dict[str, Any]:
    """What AIOKafkaConsumer is given beside the address, the group and the instance."""
    return {
        # A place is committed when its hints are finished, by us, never because it was read.
        "enable_auto_commit": False,
        # We start at the earliest ourselves (`placing`): aiokafka would do so silently, and what was lost be counted by nobody.
        "auto_offset_reset": "none",
        "session_timeout_ms": ms(session),
        "heartbeat_interval_ms": ms(min(session / HEARTBEATS, HEARTBEAT_MOST)),
        "rebalance_timeout_ms": ms(REBALANCE),
        # Never. It is for programs that work between two polls; ours does not, and is right to wait for a broker that is away.
        # aiokafka would leave the group then, and not join again before the next poll. A broken poller is seen by the watch.
        "max_poll_interval_ms": 2**31 - 1,
        "request_timeout_ms": ms(REQUEST),
        "retry_backoff_ms": ms(RETRY),
        "metadata_max_age_ms": ms(METADATA_AGE),
        "fetch_max_wait_ms": ms(FETCH_WAIT),
        "max_partition_fetch_bytes": FETCH_BYTES,
        "fetch_max_bytes": FETCH_BYTES_ALL,
        "max_poll_records": POLL_PARCELS,
        "check_crcs": False,  # of what is sealed; those inside are looked at when they are unpacked
        # Exactly one: aiokafka sends a join for each of several, one after another.
        "partition_assignment_strategy": (_assignor(),),
    }


def patience(session: float) -> float:
    """Seconds of standing still that are too many. More than a rebalance may wait for one member that does not answer."""
    return max(PATIENCE * session, REBALANCE + session)


def _assignor() -> type[AbstractPartitionAssignor]:
    """Sticky, with memory of its own.

    Over 400 random joins and leaves of up to 12 members it took 751 of 12 partitions from members that stayed, where 640 is the
    least possible and round robin took 3790; both are even to one partition. What a policy has learned of a partition's
    keys stays in the process, so each spared move is spared learning. aiokafka keeps the last assignment in the class itself: two
    queues in one process would tell the group each other's.
    """
    memory = {"member_assignment": None, "generation": StickyPartitionAssignor.DEFAULT_GENERATION_ID}
    return type("StickyAssignor", (StickyPartitionAssignor,), memory)


def ms(seconds: float) -> int:
    """As Kafka counts."""
    return round(seconds * 1000)
