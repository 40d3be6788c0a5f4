"""What `explain` says of a key: facts, each with a piece of the sentence that they lead to.

The test of `service.reasons` provokes each sentence, and that of the pages looks for its row.
"""

from __future__ import annotations

from cacheupdater.service.reasons import because

DECLARED = {
    "namespace": "product",
    "pattern": "product:{id:int}",
    "fits": True,
    "spelled": True,
    "encoding": "json",
    "form": "json",
    "foreign": "keep",
}
REDIS = {"type": "string", "reads_as": "json", "ttl": 200.0, "age": 12.0, "wrote": "json"}
FOREIGN = {**REDIS, "reads_as": "pickle", "wrote": None}
KNOWN = {"worth": 0.5, "price": 0.1, "reads": 2.0, "changes": 0.1}
UPDATER = {
    "accepting": True,
    "troubles": [],
    "ours": True,
    "owner": "this updater",
    "partition": 3,
    "quarantined": None,
    "absent": False,
    "full": False,
    "open": 0,
    "seat": None,
    "last": None,
    "policy": {"name": "price", "known": KNOWN},
}
BARRED = {"error": "bad row", "since": 5.0, "left": 40.0, "refused": False}
SEAT = {
    "state": "due",
    "kind": "touch",
    "since": 2.0,
    "waits_for": "its turn among namespaces and peers",
    "tail": "",
}
SHORT = {
    "whose": "budget",
    "of": "shop",
    "timed": False,
    "rate": 10.0,
    "waiting": 480.0,
    "seconds": 48.0,
    "given_up": 60.0,
}

