"""What the queue adds to the settings of `kafka_group`: fetches, the assignor and its own waits, each with its reason.

`member` builds its consumer from them; the other modules take their waits from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from cacheupdater.kafka_group.settings import REBALANCE, member

if TYPE_CHECKING:
    from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor

# Seconds that a hand-over may take: the supervisor's 5 s for the work and 1 s for tasks that resist, and the commit.
SETTLE = 8.0
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
PATIENCE = 3  # sessions without progress until the watch ends the process: see `patience`


def consumer(session: float) -> dict[str, Any]:
    """The arguments of AIOKafkaConsumer beside the address, the group and the instance."""
    return {
        **member(session),
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
