"""Values that tell the time of their load: the script puts it in, and another time alone is no change."""

from __future__ import annotations

import json
import pickle

import pytest
import redis
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from servers.fence_calls import commit, floor, load_scripts, token

from cacheupdater.testing.memory_redis import MemoryRedis
from cacheupdater_client.protocol.dogpile import encoder, payload_of
from cacheupdater_client.protocol.fence import ADOPTED, FOREIGN, UNCHANGED, WRITTEN

PAYLOADS = {"dogpile": pickle.dumps, "dogpile-json": lambda value: json.dumps(value).encode()}
ROW, OTHER = {"id": 7, "name": "a|b"}, {"id": 7, "name": "|"}
LONG_MS = 50_000


@pytest.fixture
def r(every_redis_url):
    with redis.Redis.from_url(every_redis_url) as client:
        load_scripts(client)
        yield client


@pytest.fixture(params=PAYLOADS)
def form(request):
    return request.param


def entry(form, row, ttl_ms=5_000):
    return b"k", encoder(PAYLOADS[form])(row), ttl_ms


def date_of(value):
    return json.loads(value.partition(b"|")[0])["ct"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_refresh_that_finds_the_same_row_renews_the_date_and_is_no_change(r, form, replace):
    first = token(r)
    assert commit(r, first, entry(form, ROW), form=form, replace=replace) == [WRITTEN]
    made = r.get(b"k")
    assert (date_of(made), payload_of(made)) == (first // 1000 / 1_000_000, PAYLOADS[form](ROW))
    assert commit(r, token(r), entry(form, ROW, LONG_MS), form=form, replace=replace) == [UNCHANGED]
    renewed = r.get(b"k")
    assert date_of(renewed) > date_of(made)
    assert payload_of(renewed) == payload_of(made)
    assert r.pttl(b"k") > 5_000
    assert floor(r, b"k") > first + 1000


def test_another_row_is_a_change_and_so_is_a_value_that_was_not_there(r, form):
    assert commit(r, token(r), entry(form, ROW), form=form) == [WRITTEN]
    assert commit(r, token(r), entry(form, OTHER), form=form) == [WRITTEN]
    assert commit(r, token(r), (b"k", None, 5_000), form=form) == [WRITTEN]
    assert r.get(b"k") is None
    assert commit(r, token(r), entry(form, ROW), form=form) == [WRITTEN]


def test_the_applications_own_value_of_the_same_row_is_adopted(r, form):
    theirs = b'{"ct": 1700000000.25, "v": 2}|' + PAYLOADS[form](ROW)
    r.set(b"k", theirs)
    assert commit(r, token(r), entry(form, ROW), form=form) == [ADOPTED]
    assert date_of(r.get(b"k")) > date_of(theirs)


def test_a_value_of_somebody_else_stays_unless_the_file_says_replace(r, form):
    r.hset(b"k", b"f", b"1")
    for _ in range(2):
        assert commit(r, token(r), entry(form, ROW), form=form) == [FOREIGN]
        assert commit(r, token(r), entry(form, ROW), form=form, replace=True) == [ADOPTED]
        r.set(b"k", b"a text")


def test_values_of_many_keys_and_absent_rows_go_in_one_call(r, form):
    entries = [entry(form, ROW), (b"gone", None, 5_000), (b"l", *entry(form, OTHER)[1:])]
    assert commit(r, token(r), *entries, form=form) == [WRITTEN] * 3
    assert date_of(r.get(b"k")) == date_of(r.get(b"l"))
    assert r.get(b"gone") is None


def test_the_fake_writes_the_same_bytes_and_gives_the_same_answers(r, form):
    now = [0]
    server = MemoryRedis(lambda: now[0] / 1_000_000_000)
    for row, answer in (ROW, WRITTEN), (ROW, UNCHANGED), (OTHER, WRITTEN):
        now[0] = token(r)
        assert commit(r, now[0], entry(form, row), form=form) == [answer]
        assert server.commit(now[0], [entry(form, row)], form=form) == [answer]
        assert server.get(b"k") == r.get(b"k")


def test_dogpile_counts_expiration_from_the_load(r, every_redis_url):
    region = make_region().configure("dogpile.cache.redis", arguments={"url": every_redis_url})
    began = token(r) - 20_000_000_000  # a load that took twenty seconds
    assert commit(r, began, entry("dogpile", ROW), form="dogpile") == [WRITTEN]
    assert region.get("k", expiration_time=LONG_MS) == ROW
    assert region.get("k", expiration_time=10) is NO_VALUE
    assert region.get_or_create("k", lambda: OTHER, expiration_time=10) == OTHER
    region.backend.writer_client.close()
