"""The scripts leave foreign values alone: those that read neither in the namespace's form nor in that of our last write."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime
from hashlib import sha1
from itertools import count

import msgspec
import pytest
import redis
from servers.fence_calls import commit, floor, invalidate, load_scripts, token
from suite.pace import left_ms

from cacheupdater.core.kinds import says_nothing
from cacheupdater.testing.memory_redis import MemoryRedis
from cacheupdater_client.protocol import fence, lease
from cacheupdater_client.protocol.dogpile import payload_of
from cacheupdater_client.protocol.fence import ADOPTED, FOREIGN, REMOVED, UNCHANGED, WRITTEN, Refused

PICKLES = [pickle.dumps({"id": 7}, protocol) for protocol in range(6)]
JSON = [
    *(json.dumps(each).encode() for each in ({}, [], {"a": [1, {"b": None}]}, "text", 8.9, -1, True, None)),
    b' {"a": 1}\n',
    json.dumps({"a": 1}, indent=2).encode(),
    msgspec.json.encode({"a": datetime(2024, 1, 1, tzinfo=UTC), "b": "\x00é"}),
]
NO_JSON = [*PICKLES, b"", b"hello", b"truex", b"12:30", b"-", b'{"a": 1', b"\x1f\x8b\x08", b" ", b"x" * 5000]
MSGPACK = [
    msgspec.msgpack.encode(each)
    for each in (
        *({}, [], {"id": 7, "name": "x" * 300, "big": list(range(70_000)), "raw": b"\x00" * 70_000}),
        *(
            "",
            "text",
            "x" * 40,
            b"bytes",
            None,
            True,
            1,
            -1,
            200,
            70_000,
            2**40,
            -200,
            -70_000,
            -(2**40),
            1.5,
        ),
        *(
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 1, 1, 1, 1, 5, tzinfo=UTC),
            {str(i): i for i in range(20)},
        ),
        msgspec.msgpack.Ext(5, b"x" * 300),
    )
]
NO_MSGPACK = [*PICKLES[:4], PICKLES[4], b"", b"\xc1", b"hello", b'{"a": 1}', b"\x93\x01", b"\xa5abc"]

PICKLED = [*PICKLES[2:], *(pickle.dumps(each) for each in ([], None, True, 1.5, "text")), b"7", b"-7", b"0"]
NO_PICKLE = [
    *PICKLES[:2],
    b"",
    b"hello",
    b'{"a": 1}',
    b"[1]",
    b'"7"',
    b"7.5",
    b"true",
    b"\x80",
    b"\x80\x06.",
    b"\x80\x04",
]
NO_PICKLE += [b"1" * 1001, b"7\n", b" 7"]

OF_CACHELIB = [*(b"!" + each for each in PICKLES[2:]), b"7", b"-7", b"0"]
NO_CACHELIB = [
    *PICKLES,
    b"",
    b"!",
    b"!7",
    b"!hello",
    b"! " + PICKLES[4],
    b"!!" + PICKLES[4],
    b"x" + PICKLES[4],
    b"hello",
    b'{"a": 1}',
]
METADATA = b'{"ct": 1800000000.5, "v": 2}|'
OF_DOGPILE = [METADATA + each for each in PICKLES[2:]]
OF_DOGPILE += [b'{"ct": 1, "v": 2, "more": {"a": 1}}|' + PICKLES[4], b'{"ct": 0, "v": 2}|' + PICKLES[4]]
JSON_OF_DOGPILE = [METADATA + each for each in JSON]
NO_DOGPILE = [*PICKLES, b"", b"7", b"hello", b'{"ct": 1}', METADATA, METADATA + b"hello", b"|" + PICKLES[4]]
NO_DOGPILE += [
    b"x" + METADATA + PICKLES[4],
    b'{"ct": ' + b"1" * 300 + b"}|" + PICKLES[4],
    b'{"v": 2}|' + PICKLES[4],
]
FRAMEWORKS = {
    "pickle": (PICKLED, NO_PICKLE),
    "cachelib": (OF_CACHELIB, NO_CACHELIB),
    "dogpile": (OF_DOGPILE, [*NO_DOGPILE, *JSON_OF_DOGPILE]),
    "dogpile-json": (JSON_OF_DOGPILE, [*NO_DOGPILE, *OF_DOGPILE]),
}
ALL = {"json": (JSON, NO_JSON), "msgpack": (MSGPACK, NO_MSGPACK), **FRAMEWORKS}


@pytest.fixture
def r(every_redis_url):
    with redis.Redis.from_url(every_redis_url) as client:
        load_scripts(client)
        yield client


def written(form):
    """What an updater writes in this form."""
    others = {
        "msgpack": msgspec.msgpack.encode({"ours": 1}),
        "hash": {b"ours": b"1"},
        "pickle": PICKLES[5],
        "cachelib": b"!" + PICKLES[5],
        "dogpile": b'{"ct": 0, "v": 2}|' + PICKLES[5],
        "dogpile-json": b'{"ct": 0, "v": 2}|{"ours": 1}',
    }
    return others.get(form, b'{"ours":1}')


def is_same(value, ours):
    """Whether the one is the other, but for the time in dogpile's metadata."""
    return ours is not None and (payload_of(value) or value) == (payload_of(ours) or ours)


