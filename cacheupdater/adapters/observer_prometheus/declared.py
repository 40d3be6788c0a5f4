"""Every metric of the updater, of the collector and of the drain, its labels, and their values with their meanings.

The observer makes its registry from this table, and `page` makes the reference page (`docs/reference/metrics.md`) from it. The
sets of label values are closed. A Prometheus series costs over 600 bytes for ever, so values that a sender could invent would
be a leak.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.core.answers import Result
from cacheupdater.core.automaton import Action
from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.core.metrics import Metric

_IO_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_AGE_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0)
_TURN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_UNIT_KEYS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)  # a unit never holds more than 200

# The values of labels, and their meanings.
KINDS = {
    Kind.TOUCH.name.lower(): "read, and found",
    Kind.MISS.name.lower(): "read, and not there",
    Kind.CHANGE.name.lower(): "changed, deleted or invalidated by the application",
}
_DECIDED = (
    Action.ACCEPT,
    Action.MERGE,
    Action.BLOCK,
    Action.COVER,
    Action.HOLD,
    Action.FILLED,
    Action.DECLINE,
    Action.ABSENT,
)
_DECISIONS = {
    **{action.name.lower(): action.value for action in _DECIDED},
    "policy": "declined: not worth a load just now",
}
_RESULTS = {
    Result.WRITTEN.value: "a new value, or a removal, is in Redis",
    Result.UNCHANGED.value: "the same bytes were there already, but for the time in a value of dogpile; their ttl begins again",
    Result.DUPLICATE.value: "this same load had been written already",
    Result.REFUSED.value: "something newer has happened to the key since the load began; the key is loaded again",
    Result.TOO_OLD.value: "the load took too long, or Redis' clock has moved; the key is loaded again",
    Result.FOREIGN.value: "the key holds a value that we did not write and that does not read as the namespace's values; the value is left alone",
    Result.UNDECIDED.value: "the namespace has no verdict yet, so nothing is written",
    Result.FAILED.value: "Redis refused this key, or its value could not be encoded",
    Result.UNAVAILABLE.value: "the key's Redis server cannot take it now",
    Result.BRAKED.value: "so many rows vanished at once that the updater does not believe it; nothing was deleted",
    "evicted": "given up after 3 s; the key is due again",
    "error": "the load failed, or Redis could not be reached; the key is tried again",
    "late": "the answer came after the refresh had been given up",
}
_DROPS = {
    "unknown": "the key matches no pattern",
    "backlog": "more keys of the namespace waited than `max_backlog`, or than its share of what may wait in a partition",
    "late": "a read that was reported more than a minute late; if the key is still read, a later read has repeated it",
    "aged": "the key waited for 30 s, and the budget could not pay for it",
    "quarantined": "the key failed by itself too often, and is left alone for a minute",
    "paused": "an operator has paused the namespace; of a change only the value was removed",
    "removal_refused": "the change could not be served, and Redis refused five times to remove its key: an old value may be left",
}
_COLLECTOR_DROPS = {
    "undeclared": "the key begins with no prefix that the queue or `only` declares",
    "refused": "the topic will never take the pack, for it is too large",
    "full": "more waited than a collector keeps; this should never happen, for its peers wait first",
}
_SPILL_DROPS = {
    "expired": "the hint was on disk for longer than hints of its kind are kept (`--spill-keep`)",
    "full": "the spill had reached its size (`--spill-size`); touches are dropped first, then the oldest changes and misses",
    "damaged": "bytes on disk are damaged, or a file cannot be read; each place counts once, for what was there is unknown",
}
_PROLONGED = {
    "prolonged": "the value lives for one more ttl",
    "left": "the value has time enough, is as old as it may get, has no ttl, or is not of a load of ours; or there is none",
    "unreached": "Redis could not be reached; it is asked again",
    "crowded": "not asked for: too many values live on already",
}
_ERRORS = {
    "unavailable": "the server did not answer, or not in time",
    "faulty": "the server answered that the statement, the rows or the values are at fault",
}
_REJECTS = {
    "garbage": "not a pack of hints",
    "too_large": "a pack of more than 256 KiB",
    "unknown_version": "a pack of a version that is newer than this updater",
    "frame_out_of_range": "a frame with an impossible length; its connection is closed",
    "partition_out_of_range": "a frame for a partition that does not exist; its connection is closed",
    "cut_short": "a connection that ended within a frame",
    "stalled": "a connection that neither finished a frame nor read its answers, and was closed",
    "crowded": "the connection that held most of all incomplete and waiting frames, when these were too many bytes together",
    "too_many_peers": "a connection beyond the limit",
    "closed": "a pack that came while this process was ending",
}
_LOST = {
    "retention": "the topic's retention time was too short, or `queue purge` has deleted them",
    "reset": "the topic was created anew, or an election cut its log",
    "trimmed": "touches that no updater had read were too many or too old, and a sender trimmed the stream",
    "redis": "the Redis of the streams came back empty or without its latest entries; each time counts as one",
}
_SKIPPED = {
    "too_large": "the batch is larger than 4 MiB when decompressed",
    "corrupt": "its codec or its records contradict themselves",
    "codec": "the updater cannot read the compression: the codec is unknown, or the package `cramjam` is missing",
    "torn": "its checksum was wrong three times",
}
_UNSOUND = {
    "floor": "a key's floor was invalid, and has been replaced by a valid one",
    "fleet": "an entry of the fleet's record, or the whole record, was invalid, and has been removed",
}
_FED = {
    "refreshed": "somebody reads the key: it is loaded at once",
    "removed": "nobody reads the key: its value is removed",
}
_FEED_SKIPPED = {
    "malformed": "the record is no object in JSON: the topic has another format, such as Avro",
    "foreign": "the record is not in Debezium's envelope: another program has written it, or a transform has flattened it",
}
_COMMIT_FAILURES = {
    "rebalance": "the partitions belong to other updaters by now, which read the rest again",
    "unavailable": "the broker did not take the commit; it is tried again",
    "denied": "a right is missing",
    "put_back": "the queue did not take hints that were to be put back (`put_back_total`); they stay where they are, and are tried again",
}


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
        "counter", "What the automaton decided about hints.", "namespace", "decision", _DECISIONS
    ),
    "refreshes": Declared("counter", "How the refreshes of keys ended.", "namespace", "result", _RESULTS),
    "dropped": Declared("counter", "Hints that were given up.", "namespace", "reason", _DROPS),
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
    "errors": Declared("counter", "Loads and writes that failed.", "namespace", "reason", _ERRORS),
    "prolonged": Declared(
        "counter",
        "Old values for which more time was asked, because their source failed (`fail_safe`).",
        "namespace",
        "result",
        _PROLONGED,
    ),
    "invalidations": Declared(
        "counter", "Keys removed because their change could not be served.", "namespace"
    ),
    "fed": Declared(
        "counter",
        "Keys of changes that a feed told.",
        "namespace",
        reason="result",
        reasons=_FED,
    ),
    "unsound": Declared(
        "counter",
        "Invalid entries found in Redis under our names; they count as absent. Another program writes there.",
        reason="what",
        reasons=_UNSOUND,
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
        reasons=_REJECTS,
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
        reasons=_FEED_SKIPPED,
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
    "elsewhere": Declared("gauge", "1 if most keys that readers found were not in our Redis, else 0."),
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
        reasons=_LOST,
    ),
    "skipped_batches": Declared(
        "counter",
        "Batches of the topic that were skipped unread and committed; each also counts as one pack that is `garbage`.",
        reason="reason",
        reasons=_SKIPPED,
    ),
    "commit_failures": Declared(
        "counter",
        "Commits that failed; after a rebalance this is harmless.",
        reason="reason",
        reasons=_COMMIT_FAILURES,
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
    "dropped": Declared("counter", "Hints that were given up.", reason="reason", reasons=_COLLECTOR_DROPS),
    "spilled": Declared("counter", "Hints that were written to disk, including repeated ones.", "kind"),
    "replayed": Declared(
        "counter", "Hints from disk that the queue has taken, including repeated ones.", "kind"
    ),
    "spill_dropped": Declared(
        "counter", "Hints on disk that were given up.", reason="reason", reasons=_SPILL_DROPS
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
    "dropped": COLLECTOR["dropped"]._replace(reasons={"undeclared": _COLLECTOR_DROPS["undeclared"]}),
    **{metric: DECLARED[metric] for metric in (*_OF_ITS_QUEUE, "troubles")},
}

BOTH: dict[
    Metric, Declared
] = {  # of an updater that collects; what its collector drops belongs to no namespace
    **COLLECTOR,
    **DECLARED,
    "dropped": DECLARED["dropped"]._replace(reasons={**_DROPS, **_COLLECTOR_DROPS}),
}
