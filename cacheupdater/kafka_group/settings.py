"""The settings that all our consumers share, and the waits of `consumer`, each with its reason.

Operators choose one number, the session: how long a member may be silent before its partitions go to another one. The other
numbers are fixed, or follow from it. Each adapter adds what concerns its fetches.
"""

from __future__ import annotations

SESSION = 10.0  # seconds; Kafka's default of 45 would let a killed member's partitions wait as long
HEARTBEATS = (
    15  # per session; a lost packet, or a loop that is blocked for a while, must not cost the partitions
)
# Seconds between two heartbeats, even in a long session: a member hears of a rebalance by a heartbeat, and must then hand
# over in the rest of REBALANCE.
HEARTBEAT_MOST = 3.0
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
COMMIT_WITHIN = 2.0  # seconds; a commit is tried again anyway, and a hand-over waits for it
ANSWER_WITHIN = 5.0  # seconds for a question to a broker; a broker that takes longer counts as away
CLOSE_WITHIN = (
    3.0  # seconds to leave the group (LeaveGroup); if this hangs, the end of the session ends the membership
)
LET_GO = 0.5  # seconds for connections to close after that


def member(session: float) -> dict[str, object]:
    """The arguments of AIOKafkaConsumer for a member of a group, beside its address, its fetches and its assignor."""
    return {
        # An offset is committed when its work is safe, never because it was read.
        "enable_auto_commit": False,
        # Where to begin is our decision: aiokafka would begin silently, without a word of what is lost.
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
    }


def ms(seconds: float) -> int:
    """Milliseconds, as Kafka counts."""
    return round(seconds * 1000)