@pytest.mark.parametrize(("form", "values"), [(form, said[1]) for form, said in ALL.items()], ids=ALL)
def test_what_does_not_read_in_the_form_stays_whatever_an_updater_does(r, form, values):
    for value in values:
        r.set(b"k", value, ex=1000)
        for entry in (b"k", written(form), 5_000), (b"k", None, 5_000):
            assert commit(r, token(r), entry, form=form) == [FOREIGN], value
        assert floor(r, b"k") % 1000 == fence.FOREIGN_FORM
        assert invalidate(r, b"k", forms={b"k": form}) == [FOREIGN], value
        assert commit(r, token(r), (b"k", written(form), 5_000), form=form) == [FOREIGN], value
        assert r.get(b"k") == value
        assert r.ttl(b"k") > 900
        r.flushdb()


@pytest.mark.parametrize(("form", "values"), [(form, said[0]) for form, said in ALL.items()], ids=ALL)
def test_what_reads_in_the_form_is_replaced_and_removed(r, form, values):
    """By an absent row, too, unless the value says itself that there is none, and no load has written it."""
    for value in values:
        for entry in (b"k", written(form), 5_000), (b"k", None, 5_000):
            for floored in (False, True):
                r.flushdb()
                if floored:
                    commit(r, token(r), (b"k", written(form), 5_000), form=form)
                r.set(b"k", value)
                answer = UNCHANGED if is_same(value, entry[1]) else WRITTEN
                if not floored and entry[1] is not None:
                    answer = ADOPTED
                elif not floored and form != "string" and says_nothing(form, value):
                    answer = UNCHANGED
                assert commit(r, token(r), entry, form=form) == [answer], value
                left = value if answer == UNCHANGED else entry[1]
                assert r.get(b"k") == left or is_same(r.get(b"k"), left)
        r.set(b"k", value)
        assert invalidate(r, b"k", forms={b"k": form}) == [REMOVED], value


def test_every_string_reads_as_a_string_and_every_hash_as_a_hash(r):
    for value in (*PICKLES, b"", b"text"):
        r.flushdb()
        r.set(b"k", value)
        assert commit(r, token(r), (b"k", b"v", 5_000), form="string") == [ADOPTED]
        r.hset(b"h", mapping={b"theirs": value})
        assert commit(r, token(r), (b"h", {b"f": b"1"}, 5_000), form="hash") == [ADOPTED]


