"""The contract of a writer with the pipeline: one suite for Redis, a cluster, a primary that sentinels name, and the fake."""

from __future__ import annotations

import asyncio
import pickle
from math import inf
from time import monotonic

import pytest
from servers.redis_places import worlds
from suite.pace import left_ms

from cacheupdater.adapters.writer_redis import writer_for
from cacheupdater.core.answers import (
    ADOPTED,
    DUPLICATE,
    FOREIGN,
    SPARED,
    TOO_OLD,
    UNCHANGED,
    WRITTEN,
    Answer,
    Result,
)
from cacheupdater.ports import Entry
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter, Other
from cacheupdater_client.protocol.fence import OUTDATED_FORM, SCRIPT_BYTES_MAX, floor_name
from cacheupdater_client.protocol.lease import Grace

pytestmark = pytest.mark.usefixtures("patient")

HOUR_MS = 3_600_000


class Real:
    """Redis with its application, and writers to it."""

    def __init__(self, url, client):
        self.url = url
        self.client = client

    def writer(self, **options):
        return writer_for(self.url, **options)

    async def get(self, key):
        kind = await self.client.type(key)
        if kind == b"none":
            return None
        return await (self.client.get(key) if kind == b"string" else self.client.hgetall(key))

    async def ttl_ms(self, key):
        return await self.client.pttl(key)

    async def set(self, key, value):
        await (
            self.client.set(key, value) if isinstance(value, bytes) else self.client.hset(key, mapping=value)
        )

    async def expire(self, key, ttl_ms):
        await self.client.pexpire(key, ttl_ms)

    async def set_other(self, key):
        await self.client.rpush(key, b"item")

    async def age(self, key, seconds):
        """The load of this value was so much earlier."""
        name = floor_name(key)
        await self.client.set(name, int(await self.client.get(name)) - seconds * 10**9, keepttl=True)

    async def floor_ttl_ms(self, key):
        return await self.client.pttl(floor_name(key))

    async def set_floor(self, key, floor):
        await self.client.set(floor_name(key), floor, px=HOUR_MS)

    async def type_is_other(self, key):
        return await self.client.type(key) == b"list"

    async def close(self):
        await self.client.aclose()


