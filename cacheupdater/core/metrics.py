"""The names of all metrics, in one place, and the tally in which the pure core counts.

The partition drains a tally now and then and passes its totals to the observer. So the core reports without an observer.
"""

from __future__ import annotations

from typing import Literal

Metric = Literal[
    "hints",  # counter by kind: hints that reached the engine, repeated ones included
    "namespace_hints",  # counter by namespace: the same, estimated from one key of each pack
    "decisions",  # counter by namespace and reason: what the automaton decided (accept, merge, hold, block, ...)
    "refreshes",  # counter by namespace and result: how heads ended
    "dropped",  # counter by namespace and reason: hints given up
    "absent_rows",  # counter by namespace: rows of unseen keys that do not exist: they are charged to the absent bucket
    "unseen_waiting",  # gauge by namespace: misses of unseen keys that wait for the absent bucket
    "rows",  # counter by namespace: rows asked of the source
    "statements",  # counter by namespace
    "errors",  # counter by namespace and reason: failed loads and writes
    "unsound",  # counter by reason: invalid entries under our names in Redis, treated as absent
    "prolonged",  # counter by namespace and result: old values for which more time was asked, as their source failed
    "invalidations",  # counter by namespace: keys removed because a change could not be served
    "fed",  # counter by namespace and result: keys of changes that a feed told: refreshed, or removed as nobody reads them
    "removals_at_once",  # counter by namespace: invalidations that could not wait for the rate of removals
    "removals_waiting",  # gauge by partition: keys that wait for this rate
    "intake_rejected",  # counter by reason: packs and frames refused
    "peers",  # gauge: connected hint senders
    "clients",  # gauge: for how many clients these stand
    "load_seconds",  # histogram by namespace
    "write_seconds",  # histogram by namespace
    "unit_keys",  # histogram by namespace: keys per unit
    "turn_seconds",  # histogram: how long one turn keeps everything else waiting
    "turn_cpu_seconds",  # histogram: processor time of the same turns
    "hint_to_write_seconds",  # histogram by namespace: from a hint's arrival to its written value
    "read_age_seconds",  # histogram by namespace: the age of a value when it is read, for a sample of reads
    "source_up",  # gauge by source: 1, or 0 while its loads fail
    "source_silence_seconds",  # gauge by source: since its last success
    "source_slots",  # gauge by source: units that it may serve at a time
    "source_probed",  # gauge by source: 1 while its breaker is open, so that it gets nothing but probes
    "nobodys_share",  # gauge: share of a minute's hints that are of no namespace
    "elsewhere",  # gauge: 1 where applications read another Redis than ours
    "price",  # gauge by source: stale reads that a row must prevent
    "budget_used",  # gauge by source: share of the budget
    "budget_unneeded",  # gauge by source: share of the budget that was not worth spending
    "learned",  # gauge by source: keys that the policy knows
    "starved",  # gauge by source: keys that are not worth the price
    "stale_estimated",  # gauge by namespace: share of stale reads
    "stale_measured",  # gauge by namespace: the same, measured on a sample
    "stale_measured_low",  # gauge by namespace: its lower bound, with 95 % confidence
    "stale_measured_high",  # gauge by namespace: its upper bound, with 95 % confidence
    "over_age",  # counter by namespace: reads of values older than their max_age
    "pending",  # gauge by partition: live heads, tails and invalidations
    "tracked",  # gauge by partition: keys with a seat
    "oldest_open_seconds",  # gauge by partition: time since the oldest unfinished hint was read
    "scan_offset",  # gauge by partition
    "done_offset",  # gauge by partition
    "quarantined",  # gauge by partition
    "slow_keys",  # gauge by partition: keys that run apart, for one of them makes its units slow
    "paused",  # gauge by namespace: 1 while an operator has paused it
    "troubles",  # gauge by event: how many troubles of this kind stand
    "partitions",  # gauge: partitions of the topic
    "lag",  # gauge by partition: packs on the queue that are not finished
    "rebalances",  # counter: how often the group has shared out the partitions
    "lost_packs",  # counter by reason: packs that left the queue before they were read
    "skipped_batches",  # counter by reason: batches of the queue that were skipped unread
    "commit_failures",  # counter by reason
    "put_back",  # counter: hints that had been open for long and were written anew on their queue
    "collected",  # counter by kind: hints that clients have handed to a collector
    "forwarded",  # counter by kind: hints that the queue behind a collector has taken, each for all that were merged into it
    "merged",  # counter by kind: hints that a collector has merged into another of the same key
    "waiting",  # gauge: hints in a collector that are neither forwarded nor dropped
    "drained",  # counter by kind: hints of an old queue that the new one has taken
    "spilled",  # counter by kind: hints that a collector has written to disk
    "replayed",  # counter by kind: hints from disk that the queue behind a collector has taken
    "spill_dropped",  # counter by reason: hints on a collector's disk that were given up
    "spill_hints",  # gauge: hints on a collector's disk that were neither replayed nor dropped
    "spill_bytes",  # gauge: bytes of a collector's segments
    "spill_age_seconds",  # gauge: age of a collector's oldest segment
    "feed_reads",  # gauge by source: 1 in the process that reads the feed
    "feed_changes",  # counter by source: changed rows that the feed has told
    "feed_keys",  # counter by source: keys that these rows concern
    "feed_unmapped",  # counter by source: rows that did not tell a column of a key, or whose values cannot stand in a key
    "feed_skipped",  # counter by source and reason: events that tell no change and were passed over
    "feed_lag_seconds",  # histogram by source: from a commit until its change was read
    "feed_waiting",  # gauge by source: what waits there for the reader: bytes, rows or messages
    "config_last_reload_successful",  # gauge: 1, or 0 after a refused reload
    "config_last_reload_success_timestamp_seconds",  # gauge: when the configuration was last taken over
]


class Tally:
    """Counts since the last drain."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[Metric, str, str], int] = {}

    def add(self, metric: Metric, amount: int, label: str = "", *, reason: str = "") -> None:
        """`label` is the namespace or kind, `reason` the result or cause; both come from closed sets."""
        if amount:
            key = (metric, label, reason)
            self._counts[key] = self._counts.get(key, 0) + amount

    def drain(self) -> dict[tuple[Metric, str, str], int]:
        """The counts since the last drain. The tally begins again at zero."""
        counts, self._counts = self._counts, {}
        return counts
