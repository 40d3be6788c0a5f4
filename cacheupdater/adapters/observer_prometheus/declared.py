"""Every metric of the updater, of the collector and of the drain, with its labels.

The observer makes its registry from this table, and `page` makes the reference page (`docs/reference/metrics.md`) from it. What
the values of labels mean stands in `meanings`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.adapters.observer_prometheus import meanings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.core.metrics import Metric

_IO_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_AGE_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
_TURN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_UNIT_KEYS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)  # a unit never holds more than 200


class Declared(NamedTuple):
    """One metric. `label` and `reason` are the names of the labels that hold the port's arguments of the same names.

    A `feed` has the name of its source. Sources without a feed have none of its series, or an alert would miss their reader.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: Literal["", "event", "feed", "kind", "namespace", "partition", "source"] = ""
    reason: str = ""
    reasons: Mapping[str, str] = MappingProxyType({})  # the values of `reason`, with their meanings
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        label = "source" if self.label == "feed" else self.label
        return tuple(name for name in (label, self.reason) if name)


DECLARED: dict[Metric, Declared] = {  # of the updater
    "hints": Declared("counter", "Hints that reached the engine, including repeated ones.", "kind"),
    "namespace_hints": Declared(
        "counter",
        "Hints of this namespace, including repeated ones; estimated from one key of each pack. Divided by `rows_total`: how many hints share a load.",
        "namespace",
    ),
    "decisions": Declared(
        "counter", "What the automaton decided about hints.", "namespace", "decision", meanings.DECISIONS
    ),
    "refreshes": Declared(
        "counter", "How the refreshes of keys ended.", "namespace", "result", meanings.RESULTS
    ),
    "dropped": Declared("counter", "Hints that were given up.", "namespace", "reason", meanings.DROPS),
    "absent_rows": Declared(
        "counter",
        "Rows that do not exist, asked for by misses of keys that no load has found before: see `missing.share`.",
        "namespace",
    ),
    "unseen_waiting": Declared(
        "gauge",
        "Misses of keys that no load has found before, while they wait for the absent bucket: see `missing.share`.",
        "namespace",
    ),
    "rows": Declared("counter", "Keys asked of the source; each costs a row of the budget.", "namespace"),
    "statements": Declared("counter", "Statements sent to the source.", "namespace"),
    "errors": Declared("counter", "Loads and writes that failed.", "namespace", "reason", meanings.ERRORS),
    "prolonged": Declared(
        "counter",
        "Old values for which more time was asked, because their source failed (`fail_safe`).",
        "namespace",
        "result",
        meanings.PROLONGED,
    ),
    "invalidations": Declared(
        "counter", "Keys removed because their change could not be served.", "namespace"
    ),
    "fed": Declared(
        "counter",
        "Keys of changes that a feed told.",
        "namespace",
        reason="result",
        reasons=meanings.FED,
    ),
    "unsound": Declared(
        "counter",
        "Invalid entries found in Redis under our names; they count as absent. Another program writes there.",
        reason="what",
        reasons=meanings.UNSOUND,
    ),
    "removals_at_once": Declared(
        "counter",
        "Invalidations that did not wait for the rate of removals: too many waited, or the partition went to another owner.",
        "namespace",
    ),
    "removals_waiting": Declared(
        "gauge", "Keys of dropped changes that wait for the rate of removals.", "partition"
    ),
    "intake_rejected": Declared(
        "counter",
        "Packs, frames and connections that were refused.",
        reason="reason",
        reasons=meanings.REJECTS,
    ),
    "peers": Declared("gauge", "Hint senders that are connected."),
    "clients": Declared(
        "gauge",
        "Clients for which the connected hint senders stand: one for each, and for a collector as many as it has, at most 64.",
    ),
    "load_seconds": Declared("histogram", "Time of one load.", "namespace", buckets=_IO_SECONDS),
    "write_seconds": Declared("histogram", "Time of one fenced write.", "namespace", buckets=_IO_SECONDS),
    "unit_keys": Declared("histogram", "Keys that were loaded together.", "namespace", buckets=_UNIT_KEYS),
    "turn_seconds": Declared(
        "histogram",
        "How long an intake or a step of a partition kept everything else in the process waiting.",
        buckets=_TURN_SECONDS,
    ),
    "turn_cpu_seconds": Declared(
        "histogram",
        "CPU time of the same turns. Other programs on a busy machine make turns longer, but not their CPU time.",
        buckets=_TURN_SECONDS,
    ),
    "hint_to_write_seconds": Declared(
        "histogram", "Time from a hint's arrival to its written value.", "namespace", buckets=_AGE_SECONDS
    ),
    "read_age_seconds": Declared(
        "histogram",
        "Age of a value when it is read, by its floor; for a sample of at most 20 reads a second.",
        "namespace",
        buckets=_AGE_SECONDS,
    ),
    "source_up": Declared("gauge", "1, or 0 while its loads fail.", "source"),
    "source_silence_seconds": Declared(
        "gauge",
        "Time since the last successful load, or since the start; it also grows while no loads are needed.",
        "source",
    ),
    "feed_reads": Declared("gauge", "1 in the updater that reads the feed of this source, else 0.", "feed"),
    "feed_changes": Declared("counter", "Changed rows that the feed has told.", "feed"),
    "feed_keys": Declared("counter", "Keys that these rows concern.", "feed"),
    "feed_unmapped": Declared(
        "counter",
        "Rows that did not tell a column of a key, or whose values cannot stand in a key.",
        "feed",
    ),
    "feed_skipped": Declared(
        "counter",
        "Records of Debezium's topics that tell no change and were passed over.",
        "feed",
        reason="reason",
        reasons=meanings.FEED_SKIPPED,
    ),
    "feed_lag_seconds": Declared(
        "histogram",
        "From a commit, by the database's clock, until its change was read here.",
        "feed",
        buckets=_LAG_SECONDS,
    ),
    "feed_waiting": Declared(
        "gauge",
        "What waits at the source for the reader: bytes of WAL (replication), rows (notify), records (debezium). 0 in an updater that does not read it.",
        "feed",
    ),
    "source_slots": Declared(
        "gauge",
        "Units that the source may serve at a time: fewer than `pool_size` while it is slow.",
        "source",
    ),
    "source_probed": Declared(
        "gauge",
        "1 while the breaker is open, so that the source gets nothing but a probe a second; else 0.",
        "source",
    ),
    "nobodys_share": Declared("gauge", "Share of the last minute's hints that are of no namespace."),
    "elsewhere": Declared(
        "gauge", "1 if most keys that applications found or set were not in our Redis, else 0."
    ),
    "price": Declared("gauge", "Stale reads that the next row of the budget would prevent.", "source"),
    "budget_used": Declared("gauge", "Share of the budget that was spent lately.", "source"),
    "budget_unneeded": Declared(
        "gauge",
        "Share of the budget that was not worth spending in the last minute: see `least_gain`.",
        "source",
    ),
    "learned": Declared("gauge", "Keys whose reads and changes the policy learns.", "source"),
    "starved": Declared("gauge", "Keys that are not worth a load at this price.", "source"),
    "stale_estimated": Declared(
        "gauge", "Share of stale reads lately, as the policy estimates it.", "namespace"
    ),
    "stale_measured": Declared(
        "gauge", "Share of stale reads, measured on a sample of the last 10 minutes.", "namespace"
    ),
    "stale_measured_low": Declared("gauge", "With 95 % confidence the share is at least this.", "namespace"),
    "stale_measured_high": Declared("gauge", "With 95 % confidence the share is at most this.", "namespace"),
    "over_age": Declared("counter", "Reads of values older than `max_age`.", "namespace"),
    "pending": Declared("gauge", "Keys with a refresh that waits or runs.", "partition"),
    "tracked": Declared("gauge", "Keys that have a seat.", "partition"),
    "scan_offset": Declared(
        "gauge",
        "Packs before this offset were read. Of a SQL queue, an offset counts the packs of both lanes.",
        "partition",
    ),
    "done_offset": Declared("gauge", "Packs before this offset are finished.", "partition"),
    "oldest_open_seconds": Declared(
        "gauge", "Time since the oldest unfinished hint was read; 0 if all are finished.", "partition"
    ),
    "quarantined": Declared("gauge", "Keys set aside after repeated errors.", "partition"),
    "slow_keys": Declared(
        "gauge", "Keys that are loaded apart from the others, because loads with them took long.", "partition"
    ),
    "paused": Declared("gauge", "1 while an operator has paused the namespace, 0 after that.", "namespace"),
    "troubles": Declared("gauge", "Troubles of this kind at present.", "event"),
    "partitions": Declared("gauge", "Partitions of the topic or depot; grows when partitions are added."),
    "lag": Declared(
        "gauge",
        "Packs on the queue that are not finished, in partitions that this process owns.",
        "partition",
    ),
    "rebalances": Declared(
        "counter", "How often the group has assigned the partitions, or a depot's members have changed."
    ),
    "lost_packs": Declared(
        "counter",
        "Packs that left the queue before they were read; a topic that was created anew counts as at least one.",
        reason="reason",
        reasons=meanings.LOST,
    ),
    "skipped_batches": Declared(
        "counter",
        "Batches of the topic that were skipped unread and committed; each also counts as one pack that is `garbage`.",
        reason="reason",
        reasons=meanings.SKIPPED,
    ),
    "commit_failures": Declared(
        "counter",
        "Commits that failed; after a rebalance this is harmless.",
        reason="reason",
        reasons=meanings.COMMIT_FAILURES,
    ),
    "put_back": Declared(
        "counter",
        "Hints that had been unfinished for 5 s and were written anew at the end of their partition's urgent lane, in a SQL queue: what lies behind"
        " them need not wait, and a restart does not read it again. They count again every few seconds while they stay.",
    ),
    "config_last_reload_successful": Declared(
        "gauge", "1 if the configuration that runs is the one that was read last, 0 if that one was refused."
    ),
    "config_last_reload_success_timestamp_seconds": Declared(
        "gauge", "When the configuration was last taken over, at a start or by a reload: seconds since 1970."
    ),
}