class Memory:
    """The same in memory."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        self.server = MemoryRedis(lambda: 1_800_000_000 + loop.time())

    def writer(self, **options):
        return MemoryWriter(self.server, **options)

    async def get(self, key):
        return self.server.get(key)

    async def ttl_ms(self, key):
        return self.server.ttl_ms(key)

    async def set(self, key, value):
        self.server.set(key, value)

    async def expire(self, key, ttl_ms):
        self.server.set(key, self.server.get(key), ttl_ms)

    async def set_other(self, key):
        self.server.set(key, Other())

    async def age(self, key, seconds):
        self.server.set_floor(key, self.server.floor(key) - seconds * 10**9, self.server.floor_ttl_ms(key))

    async def floor_ttl_ms(self, key):
        return self.server.floor_ttl_ms(key)

    async def set_floor(self, key, floor):
        self.server.set_floor(key, floor, HOUR_MS)

    async def type_is_other(self, key):
        return isinstance(self.server.get(key), Other)

    async def close(self):
        pass


WORLDS = worlds(Real, Memory)


@pytest.fixture(params=WORLDS)
async def cache(request):
    made = WORLDS[request.param](request.getfixturevalue)
    yield made
    await made.close()


@pytest.fixture
async def writer(cache):
    made = cache.writer()
    yield made
    await made.close()


async def test_write_stores_strings_hashes_and_absence(cache, writer):
    began = monotonic()
    await cache.set(b"gone", b"v")
    token = await writer.token()
    entries = [Entry(b"s", b"v", HOUR_MS), Entry(b"h", {b"f": b"1"}, HOUR_MS), Entry(b"gone", None, HOUR_MS)]
    assert await writer.write(token, entries) == [WRITTEN, WRITTEN, WRITTEN]
    assert await cache.get(b"s") == b"v"
    assert await cache.get(b"h") == {b"f": b"1"}
    assert await cache.get(b"gone") is None
    for key in b"s", b"h":
        ttl_ms = await cache.ttl_ms(key)
        assert left_ms(HOUR_MS, began) <= ttl_ms <= HOUR_MS


@pytest.mark.parametrize("value", [b"v", b"", {b"f": b"1", b"g": b""}])
async def test_write_is_unchanged_when_the_same_value_is_there(cache, writer, value):
    began = monotonic()
    await writer.write(await writer.token(), [Entry(b"k", value, 10_000)])
    later = await writer.token()
    assert await writer.write(later, [Entry(b"k", value, HOUR_MS)]) == [UNCHANGED]
    assert await cache.ttl_ms(b"k") >= left_ms(HOUR_MS, began)


async def test_write_is_a_duplicate_when_its_token_has_written(cache, writer):
    token = await writer.token()
    await writer.write(token, [Entry(b"k", b"first", HOUR_MS)])
    assert await writer.write(token, [Entry(b"k", b"second", HOUR_MS)]) == [DUPLICATE]
    assert await cache.get(b"k") == b"first"


async def test_write_of_an_older_load_is_refused_when_another_updater_was_newer(cache, writer):
    other = cache.writer()
    older, newer = await writer.token([b"k"]), await other.token([b"k"])
    assert await other.write(newer, [Entry(b"k", b"new", HOUR_MS)]) == [WRITTEN]
    [answer] = await writer.write(older, [Entry(b"k", b"old", HOUR_MS)])
    assert answer.result is Result.REFUSED
    assert 0 < answer.wait == pytest.approx((newer - older) / 1e9, abs=1e-5)
    assert await cache.get(b"k") == b"new"
    await other.close()


async def test_write_of_a_load_begun_before_an_invalidation_is_refused(cache, writer):
    began = monotonic()
    await cache.set(b"k", b"old")
    token = await writer.token()
    assert await writer.invalidate([b"k", b"never seen"]) == [WRITTEN, WRITTEN]
    [answer] = await writer.write(token, [Entry(b"k", b"old", HOUR_MS)])
    assert answer.result is Result.REFUSED
    assert 0 < answer.wait <= monotonic() - began + 0.05
    assert await cache.get(b"k") is None
    assert await writer.write(await writer.token(), [Entry(b"k", b"new", HOUR_MS)]) == [WRITTEN]


async def test_write_during_the_hold_off_is_refused_until_it_is_over(cache):
    writer, began = cache.writer(hold_off_ms=20_000), monotonic()
    await writer.invalidate([b"k"])
    [answer] = await writer.write(await writer.token(), [Entry(b"k", b"v", HOUR_MS)])
    assert answer.result is Result.REFUSED
    assert left_ms(20_000, began) / 1000 <= answer.wait <= 20
    await writer.close()


async def test_write_leaves_a_value_of_another_type_and_serves_the_neighbours(cache, writer):
    await cache.set_other(b"list")
    await cache.set(b"hash", {b"f": b"1"})
    await cache.set(b"string", b"v")
    entries = [
        Entry(b"a", b"v", HOUR_MS),
        Entry(b"list", b"v", HOUR_MS),
        Entry(b"list", None, HOUR_MS),
        Entry(b"hash", b"v", HOUR_MS),
        Entry(b"string", {b"f": b"1"}, HOUR_MS),
        Entry(b"b", b"v", HOUR_MS),
    ]
    answers = await writer.write(await writer.token(), entries)
    assert answers == [WRITTEN, FOREIGN, FOREIGN, FOREIGN, FOREIGN, WRITTEN]
    assert await cache.type_is_other(b"list")
    assert await cache.get(b"hash") == {b"f": b"1"}


async def test_write_replaces_a_value_of_another_type_when_told_to(cache, writer):
    await cache.set_other(b"k")
    for value, answer in ({b"f": b"1"}, ADOPTED), (b"v", WRITTEN):
        entry = Entry(b"k", value, HOUR_MS)
        assert await writer.write(await writer.token(), [entry], replace=True) == [answer]
    assert await cache.get(b"k") == b"v"


PICKLE = b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x02id\x94K\x07s."


def _pickles(*values):
    return [pickle.dumps(each, protocol) for each in values for protocol in (2, 3, 4, 5)]


DATED = b'{"ct": 0, "v": 2}|'
NOTHINGS = _pickles(None, [], {}, (), "")
SAY_NOTHING = {
    "json": (b"null", b"[]", b" {} ", b'""'),
    "msgpack": (b"\xc0", b"\x90", b"\x80", b"\xa0"),
    "pickle": NOTHINGS,
    "cachelib": [b"!" + each for each in NOTHINGS],
    "dogpile": [DATED + each for each in NOTHINGS],
    "dogpile-json": [DATED + b"[]"],
}
SAY_SOMETHING = {
    "json": (b"0", b"false", b"[null]", b'{"id":null}', b'"null"', b'"[]"'),
    "msgpack": (b"\x00", b"\xc2", b"\x91\xc0"),
    "pickle": (b"0", *_pickles([None], {"id": 7}, " ", 0)),
    "cachelib": (b"0", b"!" + pickle.dumps([0])),
    "dogpile": [DATED + each for each in _pickles([None], 0)],
    "dogpile-json": [DATED + b"[0]"],
    "string": (b"", b"null", b"[]"),
    "type": (b"",),
}
ROWS = {
    "json": b"[1]",
    "msgpack": b"\x91\x01",
    "pickle": PICKLE,
    "cachelib": b"!" + PICKLE,
    "dogpile": DATED + PICKLE,
    "dogpile-json": DATED + b"[1]",
}


@pytest.mark.parametrize("form", SAY_NOTHING)
async def test_a_value_that_says_itself_that_there_is_no_row_stays_while_there_is_none(cache, writer, form):
    """An application may cache that, as an empty list of orders. Without the value, each of its reads would go to the database."""
    held = {b"k%d" % at: value for at, value in enumerate(SAY_NOTHING[form])}
    for key, value in held.items():
        await cache.set(key, value)
        await cache.expire(key, 5 * HOUR_MS)
    nothing = [Entry(key, None, HOUR_MS) for key in held]
    for _ in range(3):
        assert await writer.write(await writer.token(), nothing, form=form) == [UNCHANGED] * len(held)
        assert {key: await cache.get(key) for key in held} == held
        assert min([await cache.ttl_ms(key) for key in held]) > 4 * HOUR_MS
    rows = [Entry(key, ROWS[form], HOUR_MS) for key in held]
    assert await writer.write(await writer.token(), rows, form=form) == [ADOPTED] * len(held)
    assert await writer.write(await writer.token(), nothing, form=form) == [WRITTEN] * len(held)
    assert [await cache.get(key) for key in held] == [None] * len(held)


@pytest.mark.parametrize("form", SAY_SOMETHING)
async def test_any_other_value_without_a_row_goes(cache, writer, form):
    held = {b"k%d" % at: value for at, value in enumerate(SAY_SOMETHING[form])}
    for key, value in held.items():
        await cache.set(key, value)
    nothing = [Entry(key, None, HOUR_MS) for key in held]
    assert await writer.write(await writer.token(), nothing, form=form) == [WRITTEN] * len(held)
    assert [await cache.get(key) for key in held] == [None] * len(held)


async def test_an_empty_value_of_a_load_goes_with_its_row(cache, writer):
    """A declared value may be an empty list although its row is there."""
    for value in (b"[]", None):
        [answer] = await writer.write(await writer.token(), [Entry(b"k", value, HOUR_MS)], form="json")
        assert answer == WRITTEN
    assert await cache.get(b"k") is None


async def test_an_empty_value_that_a_change_has_left_in_its_place_goes_with_its_row(cache, writer):
    await cache.set(b"k", b"[]")
    await cache.set_floor(b"k", await writer.token() - 10**9 + OUTDATED_FORM)
    assert await writer.write(await writer.token(), [Entry(b"k", None, HOUR_MS)], form="json") == [WRITTEN]
    assert await cache.get(b"k") is None


async def test_a_stale_load_leaves_such_a_value_too(cache, writer):
    early = await writer.token()
    await writer.invalidate([b"k"])
    await cache.set(b"k", b"[]")
    [answer] = await writer.write(early, [Entry(b"k", None, HOUR_MS)], form="json")
    assert answer.result is Result.REFUSED
    assert await cache.get(b"k") == b"[]"


async def test_write_and_removal_leave_what_is_foreign_and_serve_the_neighbours(cache, writer):
    await cache.set(b"theirs", PICKLE)
    await cache.set(b"hash", {b"f": b"1"})
    await cache.set(b"mine", b"{}")
    for value, answer in (b'{"id":7}', ADOPTED), (None, WRITTEN):
        entries = [Entry(key, value, HOUR_MS) for key in (b"theirs", b"hash", b"mine")]
        answers = await writer.write(await writer.token(), entries, form="json")
        assert answers == [FOREIGN, FOREIGN, answer]
    keys = [b"theirs", b"mine", b"hash", *(b"k%d" % number for number in range(150)), b"theirs"]
    said = await writer.invalidate(keys, dict.fromkeys(keys, "json"))
    assert [key for key, answer in zip(keys, said, strict=True) if answer == FOREIGN] == [
        b"theirs",
        b"hash",
        b"theirs",
    ]
    assert set(said) == {FOREIGN, WRITTEN}
    assert await cache.get(b"theirs") == PICKLE
    assert await cache.get(b"hash") == {b"f": b"1"}
    assert await writer.invalidate([b"theirs", b"hash"]) == [WRITTEN, WRITTEN]
    assert await cache.get(b"theirs") is None
    assert await cache.get(b"hash") is None


async def test_removal_leaves_what_no_load_has_written_when_told_to(cache, writer):
    await cache.set(b"theirs", b"{}")  # reads as ours would
    await cache.set(b"hash", {b"f": b"1"})
    entries = [Entry(key, b"{}", HOUR_MS) for key in (b"ours", b"other", b"changed")]
    assert await writer.write(await writer.token(), entries, form="json") == [WRITTEN] * 3
    await writer.invalidate([b"changed"])
    await cache.set(b"changed", b"{}")  # its floor is that of a change
    await cache.set(b"outdated", b"{}")
    await cache.set_floor(
        b"outdated", await writer.token() - 10**9 + OUTDATED_FORM
    )  # a change has left our value there
    keys = [b"theirs", b"ours", b"hash", b"absent", b"other", b"changed", b"outdated"]
    said = await writer.invalidate(keys, dict.fromkeys(keys, "json"), only_ours=set(keys) - {b"other"})
    assert said == [SPARED, WRITTEN, FOREIGN, WRITTEN, WRITTEN, SPARED, WRITTEN]
    assert [await cache.get(key) for key in keys] == [b"{}", None, {b"f": b"1"}, None, None, b"{}", None]
    assert await writer.invalidate([b"theirs"], {b"theirs": "json"}) == [WRITTEN]
    assert await cache.get(b"theirs") is None


async def test_a_foreign_value_has_no_age_although_a_load_has_left_a_floor_beside_it(cache, writer):
    await cache.set(b"k", PICKLE)
    assert await writer.write(await writer.token(), [Entry(b"k", b"{}", HOUR_MS)], form="json") == [FOREIGN]
    [found] = await writer.look([b"k"])
    assert (found.here, found.age, found.wrote) == (True, None, None)


async def test_write_replaces_what_is_foreign_when_told_to(cache, writer):
    await cache.set(b"k", PICKLE)
    entry = Entry(b"k", b"{}", HOUR_MS)
    assert await writer.write(await writer.token(), [entry], form="json", replace=True) == [ADOPTED]
    assert await cache.get(b"k") == b"{}"


THEIRS, OURS = b'{"id": 7, "price": 8.90}', b'{"price":8.9,"id":7}'  # one row in two spellings


@pytest.mark.parametrize(
    ("form", "theirs", "ours", "next_row"),
    [
        ("json", THEIRS, OURS, b"{}"),
        ("msgpack", b"\x82\xa1a\x01\xa1b\x02", b"\x82\xa1b\x02\xa1a\x01", b"\x80"),
        ("string", b"8.90", b"8.9", b"9"),
        ("type", b"8.90", b"8.9", b"9"),
        ("pickle", PICKLE, PICKLE.replace(b"\x94", b""), b"7"),
        ("hash", {b"price": b"8.90"}, {b"price": b"8.9"}, {b"price": b"9"}),
        ("type", {b"price": b"8.90"}, {b"price": b"8.9"}, {b"price": b"9"}),
        ("dogpile-json", DATED + THEIRS, DATED + OURS, DATED + b"{}"),
    ],
)
async def test_first_write_over_a_value_of_somebody_else_adopts_it(
    cache, writer, form, theirs, ours, next_row
):
    """Whether the row had changed or is only spelled otherwise, nobody knows. The next change is a change."""
    await cache.set(b"k", theirs)
    for value, answer in (ours, ADOPTED), (ours, UNCHANGED), (next_row, WRITTEN):
        assert await writer.write(await writer.token(), [Entry(b"k", value, HOUR_MS)], form=form) == [answer]


async def test_adopting_happens_once_whoever_loads_and_however_often_a_token_writes(cache, writer):
    other = cache.writer()
    await cache.set(b"k", THEIRS)
    first, second = await writer.token([b"k"]), await other.token([b"k"])
    entry, later = Entry(b"k", OURS, HOUR_MS), Entry(b"k", b"{}", HOUR_MS)
    assert await writer.write(first, [entry], form="json") == [ADOPTED]
    assert await writer.write(first, [entry], form="json") == [DUPLICATE]
    assert await other.write(second, [later], form="json") == [WRITTEN]
    await other.close()


async def test_first_write_of_the_bytes_that_are_there_is_adopted_too_and_without_a_value_written(
    cache, writer
):
    """If only other bytes were adopted, all values would seem fresh that the application spells as we do."""
    await cache.set(b"same", OURS)
    entries = [Entry(b"same", OURS, HOUR_MS), Entry(b"missing", OURS, HOUR_MS)]
    assert await writer.write(await writer.token(), entries, form="json") == [ADOPTED, WRITTEN]
    assert await writer.write(await writer.token(), entries, form="json") == [UNCHANGED] * 2


async def test_removal_of_a_value_without_a_row_is_written_whoever_made_the_value(cache, writer):
    """The row is gone, so a reader of the value had an old one: no spelling explains that."""
    await cache.set(b"k", THEIRS)
    assert await writer.write(await writer.token(), [Entry(b"k", None, HOUR_MS)], form="json") == [WRITTEN]


async def test_value_that_came_after_a_change_or_an_absent_row_is_adopted(cache, writer):
    await writer.invalidate([b"changed"])
    await writer.write(await writer.token(), [Entry(b"absent", None, HOUR_MS)], form="json")
    keys = [b"changed", b"absent"]
    for key in keys:
        await cache.set(key, THEIRS)
    entries = [Entry(key, OURS, HOUR_MS) for key in keys]
    assert await writer.write(await writer.token(), entries, form="json") == [ADOPTED] * 2


@pytest.mark.parametrize(
    ("ending", "answer"),
    [
        *((ending, WRITTEN) for ending in (0, 1, 2, 3, 4, 6, 7, 8, 9)),  # a load that found a row
        *((ending, ADOPTED) for ending in (5, 996, 997, 999)),
        (998, WRITTEN),  # the value is the one that an announced change has left in its place
    ],
)
async def test_whose_value_it_was_is_told_by_the_ending_of_its_floor(cache, writer, ending, answer):
    await cache.set(b"k", THEIRS)
    await cache.set_floor(b"k", await writer.token() - 10**9 + ending)
    assert await writer.write(await writer.token(), [Entry(b"k", OURS, HOUR_MS)], form="json") == [answer]
    await cache.set(b"h", {b"price": b"8.90"})
    await cache.set_floor(b"h", await writer.token() - 10**9 + ending)
    entry = Entry(b"h", {b"price": b"8.9"}, HOUR_MS)
    assert await writer.write(await writer.token(), [entry], form="hash") == [answer]


async def test_write_replaces_what_we_wrote_in_another_encoding(cache, writer):
    for form, value in (
        ("msgpack", b"\x81\xa2id\x07"),
        ("json", b"{}"),
        ("hash", {b"f": b"1"}),
        ("json", b"[]"),
    ):
        assert await writer.write(await writer.token(), [Entry(b"k", value, HOUR_MS)], form=form) == [WRITTEN]
    assert await cache.get(b"k") == b"[]"


async def test_look_tells_values_and_the_form_in_which_a_load_has_written(cache, writer):
    await cache.set(b"theirs", PICKLE)
    await cache.set(b"hash", {b"f": b"1"})
    await cache.set_other(b"list")
    await writer.write(await writer.token(), [Entry(b"ours", b"{}", HOUR_MS)], form="json")
    keys = [b"theirs", b"hash", b"list", b"ours", b"nothing"]
    theirs, hashed, other, ours, nothing = await writer.look(keys, values=True)
    assert (theirs.here, theirs.wrote, theirs.value) == (True, None, PICKLE)
    assert (hashed.here, hashed.wrote, hashed.value) == (True, None, {b"f": b"1"})
    assert (other.here, other.wrote, other.value) == (True, None, None)
    assert (ours.here, ours.wrote, ours.value) == (True, "json", b"{}")
    assert not nothing.here
    assert [each.value for each in await writer.look(keys)] == [None] * 5


async def test_look_brings_no_value_that_is_larger_than_any_that_we_write(cache, writer):
    await cache.set(b"most", bytes(SCRIPT_BYTES_MAX))
    await cache.set(b"large", bytes(SCRIPT_BYTES_MAX + 1))
    await cache.set(b"hash", {b"%d" % n: bytes(1000) for n in range(1100)})
    most, large, hashed = await writer.look([b"most", b"large", b"hash"], values=True)
    assert (large.here, large.value, hashed.here, hashed.value) == (True, None, True, None)
    assert most.value == bytes(SCRIPT_BYTES_MAX)


async def test_write_replaces_all_fields_of_a_hash(cache, writer):
    await cache.set(b"k", {b"gone": b"1", b"kept": b"1"})
    assert await writer.write(await writer.token(), [Entry(b"k", {b"kept": b"2"}, HOUR_MS)]) == [ADOPTED]
    assert await cache.get(b"k") == {b"kept": b"2"}
    assert await writer.write(await writer.token(), [Entry(b"k", {}, HOUR_MS)]) == [WRITTEN]
    assert await cache.get(b"k") is None


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        (b"k", b"v" * 2**20, True),
        (b"k", b"v" * (2**20 + 1), False),
        (b"k", {b"f": b"v" * 2**20}, False),
        (b"k" * 1024, b"v", True),
        (b"k" * 1025, b"v", False),
    ],
)
async def test_write_fails_what_is_too_big_and_serves_the_neighbours(cache, writer, key, value, fits):
    entries = [Entry(b"a", b"v", HOUR_MS), Entry(key, value, HOUR_MS), Entry(b"b", b"v", HOUR_MS)]
    first, answer, last = await writer.write(await writer.token(), entries)
    assert (first, last) == (WRITTEN, WRITTEN)
    assert answer.result is (Result.WRITTEN if fits else Result.FAILED)
    assert ("too big" in answer.why) is not fits
    assert await cache.get(key) == (value if fits else None)


async def test_write_without_a_ttl_fails_alone(cache, writer):
    entries = [Entry(b"a", b"v", 0), Entry(b"b", b"v", HOUR_MS)]
    failed, written = await writer.write(await writer.token(), entries)
    assert failed == Answer(Result.FAILED, why="ERR the ttl must be at least 1 ms")
    assert written == WRITTEN


async def test_write_answers_a_thousand_keys_in_order(cache, writer):
    await cache.set_other(b"k777")
    entries = [Entry(b"k%d" % i, b"v%d" % i, HOUR_MS) for i in range(1000)]
    answers = await writer.write(await writer.token(), entries)
    assert answers == [FOREIGN if i == 777 else WRITTEN for i in range(1000)]
    assert await writer.invalidate([entry.key for entry in entries]) == [WRITTEN] * 1000
    assert await cache.get(b"k999") is None


async def test_write_serves_binary_keys_and_keys_with_braces(cache, writer):
    keys = [b"\x00\xff\r\n", b"{a}b", b"a{}", b"{{", b"}{"]
    token = await writer.token()
    assert await writer.write(token, [Entry(key, key, HOUR_MS) for key in keys]) == [WRITTEN] * len(keys)
    assert [await cache.get(key) for key in keys] == keys


async def test_write_of_nothing_is_nothing(writer):
    assert list(await writer.write(await writer.token(), [])) == []
    assert list(await writer.invalidate([])) == []


async def test_write_is_too_old_for_tokens_that_prove_nothing(cache, writer):
    token = await writer.token()
    for seconds in (-31, +5):
        assert await writer.write(token + seconds * 10**9, [Entry(b"k", b"v", HOUR_MS)]) == [TOO_OLD]
    assert await cache.get(b"k") is None


async def test_tokens_rise(writer):
    tokens = [await writer.token() for _ in range(5)]
    assert tokens == sorted(tokens)
    assert all(len(str(token)) == 19 and token % 1000 == 0 for token in tokens)


# --- what readers find ----------------------------------------------------------------------------------


async def test_a_look_tells_whether_a_value_is_there_and_how_old_it_is(cache, writer):
    token = await writer.token([b"p:1", b"p:2"])
    await writer.write(token, [Entry(b"p:1", b"one", HOUR_MS), Entry(b"p:2", None, HOUR_MS)])
    await cache.set(b"p:3", b"the application's own")
    await asyncio.sleep(0.01)
    ours, absent, own, nothing = await writer.look([b"p:1", b"p:2", b"p:3", b"p:4"])
    assert ours.here
    assert 0.01 <= ours.age < 30.0
    assert [(each.here, each.age, each.removed) for each in (absent, own, nothing)] == [
        (False, None, True),
        (True, None, False),
        (False, None, False),
    ]


# --- old values live on ---------------------------------------------------------------------------------

SHORT_MS = 100_000
GRACE = Grace(ttl_ms=SHORT_MS, fail_safe_ms=HOUR_MS)


async def loaded(writer, *keys, value=b"v", ttl_ms=SHORT_MS, form="type"):
    await writer.write(await writer.token(keys), [Entry(key, value, ttl_ms) for key in keys], form=form)


def near(ttl_ms):
    return pytest.approx(ttl_ms, abs=9_000)


@pytest.mark.parametrize("value", [b"v", {b"f": b"1"}])
async def test_prolong_gives_one_more_ttl_to_value_and_floor(cache, writer, value):
    await loaded(writer, b"k", value=value, ttl_ms=20_000)
    await cache.age(b"k", 80)
    assert await writer.prolong([b"k"], GRACE) == [True]
    assert await cache.get(b"k") == value
    assert await cache.ttl_ms(b"k") == near(SHORT_MS)
    assert await cache.floor_ttl_ms(b"k") == near(SHORT_MS)


async def test_prolong_ends_when_the_value_is_as_old_as_ttl_and_fail_safe_together(cache, writer):
    await loaded(writer, b"k", b"over", ttl_ms=5_000)
    await cache.age(b"k", 3_680)
    await cache.age(b"over", 3_701)
    assert await writer.prolong([b"k", b"over"], GRACE) == [True, False]
    assert await cache.ttl_ms(b"k") == pytest.approx(20_000, abs=4_000)
    assert await cache.ttl_ms(b"over") <= 5_000


async def test_prolong_shortens_nothing(cache, writer):
    await loaded(writer, b"k", ttl_ms=HOUR_MS)
    assert await writer.prolong([b"k"], GRACE) == [False]
    assert await cache.ttl_ms(b"k") == near(HOUR_MS)


async def test_prolong_makes_nothing(cache, writer):
    await loaded(writer, b"absent", value=None)
    assert await writer.prolong([b"nothing", b"absent"], GRACE) == [False, False]
    assert await cache.get(b"nothing") is None
    assert await cache.get(b"absent") is None


async def test_prolong_leaves_values_without_a_ttl_or_without_an_age(cache, writer):
    await loaded(writer, b"for ever")
    await cache.set(b"for ever", b"v")
    await cache.set(b"own", b"v")
    assert await writer.prolong([b"for ever", b"own"], GRACE) == [False, False]
    assert await cache.ttl_ms(b"own") in {-1, inf}


async def test_prolong_keeps_no_value_that_is_older_than_an_invalidation(cache, writer):
    await loaded(writer, b"k", ttl_ms=20_000)
    await writer.invalidate([b"k"])
    await cache.set(b"k", b"old")
    await cache.expire(b"k", 5_000)
    assert await writer.prolong([b"k"], GRACE) == [False]
    assert await cache.ttl_ms(b"k") <= 5_000


async def test_prolong_leaves_what_is_foreign_to_the_form(cache, writer):
    await loaded(writer, b"k", b"mine", value=b"{}", ttl_ms=20_000, form="json")
    await cache.set(b"k", PICKLE)
    await cache.expire(b"k", 5_000)
    assert await writer.prolong([b"k", b"mine"], GRACE, "json") == [False, True]
    assert await cache.ttl_ms(b"k") <= 5_000
    assert await writer.prolong([b"k"], GRACE) == [True]


async def test_prolong_answers_many_keys_in_order(cache, writer):
    keys = [b"k%d" % n for n in range(250)]
    await loaded(writer, *keys[::2], ttl_ms=20_000)
    assert await writer.prolong(keys, GRACE) == [n % 2 == 0 for n in range(250)]
    assert await writer.prolong([], GRACE) == []


# --- looking for keys ------------------------------------------------------------------------------------


async def scanned(writer, prefix):
    return sorted({key async for page in writer.scan(prefix) for key in page})


async def test_a_scan_finds_every_key_that_begins_so_and_no_other(cache, writer):
    names = [b"product:%d" % n for n in range(2500)]
    for name in [*names, b"products", b"basket:1", b"product[1]:2", b"p*:3"]:
        await cache.set(name, b"v")
    assert await scanned(writer, b"product:") == sorted(names)
    assert await scanned(writer, b"product[1]:") == [b"product[1]:2"]
    assert await scanned(writer, b"p*:") == [b"p*:3"]
    assert await scanned(writer, b"nothing:") == []
