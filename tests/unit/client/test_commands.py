"""The table of commands: which hints a command leaves."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from cacheupdater_client.commands import cleared, hints_of
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH


def hints(*words, reply=None):
    return {(kind, key) for kind, keys in hints_of(words, reply) for key in keys}


@pytest.mark.parametrize(
    ("words", "reply", "kind"),
    [
        (("GET", "k"), b"", TOUCH),
        (("GET", "k"), None, MISS),
        (("GETEX", "k", "EX", 5), b"v", TOUCH),
        (("STRLEN", "k"), 0, MISS),
        (("HGETALL", "k"), {}, MISS),
        (("HGETALL", "k"), {b"f": b"v"}, TOUCH),
        (("HLEN", "k"), 0, MISS),
        (("LLEN", "k"), 3, TOUCH),
        (("SMEMBERS", "k"), set(), MISS),
        (("SISMEMBER", "k", "m"), 0, TOUCH),
        (("HEXISTS", "k", "f"), False, TOUCH),
        (("ZSCORE", "k", "m"), None, TOUCH),
        (("ZRANGEBYSCORE", "k", 1, 2), [], TOUCH),
        (("EXISTS", "k"), 0, MISS),
        (("EXISTS", "k"), 1, TOUCH),
        (("SET", "k", "v"), True, SET),
        (("SET", "k", "v", "GET"), None, SET),
        (("GETSET", "k", "v"), None, SET),
        (("GETDEL", "k"), b"v", CHANGE),
        (("DEL", "k"), 0, CHANGE),
        (("HSET", "k", "f", "v"), 1, SET),
        (("HSETNX", "k", "f", "v"), 0, SET),
        (("APPEND", "k", "v"), 2, CHANGE),
    ],
)
def test_command_leaves_one_hint_for_its_key(words, reply, kind):
    assert hints(*words, reply=reply) == {(kind, "k")}


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("HGET", "k", "f"), None),
        (("HMGET", "k", "f", "g"), [None, None]),
        (("HGETEX", "k", "FIELDS", 1, "f"), [None]),
        (("HSTRLEN", "k", "f"), 0),
        (("HRANDFIELD", "k", 0), []),
        (("GETRANGE", "k", 7, 9), b""),
        (("LINDEX", "k", 7), None),
        (("LRANGE", "k", 7, 9), []),
        (("ZRANGE", "k", 7, 9), []),
        (("ZREVRANGE", "k", 7, 9), []),
        (("SRANDMEMBER", "k", 0), []),
        (("ZRANDMEMBER", "k", 0), []),
    ],
)
def test_empty_part_of_a_key_does_not_count_as_a_missing_key(words, reply):
    """A row whose column is NULL has a hash without that field: a miss each time would load it again and again."""
    assert hints(*words, reply=reply) == {(TOUCH, "k")}


def test_mget_tells_key_by_key_what_was_found():
    assert hints("MGET", "a", "b", reply=[b"v", None]) == {(TOUCH, "a"), (MISS, "b")}


def test_mget_whose_reply_was_reshaped_counts_as_found():
    assert hints("MGET", "a", "b", reply={"a": 1}) == {(TOUCH, "a"), (TOUCH, "b")}


@pytest.mark.parametrize("name", ["get", b"GET", b"get", "Get"])
def test_command_is_known_however_it_is_written(name):
    assert hints(name, "k") == {(MISS, "k")}


@pytest.mark.parametrize(
    "words", [("PING",), ("TTL", "k"), ("PUBLISH", "c", "m"), ("EVALSHA", "s", 1, "k"), ("TYPE", "k")]
)
def test_command_about_no_value_leaves_nothing(words):
    assert hints(*words) == set()


def test_write_of_several_keys_changes_each():
    assert hints("MSET", "a", 1, "b", 2) == {(SET, "a"), (SET, "b")}
    assert hints("RENAME", "a", "b") == {(SET, "a"), (SET, "b")}
    assert hints("BITOP", "AND", "d", "a", "b") == {(CHANGE, "d")}
    assert hints("LMPOP", 2, "a", "b", "LEFT") == {(CHANGE, "a"), (CHANGE, "b")}
    assert hints("MSETEX", 2, "a", 1, "b", 2, "EX", 5) == {(SET, "a"), (SET, "b")}


@pytest.mark.parametrize(
    "read", [("SORT", "k"), ("GEORADIUS", "k", 1, 1, 5, "km"), ("GEORADIUSBYMEMBER", "k", "store", 5, "km")]
)
def test_command_that_may_store_reads_its_key_or_writes_another(read):
    assert hints(*read, reply=[]) == {(TOUCH, "k")}
    assert hints(*read, b"store", "d", reply=0) == {(CHANGE, "d")}
    assert hints(*read, "STORE", "store", reply=0) == {(CHANGE, "store")}


FIELDS = ("HSET", "k", "f", "v")


@pytest.mark.parametrize(
    ("commands", "places"),
    [
        ([("DEL", "k"), FIELDS], {0}),
        ([("UNLINK", b"k"), ("GET", "x"), ("SET", "k", "v")], {0}),
        ([("del", "k"), FIELDS], {0}),
        ([(b"Unlink", "k"), FIELDS], {0}),
        ([("del", "k"), ("hset", "k", "f", "v")], {0}),
        ([("DEL", 7, "k"), ("MSET", "7", 1, "k", 2)], {0}),
        ([("DEL", "k"), FIELDS, ("DEL", "k")], {0}),
        ([FIELDS, ("DEL", "k")], set()),
        ([("DEL", "k", "x"), FIELDS], set()),
        ([("DEL", "k"), ("HINCRBY", "k", "f", 1)], set()),
        ([("DEL", "k"), ("SET", bytearray(b"k"), "v")], set()),
        ([("DEL", bytearray(b"k")), ("SET", bytearray(b"k"), "v")], set()),
        ([("DEL", "k"), ("PING",)], set()),
    ],
)
def test_a_del_in_a_pipeline_whose_key_is_set_later_in_it_only_makes_room(commands, places):
    assert set(cleared(dict(enumerate(commands)), [1] * len(commands))) == places


def test_a_del_whose_key_could_not_be_set_later_still_announces():
    queued = {0: ("DEL", "k"), 1: FIELDS}
    assert not cleared(queued, [1, ResponseError("OOM")])
    assert not cleared(queued, [1])