COLLECTOR: dict[Metric, Declared] = {  # of the collector
    "collected": Declared("counter", "Hints that clients have handed in, including repeated ones.", "kind"),
    "forwarded": Declared(
        "counter", "Hints that the queue has taken; each stands for all that were merged into it.", "kind"
    ),
    "merged": Declared("counter", "Hints that were merged into another of the same key.", "kind"),
    "waiting": Declared("gauge", "Hints that are neither forwarded nor dropped, including repeated ones."),
    "dropped": Declared(
        "counter", "Hints that were given up.", reason="reason", reasons=meanings.COLLECTOR_DROPS
    ),
    "spilled": Declared("counter", "Hints that were written to disk, including repeated ones.", "kind"),
    "replayed": Declared(
        "counter", "Hints from disk that the queue has taken, including repeated ones.", "kind"
    ),
    "spill_dropped": Declared(
        "counter", "Hints on disk that were given up.", reason="reason", reasons=meanings.SPILL_DROPS
    ),
    "spill_hints": Declared("gauge", "Hints on disk that were neither replayed nor dropped."),
    "spill_bytes": Declared("gauge", "Bytes of all segments on disk."),
    "spill_age_seconds": Declared("gauge", "Age of the oldest segment on disk; 0 if there is none."),
    **{metric: DECLARED[metric] for metric in ("intake_rejected", "peers", "clients", "troubles")},
}

_OF_ITS_QUEUE: tuple[Metric, ...] = (
    "partitions",
    "lag",
    "rebalances",
    "lost_packs",
    "skipped_batches",
    "commit_failures",
)
DRAIN: dict[Metric, Declared] = {  # of a drain, which is a member of its old queue as an updater is
    "drained": Declared(
        "counter", "Hints of the old queue that the new one has taken, including repeated ones.", "kind"
    ),
    **{metric: COLLECTOR[metric] for metric in ("forwarded", "merged", "waiting", "intake_rejected")},
    "dropped": COLLECTOR["dropped"]._replace(reasons={"undeclared": meanings.COLLECTOR_DROPS["undeclared"]}),
    **{metric: DECLARED[metric] for metric in (*_OF_ITS_QUEUE, "troubles")},
}

BOTH: dict[
    Metric, Declared
] = {  # of an updater that collects; what its collector drops belongs to no namespace
    **COLLECTOR,
    **DECLARED,
    "dropped": DECLARED["dropped"]._replace(reasons={**meanings.DROPS, **meanings.COLLECTOR_DROPS}),
}