@pytest.mark.parametrize("form", ["string", "hash", *ALL])
def test_value_of_another_type_stays(r, form):
    r.rpush(b"list", b"item")
    r.set(b"string", b"v") if form == "hash" else r.hset(b"hash", b"f", b"v")
    other = b"string" if form == "hash" else b"hash"
    for key in b"list", other:
        before = r.dump(key)
        for value in written(form), None:
            assert commit(r, token(r), (key, value, 5_000), form=form) == [FOREIGN]
        assert invalidate(r, key, forms={key: form}) == [FOREIGN]
        assert r.dump(key) == before


@pytest.mark.parametrize("foreign", [PICKLES[4], PICKLES[5], b"hello", b""])
def test_value_that_the_application_put_over_ours_stays(r, foreign):
    assert commit(r, token(r), (b"k", b'{"ours":1}', 5_000), form="json") == [WRITTEN]
    r.set(b"k", foreign)
    assert commit(r, token(r), (b"k", b'{"ours":2}', 5_000), form="json") == [FOREIGN]
    assert commit(r, token(r), (b"k", None, 5_000), form="json") == [FOREIGN]
    assert invalidate(r, b"k", forms={b"k": "json"}) == [FOREIGN]
    assert r.get(b"k") == foreign


@pytest.mark.parametrize("younger", [b'{"ours":2}', None])
def test_no_older_load_writes_once_a_foreign_value_has_gone(r, younger):
    """The row was deleted, and nobody announced that. A younger load has seen it, but must leave what the application put there."""
    older, began = token(r), time.monotonic()
    r.set(b"k", PICKLES[4])
    begun = token(r)
    for _ in range(2):  # the second one is the same call again, because nobody answered the first
        assert commit(r, begun, (b"k", younger, 5_000), form="json") == [FOREIGN]
    left = r.pttl(fence.floor_name(b"k"))
    assert left_ms(60_000, began) <= left <= 60_000
    assert floor(r, b"k") == fence.foreign_stamp(begun)
    r.delete(b"k")
    assert commit(r, older, (b"k", b'{"ours":1}', 5_000), form="json") == [Refused(floor(r, b"k"))]
    assert commit(r, begun, (b"k", b'{"ours":2}', 5_000), form="json") == [WRITTEN]
    assert commit(r, token(r), (b"k", b'{"ours":3}', 5_000), form="json") == [WRITTEN]


@pytest.mark.parametrize("before", ["string", "hash", *ALL])
@pytest.mark.parametrize("after", ["string", "hash", *ALL])
def test_what_we_wrote_is_ours_after_a_change_of_the_encoding(r, before, after):
    """The floor says in which form its load has written."""
    old = b"plain text" if before == "string" else written(before)
    for value in written(after), None:
        r.flushdb()
        assert commit(r, token(r), (b"k", old, 5_000), form=before) == [WRITTEN]
        assert commit(r, token(r), (b"k", value, 5_000), form=after) in ([WRITTEN], [UNCHANGED])
        assert (r.exists(b"k") == 1) is (value is not None)
    r.flushdb()
    commit(r, token(r), (b"k", old, 5_000), form=before)
    assert invalidate(r, b"k", forms={b"k": after}) == [REMOVED]


def test_foreign_gives_way_when_the_configuration_says_replace(r):
    for value in written("json"), None:
        for foreign in PICKLES:
            r.flushdb()
            r.set(b"k", foreign)
            answer = WRITTEN if value is None else ADOPTED
            assert commit(r, token(r), (b"k", value, 5_000), form="json", replace=True) == [answer]


def test_application_removes_whatever_is_there(r):
    r.set(b"k", PICKLES[4])
    r.rpush(b"list", b"item")
    assert invalidate(r, b"k", b"list") == [REMOVED, REMOVED]
    assert r.exists(b"k", b"list") == 0


