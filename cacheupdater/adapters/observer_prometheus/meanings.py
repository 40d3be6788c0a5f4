"""The values of labels, and what each means to people.

`declared` takes them for its metrics, and `page` writes them into the reference page. The sets are closed. A Prometheus series costs
over 600 bytes for ever, so values that a sender could invent would be a leak.
"""

from __future__ import annotations

from cacheupdater.core.answers import Result
from cacheupdater.core.automaton import Action
from cacheupdater.core.hints import Kind

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
DECISIONS = {
    **{action.name.lower(): action.value for action in _DECIDED},
    "policy": "declined: not worth a load just now",
}
RESULTS = {
    Result.WRITTEN.value: "a new value, or a removal, is in Redis",
    Result.ADOPTED.value: "our first write where a value of the application stood, or one that had lost its floor; it counts neither as a change nor as none, because the application may spell the same row in another way",
    Result.UNCHANGED.value: "the same bytes were there already, but for the time in a value of dogpile; their ttl begins again",
    Result.DUPLICATE.value: "this same load had been written already",
    Result.REFUSED.value: "something newer has happened to the key since the load began; the key is loaded again",
    Result.TOO_OLD.value: "the load took too long, or Redis' clock has moved; the key is loaded again",
    Result.FOREIGN.value: "the key holds a value that we did not write, and that does not read as the namespace's values or has no row; the value is left alone",
    Result.UNDECIDED.value: "the namespace has no verdict yet, or the value may be the application's until its verdict is settled; the key is tried again",
    Result.FAILED.value: "Redis refused this key, or its value could not be encoded",
    Result.UNAVAILABLE.value: "the key's Redis server cannot take it now",
    Result.BRAKED.value: "so many rows vanished at once that the updater does not believe it, or no row of the namespace has been found yet; nothing was deleted",
    "evicted": "given up after 3 s; the key is due again",
    "error": "the load failed, or Redis could not be reached; the key is tried again",
    "late": "the answer came after the refresh had been given up",
}
DROPS = {
    "unknown": "the key matches no pattern",
    "backlog": "more keys of the namespace waited than `max_backlog`, or than its share of what may wait in a partition",
    "late": "a read that was reported more than a minute late; if the key is still read, a later read has repeated it",
    "aged": "the key waited for 30 s, and the budget could not pay for it",
    "unworthy": "a change that was not worth a row: it waited for a quiet moment for 30 s, and then its value was removed",
    "quarantined": "the key failed too often, and is left alone for a minute, or until others of its namespace are loaded",
    "paused": "an operator has paused the namespace; of a change only the value was removed, unless the application had just set it",
    "removal_refused": "the change could not be served, and Redis refused five times to remove its key: an old value may be left",
}
COLLECTOR_DROPS = {
    "undeclared": "the key begins with no prefix that the queue or `only` declares",
    "refused": "the topic will never take the pack, for it is too large",
    "full": "more waited than a collector keeps; this should never happen, for its peers wait first",
}
SPILL_DROPS = {
    "expired": "the hint was on disk for longer than hints of its kind are kept (`--spill-keep`)",
    "full": "the spill had reached its size (`--spill-size`); touches are dropped first, then the oldest changes and misses",
    "damaged": "bytes on disk are damaged, or a file cannot be read; each place counts once, for what was there is unknown",
}
PROLONGED = {
    "prolonged": "the value lives for one more ttl",
    "left": "the value has time enough, is as old as it may get, has no ttl, or is not of a load of ours; or there is none",
    "unreached": "Redis could not be reached; it is asked again",
    "crowded": "not asked for: too many values live on already",
}
ERRORS = {
    "unavailable": "the server did not answer, or not in time",
    "faulty": "the server answered that the statement, the rows or the values are at fault",
}
REJECTS = {
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
LOST = {
    "retention": "the topic's retention time was too short, or `queue purge` has deleted them",
    "reset": "the topic was created anew, or an election cut its log",
    "trimmed": "touches that no updater had read were too many or too old, and a sender trimmed the stream",
    "redis": "the Redis of the streams came back empty or without its latest entries; each time counts as one",
}
SKIPPED = {
    "too_large": "the batch is larger than 4 MiB when decompressed",
    "corrupt": "its codec or its records contradict themselves",
    "codec": "the updater cannot read the compression: the codec is unknown, or its package is missing (`cramjam`, `zstandard`)",
    "torn": "its checksum was wrong three times",
}
UNSOUND = {
    "floor": "a key's floor was invalid, and has been replaced by a valid one",
    "fleet": "an entry of the fleet's record, or the whole record, was invalid, and has been removed",
}
FED = {
    "refreshed": "somebody reads the key: it is loaded at once",
    "removed": "nobody reads the key: its value is removed",
}
FEED_SKIPPED = {
    "malformed": "the record is no object in JSON: the topic has another format, such as Avro",
    "foreign": "the record is not in Debezium's envelope: another program has written it, or a transform has flattened it",
}
COMMIT_FAILURES = {
    "rebalance": "the partitions belong to other updaters by now, which read the rest again",
    "unavailable": "the broker did not take the commit; it is tried again",
    "denied": "a right is missing",
    "put_back": "the queue did not take hints that were to be put back (`put_back_total`); they stay where they are, and are tried again",
}