CASES = [
    ({"declared": {"namespace": None, "begins": False}}, "begins like no pattern"),
    (
        {"declared": {"namespace": None, "begins": False, "alike": ["products:{id:int}"]}},
        "begins like no pattern, so no updater refreshes it. The pattern that looks most like it is products:{id:int}.",
    ),
    (
        {"declared": {"namespace": None, "begins": False, "alike": ["a:{id}", "b:{id}"]}},
        "The patterns that look most like it are a:{id} and b:{id}.",
    ),
    ({"declared": {"namespace": None, "begins": True}}, "fits none of the patterns that begin like it"),
    (
        {"declared": {"namespace": None, "begins": False, "full": "web:1:product:7"}},
        "in Redis it is web:1:product:7",
    ),
    ({"declared": {"fits": False}}, "does not fit its pattern"),
    (
        {"declared": {"fits": False, "pattern": "p:{id:int}:{at:int}"}},
        "it: `int` takes whole numbers of 64 bits,",
    ),
    (
        {"declared": {"fits": False, "pattern": "p:{a:uuid}:{b}"}},
        "hyphens, and `str` takes ASCII without spaces",
    ),
    ({"declared": {"fits": False, "spelled": False}}, "holds only ASCII letters, digits and signs"),
    ({"declared": {"namespace": None, "spelled": False}}, "holds only ASCII letters, digits and signs"),
    (
        {"updater": None},
        "No updater has answered about this key, so nothing is known of its hints, refreshes and troubles.",
    ),
    (
        {"updater": None, "asked": False},
        "No updater was asked, for the configuration has no address of one (`admin`), so nothing is known of",
    ),
    ({"updater": {"accepting": False}}, "accepts no hints now"),
    (
        {"updater": {"namespace": None, "policy": None}},
        "to namespace product, in the updater to no namespace, so the updater drops its hints.",
    ),
    ({"updater": {"namespace": "stock"}}, "to namespace product, in the updater to namespace stock."),
    (
        {
            "updater": {
                "troubles": [{"event": "load_failed", "subject": "shop", "text": "no answer", "seconds": 300}]
            }
        },
        "Trouble for 5 min: load_failed: no answer.",
    ),
    (
        {"updater": {"ours": False, "owner": "cacheupdater-7 at 10.0.0.8"}},
        "cacheupdater-7 at 10.0.0.8: ask that one.",
    ),
    (
        {"updater": {"ours": False, "owner": "cacheupdater-7 at 10.0.0.8", "session": 10.0}},
        "ask that one. If it does not answer, others take over its partitions once it has been silent for 10.0 s.",
    ),
    (
        {"updater": {"lives_on": 3900.0}},
        "Its source fails now, so the old value lives on while it is read, until its load is 65 min ago",
    ),
    ({"updater": {"ours": False, "owner": None}}, "No updater has partition 3"),
    ({"updater": {"quarantined": BARRED}}, "(bad row); hints try it again in 40.0 s."),
    (
        {"updater": {"quarantined": BARRED | {"refused": True}}},
        "each partition tries one of these keys every 2 s.",
    ),
    ({"updater": {"absent": True}}, "known to be absent"),
    ({"updater": {"full": True, "open": 100_000}}, "The partition is full: 100000 keys"),
    ({"updater": {"seat": SEAT}}, "due since 2.0 s (a touch) and waits for its turn"),
    ({"updater": {"seat": {**SEAT, "state": "running", "tail": "change"}}}, "a change waits behind it"),
    ({"updater": {"seat": {**SEAT, "state": "held"}}}, "was refreshed 2.0 s ago"),
    ({"updater": {"policy": {"name": "fixed", "every": 5.0}}}, "the next read asks for a refresh"),
    ({"updater": {"policy": {"name": "price", "known": None}}}, "No hint of this key has come yet"),
    (
        {"updater": {"policy": {"name": "price", "known": {**KNOWN, "worth": 0.01}}}},
        "not worth its row now",
    ),
    ({}, "worth its row: the policy asks"),
    ({"redis": {"error": "Redis cannot be asked: refused"}}, "Redis cannot be asked: refused"),
    ({"redis": {"error": "Redis did not answer within 5 s"}}, "Redis did not answer within 5 s"),
    ({"redis": {"type": "none", "reads_as": None, "ttl": None}}, "the next read is a miss"),
    ({"redis": {"age": None}}, "No floor stands beside the value"),
    ({"redis": {"ttl": None}}, "never expires"),
    (
        {"redis": {"reads_as": "pickle", "wrote": None}},
        "reads as pickle, and the namespace writes json: such a value is left",
    ),
    (
        {"redis": {"reads_as": "hash", "wrote": "hash"}},
        "reads as hash, and the namespace writes json: it is ours, so its next refresh replaces it. A load",
    ),
    (
        {"declared": {"encoding": "msgpack", "form": "msgpack"}},
        "reads as json, and the namespace writes msgpack: it is ours, so its next refresh replaces it. A load",
    ),
    (
        {"redis": {"reads_as": "pickle", "wrote": None}, "declared": {"foreign": "replace"}},
        "reads as pickle, and the namespace writes json: its next refresh replaces it",
    ),
    ({"row": {"exists": False, "same": False}}, "Its source has no such row. It is old"),
    ({"row": {"exists": True, "same": True}}, "It is not old"),
    (
        {"row": {"exists": True, "same": False, "differs": ['on: "True" -> "true"']}},
        'The application wrote it in another way than we would: on: "True" -> "true". A load',
    ),
    (
        {"updater": {"paused": {"by": "ann@host", "since": 60.0}}},
        "Namespace product is paused for 60.0 s, by ann@host",
    ),
    (
        {"updater": {"short": SHORT}},
        "The budget of source shop pays for 10 rows a second, and 480 keys wait for it:",
    ),
    (
        {"updater": {"short": {**SHORT, "waiting": 0.0}}},
        "pays for 10 rows a second, and is spent: about 48.0 s until the next load.",
    ),
    (
        {"updater": {"short": {**SHORT, "whose": "quota", "of": "product"}}},
        "The quota of namespace product pays for 10 rows a second, and 480 keys wait for it:",
    ),
    ({"updater": {"ours": False, "owner": None, "partition": None}}, "Nothing stands in the way"),
]
"""At least one for each sentence."""


def reasons(*, declared=(), redis=(), updater=(), row=None, asked=True):
    """What is said where these facts are other than those of a healthy key."""
    found = None if updater is None else {**UPDATER, **dict(updater)}
    return because({**DECLARED, **dict(declared)}, {**REDIS, **dict(redis)}, found, row, asked=asked)
