"""The settings of our Kafka consumer and of its waits, each with its reason.

`member` builds its consumer from them; the other modules take their waits from them. Operators choose one number, the
session: how long a member may be silent before its partitions go to another one. The other numbers are fixed, or follow from
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

if TYPE_CHECKING:
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

SESSION = 10.0  # seconds; Kafka's default of 45 would let a killed member's partitions wait as long
HEARTBEATS = (
    15  # per session; a lost packet, or a loop that is blocked for a while, must not cost the partitions
)
# Seconds between two heartbeats, even in a long session: a member hears of a rebalance by a heartbeat, and must then hand
# over in the rest of REBALANCE.
HEARTBEAT_MOST = 3.0
# Seconds that a hand-over may take: the supervisor's 5 s for the work and 1 s for tasks that resist, and the commit.
SETTLE = 8.0
# Seconds that the group waits for a member before it goes on without it. The member hears of a rebalance by its next
# heartbeat, and then hands over.
REBALANCE = 15.0
# Seconds. A join is answered when all members have joined or REBALANCE is over, so this must be longer. A connection that is
# dead without a sign is noticed after so long: in a shorter session it costs the partitions, and a member that lives takes them.
REQUEST = REBALANCE + 5.0
METADATA_AGE = 30.0  # seconds after which added partitions are noticed
RETRY = 0.25  # seconds between two attempts of aiokafka; it logs each, and its default of 0.1 s floods the log of an outage
# Seconds that a broker may hold a fetch that finds nothing. A resumed or placed partition waits for the fetch under way,
# so this is its latency. An idle updater sends 5 fetches a second to each broker.
FETCH_WAIT = 0.2
FETCH_BYTES = (
    256 * 1024
)  # per partition and fetch, as stored: some 25 packs of 500 keys, or 100 compressed; a pause discards one fetch
FETCH_BYTES_ALL = (
    8 * 1024 * 1024
)  # per fetch: with any number of partitions, the memory is this and the inboxes
POLL_WAIT = (
    0.1  # seconds; a poll returns at the first pack, so this is how late it may see the end of a rebalance
)
POLL_PARCELS = 2000  # taken from aiokafka at once: one for each partition, of any content
AGAIN = 0.5  # seconds until a failed request is tried again
COMMIT_EVERY = 0.2  # seconds: all partitions of a process commit together, five requests a second
COMMIT_WITHIN = 2.0  # seconds; a commit is tried again anyway, and a hand-over waits for it
ANSWER_WITHIN = 5.0  # seconds for the watch's request to a broker; a broker that takes longer counts as away
CLOSE_WITHIN = (
    3.0  # seconds to leave the group (LeaveGroup); if this hangs, the end of the session ends the membership
)
PATIENCE = 3  # sessions without progress until the watch ends the process: see `patience`


def consumer(session: float) -> dict[str, Any]:
    """The arguments of AIOKafkaConsumer beside the address, the group and the instance."""
    return {
        # We commit an offset when its hints are finished, never because it was read.
        "enable_auto_commit": False,
        # We start at the earliest offset ourselves (`placing`): aiokafka would do it silently, without a count of lost packs.
        "auto_offset_reset": "none",
        "session_timeout_ms": ms(session),
        "heartbeat_interval_ms": ms(min(session / HEARTBEATS, HEARTBEAT_MOST)),
        "rebalance_timeout_ms": ms(REBALANCE),
        # Never. This limit is for programs that work between two polls. Ours does not, and it must wait for a broker that is
        # away; aiokafka would leave the group then, and join again only at the next poll. The watch finds a broken poller.
        "max_poll_interval_ms": 2**31 - 1,
        "request_timeout_ms": ms(REQUEST),
        "retry_backoff_ms": ms(RETRY),
        "metadata_max_age_ms": ms(METADATA_AGE),
        "fetch_max_wait_ms": ms(FETCH_WAIT),
        "max_partition_fetch_bytes": FETCH_BYTES,
        "fetch_max_bytes": FETCH_BYTES_ALL,
        "max_poll_records": POLL_PARCELS,
        "check_crcs": False,  # sealed batches have none; those of the batches inside are checked when they are unpacked
        # Exactly one strategy: of several, aiokafka sends a join for each, one after another.
        "partition_assignment_strategy": (_assignor(),),
    }


def patience(session: float) -> float:
    """The seconds without progress after which a consumer counts as stuck.

    They are more than a rebalance may wait for one member that does not answer.
    """
    return max(PATIENCE * session, REBALANCE + session)


def _assignor() -> type[AbstractPartitionAssignor]:
    """The sticky assignor, with memory of its own.

    In 400 random joins and leaves of up to 12 members, with 12 partitions, it moved partitions of staying members 751 times. The
    least possible is 640; round robin moved 3790. Both assign evenly, to within one partition. The price policy's knowledge of a
    partition's keys stays in the process, so each avoided move saves learning. aiokafka keeps the last assignment in the class
    itself: two queues in one process would report each other's assignment to the group.
    """
    memory = {"member_assignment": None, "generation": StickyPartitionAssignor.DEFAULT_GENERATION_ID}
    return type("StickyAssignor", (StickyPartitionAssignor,), memory)


def ms(seconds: float) -> int:
    """Milliseconds, as Kafka counts."""
    return round(seconds * 1000)