def test_each_key_of_a_removal_has_its_own_form_and_its_neighbours_go(r):
    r.set(b"a", PICKLES[4])
    r.set(b"b", PICKLES[4])
    r.set(b"c", b"{}")
    assert invalidate(r, b"a", b"b", b"c", forms={b"a": "json", b"b": "string"}) == [
        FOREIGN,
        REMOVED,
        REMOVED,
    ]


@pytest.mark.parametrize("form", ["json", "string", "type"])
def test_an_absent_row_removes_a_value_twice_and_not_what_the_application_writes_after_that(r, form):
    """A source that hides rows from the updater must not empty the cache of an application that sees them."""
    absent, row = (b"k", None, 5_000), (b"k", b'{"ours":1}', 5_000)
    for _ in range(2):
        r.set(b"k", b'{"v":1}')
        assert commit(r, token(r), absent, form=form) == [WRITTEN]
        assert r.get(b"k") is None
    assert floor(r, b"k") % 1000 == fence.DISPUTED_FORM
    assert commit(r, token(r), absent, form=form) == [WRITTEN], "there is no value"
    r.set(b"k", b'{"v":1}')
    for _ in range(3):
        assert commit(r, token(r), absent, form=form) == [FOREIGN]
        assert r.get(b"k") == b'{"v":1}'
    assert 0 < r.pttl(b"k") <= 5_000, "a value without a row must have an end"
    r.pexpire(b"k", 300)
    old = token(r)
    assert commit(r, token(r), absent, form=form) == [FOREIGN]
    assert r.pttl(b"k") <= 300, "and no later one than the application has said"
    assert isinstance(commit(r, old, row, form=form)[0], Refused)  # a load that began earlier saw the row
    r.set(b"k", b'{"v":1}')
    assert commit(r, token(r), absent, form=form, replace=True) == [WRITTEN]
    assert r.get(b"k") is None


def test_a_value_that_a_slow_reader_wrote_after_the_removal_is_removed_too(r):
    commit(r, token(r), (b"k", b'{"ours":1}', 5_000), form="json")
    for _ in range(2):
        assert commit(r, token(r), (b"k", None, 5_000), form="json") == [WRITTEN]
        assert r.get(b"k") is None
        r.set(b"k", b'{"ours":1}')  # it had loaded the row before


def test_a_value_is_removed_again_once_its_row_was_found_or_a_change_was_announced(r):
    absent, row = (b"k", None, 5_000), (b"k", b'{"ours":1}', 5_000)

    def dispute():
        for _ in range(3):
            r.set(b"k", b'{"v":1}')
            last = commit(r, token(r), absent, form="json")
        assert last == [FOREIGN]

    dispute()
    assert commit(r, token(r), row, form="json") == [ADOPTED]
    assert commit(r, token(r), absent, form="json") == [WRITTEN]
    assert r.get(b"k") is None
    dispute()
    assert invalidate(r, b"k", forms={b"k": "json"}) == [REMOVED]
    r.set(b"k", b'{"v":1}')
    assert commit(r, token(r), absent, form="json") == [WRITTEN]
    assert r.get(b"k") is None


def test_a_foreign_value_stays_foreign_among_disputes(r):
    for value, said in (
        (b'{"v":1}', WRITTEN),
        (b"no json", FOREIGN),
        (b'{"v":1}', WRITTEN),
        (b'{"v":1}', WRITTEN),
    ):
        r.set(b"k", value)
        assert commit(r, token(r), (b"k", None, 5_000), form="json") == [said]


def test_floor_beside_an_absent_row_lives_no_longer_than_it_must(r):
    day_ms, began = 86_400_000, time.monotonic()
    commit(
        r, token(r), (b"gone", None, day_ms), (b"empty", {}, day_ms), (b"there", b"{}", day_ms), form="json"
    )
    for key in b"gone", b"empty":
        left = r.pttl(fence.floor_name(key))
        assert left_ms(60_000, began) <= left <= 60_000
    left = r.pttl(fence.floor_name(b"there"))
    assert left >= left_ms(day_ms, began)


