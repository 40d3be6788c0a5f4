"""Every metric of the updater, its labels, and their values with their meanings.

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
    Action.DECLINE,
    Action.ABSENT,
)
_DECISIONS = {
    **{action.name.lower(): action.value for action in _DECIDED},
    "policy": "declined: not worth a load just now",
}
_RESULTS = {
    Result.WRITTEN.value: "a new value, or a removal, is in Redis",
    Result.UNCHANGED.value: "the same bytes were there, and live for another ttl",
    Result.DUPLICATE.value: "this load had been written already",
    Result.REFUSED.value: "the key has been written or removed since the load began; it is loaded again",
    Result.TOO_OLD.value: "the load took too long, or Redis' clock has moved; the key is loaded again",
    Result.FOREIGN.value: "the key holds a value that we did not write and that does not read as the namespace's values; it is left alone",
    Result.UNDECIDED.value: "it is not known yet whose values the namespace holds; until then nothing is written",
    Result.FAILED.value: "Redis refused this key, or its value could not be encoded",
    Result.UNAVAILABLE.value: "this key's server cannot take it now",
    Result.BRAKED.value: "too many rows vanished at once to be believed; nothing was deleted",
    "evicted": "given up after 3 s; its hints are due again",
    "error": "its load failed, or Redis could not be reached; the key is tried again",
    "late": "ended after it had been given up",
}
_DROPS = {
    "unknown": "no pattern takes the key",
    "backlog": "more keys waited than `max_backlog`",
    "late": "a read that came more than a minute late; a key that is still read has been read again since",
    "aged": "waited for 30 s, and the budget did not suffice",
    "quarantined": "the key failed by itself too often, and is left alone for a minute",
    "removal_refused": "a change that could not be served, and Redis refused five times to remove its key: its old value may remain",
}
_ERRORS = {
    "unavailable": "the server did not answer, or not in time",
    "faulty": "the statement, the rows or the values are at fault",
}
_REJECTS = {
    "garbage": "not a pack of hints",
    "too_large": "a pack of more than 256 KiB",
    "unknown_version": "a pack of a version that is newer than this updater",
    "frame_out_of_range": "a frame of an impossible length; its sender is cut off",
    "partition_out_of_range": "a frame for a partition that does not exist; its sender is cut off",
    "cut_short": "a connection that ended within a frame",
    "stalled": "a connection that neither finished a frame nor read its answers, and was closed",
    "crowded": "a connection that was closed because its unfinished and waiting frames took the most memory of all, which was too much",
    "too_many_peers": "a connection beyond the limit",
    "closed": "a pack that came while this process was ending",
}
_LOST = {
    "retention": "the topic did not keep them for long enough",
    "reset": "the topic was made again, or an election cut its log",
}
_SKIPPED = {
    "too_large": "more than 4 MiB when it is decompressed",
    "corrupt": "its codec or its records contradict themselves",
    "codec": "an unknown compression, or the package `cramjam` is missing",
    "torn": "its checksum was wrong three times",
}
_UNSOUND = {
    "floor": "a key's floor was no floor; it has been replaced by one",
    "fleet": "an entry of a fleet's record, or the whole record, was invalid; it has been removed",
}
_COMMIT_FAILURES = {
    "rebalance": "other updaters own the partitions by now, and read the rest again",
    "unavailable": "the broker did not take it; it is tried again",
    "denied": "a right is missing",
}


class Declared(NamedTuple):
    """One metric. `label` and `reason` are the names of the labels that hold the port's arguments of the same names."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: Literal["", "event", "kind", "namespace", "partition", "source"] = ""
    reason: str = ""
    reasons: Mapping[str, str] = MappingProxyType({})  # the values of `reason`, with their meanings
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.label, self.reason) if name)


