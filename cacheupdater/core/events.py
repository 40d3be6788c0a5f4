"""The kinds of trouble that last, in one place, each with its subject and its meaning.

`pipeline.notices` logs a trouble, the gauge `troubles` counts those that stand, and the reference page lists all kinds.
A new kind goes into a Literal and into `EVENTS`; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

QueueEvent: TypeAlias = Literal[
    "queue_missing", "fetch_failed", "commit_failed", "batch_skipped", "depot_lost"
]
"""The kinds that a queue reports."""

OurEvent: TypeAlias = Literal[
    "load_failed",
    "load_refused",
    "prolonged",
    "not_prolonged",
    "write_failed",
    "write_delayed",
    "removal_refused",
    "braked",
    "quarantined",
    "absent",
    "foreign",
    "form_changed",
    "unexpected",
    "redis_down",
    "fleet_down",
    "reload_refused",
    "state_not_saved",
    "worker_down",
    "paused",
    "pauses_unread",
    "no_client",
    "no_hint",
    "nobodys",
    "elsewhere",
    "dropped",
    "rejected",
    "lost",
    "full",
    "late",
    "clock_off",
    "spill_failed",
    "feed_down",
    "feed_lacks",
    "feed_swept",
    "feed_skipped",
    "feed_unmapped",
]

Event: TypeAlias = QueueEvent | OurEvent
"""In the log a kind is the field `event`, and its subject is the field `subject`."""

EVENTS: Mapping[str, str] = {
    "queue_missing": "no broker or depot answers, the topic does not exist, or the updater has no right to see it",
    "fetch_failed": "packs cannot be read; the subject is the partition, or empty for all partitions",
    "commit_failed": "finished packs cannot be committed to the queue; the subject is the partition",
    "batch_skipped": "a batch of the topic was skipped: it was too large or could not be read; the subject is the partition",
    "depot_lost": "the Redis that holds the streams has come back empty or without its latest entries; the subject is the stream",
    "load_failed": "the source that the subject names does not answer, or not in time",
    "load_refused": "the statement, the rows or the values of this namespace are at fault",
    "prolonged": "the source of this namespace fails, so old values that are read live on past their ttl (`fail_safe`)",
    "not_prolonged": "old values of this namespace may expire while their source fails, for Redis does not let them live on",
    "write_failed": "Redis refuses some values of this namespace",
    "write_delayed": "the Redis server of some keys of this namespace cannot take them now",
    "removal_refused": "changed keys of this namespace could be neither refreshed nor removed",
    "braked": "so many rows of this namespace vanished at once that the updater does not believe it, or it has found no row since its start, although there are values; nothing was deleted",
    "quarantined": "keys of this namespace fail again and again; they are left alone for a minute, or until others of the namespace are loaded",
    "absent": "so many rows of this namespace do not exist that misses of keys which no load has found before wait (`missing.share`)",
    "foreign": "some values of this namespace are not what the updater would write, or the application wrote them although the source shows no rows for them; they are left alone",
    "form_changed": "values of this namespace that cacheupdater wrote before are in another form than it writes now; readers meet both forms. The trouble stands for one `ttl` and `fail_safe`",
    "unexpected": "a bug of cacheupdater, or of a loader of this namespace",
    "redis_down": "Redis does not answer",
    "fleet_down": "no exchange with the fleet; until there is one, nothing of this source is loaded (of this namespace, if the trouble is about a quota)",
    "reload_refused": "the configuration that was read last was refused, or its file is gone, and the one before it still holds; a restart meets the file as it is",
    "state_not_saved": "the state file, which keeps what was learned, cannot be written",
    "worker_down": "this worker has ended and is started again",
    "paused": "an operator has paused this namespace: nothing of it is loaded, and announced changes only remove their values",
    "pauses_unread": "which namespaces are paused cannot be read from Redis; what was known before still holds",
    "no_client": "no client has been connected for 30 s",
    "no_hint": "clients have been connected for 30 s, and none has ever sent a hint: their keys begin with no declared prefix",
    "nobodys": "more than a hundredth of a minute's hints are of no namespace",
    "elsewhere": "most keys that applications find or set are not in our Redis: the applications use another server or database",
    "dropped": "hints of namespaces of this source are dropped though nothing fails: the budget or a quota does not pay for all that is asked, or its loads take too long for its connections",
    "rejected": "packs, frames or connections are refused; the subject is the reason, as in `intake_rejected_total`",
    "lost": "packs leave the queue before an updater reads them; the subject is the reason, as in `lost_packs_total`",
    "full": "too many keys of this partition are open: until some are done, its hints are not read, or not the hints of those who sent most of them; the subject is the partition",
    "late": "reads are reported more than a minute after they were made, and are dropped: the queue has a backlog, or the senders could not send. Changes are never dropped for this",
    "clock_off": "a client's clock is more than 5 s off ours, so the age of its hints is uncertain",
    "feed_down": "the changes that this source tells cannot be read; they wait there, and old values are found by policy and ttl only",
    "feed_lacks": "tables of this source have no topic yet; their changes are read soon after Debezium has made it",
    "feed_swept": "all keys of this namespace in Redis count as changed, now and once more after 31 s: a table was truncated, or changes were lost",
    "feed_skipped": "records in the topics of this source tell no change, and are passed over: they are not JSON, or not Debezium's",
    "feed_unmapped": "changed rows of tables of this source told no key of a namespace, so nobody refreshes or removes their values: a column of the key is not told, or its content cannot stand in a key. The trouble is over a minute after the last such row",
    "spill_failed": "the disk of a collector's spill is full or faulty; the collector goes on as without a spill, and tries again every 5 s",
}


def of_quota(namespace: str) -> str:
    """The subject of a trouble about the quota of this namespace. No source is called so: names hold no colon."""
    return f"quota:{namespace}"