def test_beside_a_floor_the_length_of_a_value_costs_nothing(r):
    """A value that does not even parse shows that its middle is not looked at."""
    commit(r, token(r), (b"k", b"{}", 5_000), form="json")
    r.set(b"k", b'{"a": ' + b"\x00" * 500_000 + b"}")
    assert commit(r, token(r), (b"k", b"{}", 5_000), form="json") == [WRITTEN]


def test_script_that_forgets_the_check_is_found(r, monkeypatch):
    """A planted fault: the tests above can fail."""
    text = fence.COMMIT.text.replace("return not reads(form, value)", "return false")
    assert text != fence.COMMIT.text
    monkeypatch.setattr(
        fence, "COMMIT", fence.Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    )
    load_scripts(r)
    with pytest.raises(AssertionError):
        test_what_does_not_read_in_the_form_stays_whatever_an_updater_does(r, "json", NO_JSON)


@pytest.mark.parametrize("form", ["string", "hash", *ALL])
def test_floor_of_a_load_of_any_form_tells_the_age_of_the_value(r, form):
    assert commit(r, token(r), (b"k", written(form), 5_000), form=form) == [WRITTEN]
    r.set(b"k", b"what LOOK reads is a string") if form == "hash" else None
    arguments = lease.look_args("owner", [b"k"], lease.Terms(1_000, 1_000, 60_000))
    [seen] = lease.seen(r.execute_command("EVAL", lease.LOOK.text, *arguments))
    assert seen.state == lease.State.FOUND
    assert 0 <= seen.age_ms < 60_000


def test_a_row_stays_known_to_be_absent_after_a_late_set(r):
    def state():
        arguments = lease.look_args("owner", [b"k"], lease.Terms(1_000, 60_000, 60_000))
        [seen] = lease.seen(r.execute_command("EVAL", lease.LOOK.text, *arguments))
        return seen.state

    commit(r, token(r), (b"k", None, 5_000), form="json")
    assert state() == lease.State.ABSENT
    r.set(b"k", b'{"v":1}')
    assert state() != lease.State.ABSENT
    for _ in range(3):
        commit(r, token(r), (b"k", None, 5_000), form="json")
        assert state() == lease.State.ABSENT


@pytest.mark.parametrize("form", FRAMEWORKS)
@pytest.mark.parametrize("floored", [False, True])
def test_fake_knows_values_of_frameworks_as_the_scripts_do(r, floored, form):
    clock = count(1_800_000_000)
    server = MemoryRedis(lambda: float(next(clock)))
    theirs, foreign = FRAMEWORKS[form]
    for value in (*theirs, *foreign):
        r.flushdb()
        server.flush()
        if floored:
            commit(r, token(r), (b"k", written(form), 5_000), form=form)
            server.commit(server.token(), [(b"k", written(form), 5_000)], form=form)
        r.set(b"k", value)
        server.set(b"k", value)
        [expected] = commit(r, token(r), (b"k", None, 5_000), form=form)
        [outcome] = server.commit(server.token(), [(b"k", None, 5_000)], form=form)
        stays = UNCHANGED if not floored and says_nothing(form, value) else WRITTEN
        assert outcome == expected == (FOREIGN if value in foreign else stays), value
        assert server.get(b"k") == r.get(b"k")


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_fake_calls_the_same_values_foreign(form):
    server = MemoryRedis(lambda: 1_800_000_000.0)
    for values, expected in (JSON, "json"), (NO_JSON, ""), (MSGPACK, "msgpack"), (NO_MSGPACK, ""):
        for value in values if expected in {form, ""} else ():
            foreign = value in (NO_JSON if form == "json" else NO_MSGPACK)
            if not expected and not foreign:
                continue
            server.flush()
            server.set(b"k", value)
            [outcome] = server.commit(server.token(), [(b"k", None, 5_000)], form=form)
            assert (outcome == FOREIGN) is foreign, value