DECLARED: dict[Metric, Declared] = {
    "hints": Declared("counter", "Hints that reached the engine, with repeated ones.", "kind"),
    "decisions": Declared(
        "counter", "What the automaton decided about hints.", "namespace", "decision", _DECISIONS
    ),
    "refreshes": Declared("counter", "How the refreshes of keys ended.", "namespace", "result", _RESULTS),
    "dropped": Declared("counter", "Hints that were given up.", "namespace", "reason", _DROPS),
    "rows": Declared(
        "counter", "Keys requested from the source; each costs a row of the budget.", "namespace"
    ),
    "statements": Declared("counter", "Statements sent to the source.", "namespace"),
    "errors": Declared("counter", "Loads and writes that failed.", "namespace", "reason", _ERRORS),
    "invalidations": Declared(
        "counter", "Keys removed because their change could not be served.", "namespace"
    ),
    "unsound": Declared(
        "counter",
        "Entries in Redis with a name of ours that no updater has written; they are taken for absent. Another program writes there.",
        reason="what",
        reasons=_UNSOUND,
    ),
    "removals_at_once": Declared(
        "counter",
        "Keys removed without the rate of removals: too many waited, or the partition went to another owner.",
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
    "peers": Declared("gauge", "Connected senders of hints."),
    "load_seconds": Declared("histogram", "Time of one load.", "namespace", buckets=_IO_SECONDS),
    "write_seconds": Declared("histogram", "Time of one fenced write.", "namespace", buckets=_IO_SECONDS),
    "unit_keys": Declared("histogram", "Keys that were loaded together.", "namespace", buckets=_UNIT_KEYS),
    "turn_seconds": Declared(
        "histogram",
        "How long an intake or a step of a partition made the rest of the process wait.",
        buckets=_TURN_SECONDS,
    ),
    "turn_cpu_seconds": Declared(
        "histogram",
        "Processor time of the same turns, which a busy machine does not make longer.",
        buckets=_TURN_SECONDS,
    ),
    "hint_to_write_seconds": Declared(
        "histogram", "From a hint's arrival to its written value.", "namespace", buckets=_AGE_SECONDS
    ),
    "read_age_seconds": Declared(
        "histogram",
        "Age of values when they are read, by their floors; measured at up to 20 random reads a second.",
        "namespace",
        buckets=_AGE_SECONDS,
    ),
    "source_up": Declared("gauge", "1, or 0 while its loads fail.", "source"),
    "source_silence_seconds": Declared(
        "gauge",
        "Seconds since the last successful load, or the start. It also grows while nothing has to be loaded.",
        "source",
    ),
    "nobodys_share": Declared("gauge", "Share of the last minute's hints that belong to no namespace."),
    "elsewhere": Declared("gauge", "1 if most keys that readers found were not in our Redis, else 0."),
    "price": Declared("gauge", "Stale reads that the next row of the budget would prevent.", "source"),
    "budget_used": Declared("gauge", "Share of the budget that was spent lately.", "source"),
    "budget_unneeded": Declared(
        "gauge",
        "Share of the budget that was not worth spending in the last minute: see `least_gain`.",
        "source",
    ),
    "learned": Declared("gauge", "Keys whose reads and changes are being learned.", "source"),
    "starved": Declared("gauge", "Keys that are not worth a load at this price.", "source"),
    "stale_estimated": Declared("gauge", "Estimated share of stale reads, lately.", "namespace"),
    "stale_measured": Declared(
        "gauge", "Share of stale reads among those sampled in the last 10 minutes.", "namespace"
    ),
    "stale_measured_low": Declared(
        "gauge", "With 95 % confidence, the share of stale reads is at least this.", "namespace"
    ),
    "stale_measured_high": Declared(
        "gauge", "With 95 % confidence, the share of stale reads is at most this.", "namespace"
    ),
    "over_age": Declared("counter", "Reads of values older than `max_age`.", "namespace"),
    "pending": Declared("gauge", "Keys with a refresh that waits or runs.", "partition"),
    "tracked": Declared("gauge", "Keys that have a seat.", "partition"),
    "scan_offset": Declared("gauge", "Packs before this offset were read.", "partition"),
    "done_offset": Declared("gauge", "Packs before this offset are finished.", "partition"),
    "oldest_open_seconds": Declared(
        "gauge", "Seconds since the oldest unfinished hint was read; 0 if all are finished.", "partition"
    ),
    "quarantined": Declared("gauge", "Keys set aside after repeated errors.", "partition"),
    "troubles": Declared("gauge", "Troubles of this kind that stand now.", "event"),
    "partitions": Declared("gauge", "Partitions of the topic; grows when partitions are added."),
    "lag": Declared(
        "gauge", "Unfinished packs on the queue, for partitions that this process owns.", "partition"
    ),
    "rebalances": Declared("counter", "How often the group has assigned its partitions."),
    "lost_packs": Declared(
        "counter",
        "Packs that were gone from the queue before they were read; a topic that was made again counts at least one.",
        reason="reason",
        reasons=_LOST,
    ),
    "skipped_batches": Declared(
        "counter",
        "Batches of the topic that were skipped unread and committed; each also counts as one pack of `garbage`.",
        reason="reason",
        reasons=_SKIPPED,
    ),
    "commit_failures": Declared(
        "counter",
        "Commits that failed; after a rebalance this is harmless.",
        reason="reason",
        reasons=_COMMIT_FAILURES,
    ),
}
