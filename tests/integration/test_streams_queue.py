"""Updaters that share the streams of a Redis, as an operator runs them: no Kafka, one configuration, two processes.

An application sends its hints straight to the streams. One updater is killed, one is stopped, and no change is lost.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from live.checking import checked
from live.updater_process import config, eventually

from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

SESSION_S = 2.0
LOAD = {"source": "main", "python": "live.bad_rows:rows"}
KEYS = [f"item:{number}" for number in range(60)]


@pytest.fixture
def settings(redis_url):
    """An evicting Redis would be refused; the tests' own is not."""
    items = {"item": {"key": "item:{id:int}", "load": LOAD}}
    url = f"{redis_url}?stream=hints&partitions=6"
    said = config(redis_url, {"main": {"budget": "1000/s"}}, items, every="200ms")
    return said | {"queue": {"url": f"{url}&session_timeout={SESSION_S:g}s"}, "listen": None}


@pytest.fixture
def client(redis_url):
    with Redis.from_url(redis_url, emit=f"{redis_url}?stream=hints&partitions=6") as client:
        yield client


@pytest.mark.prove
def test_reads_through_streams_are_filled_and_a_killed_updater_is_replaced(settings, updaters, client, plain):
    first, second = (updaters.make(settings).start() for _ in range(2))
    client.mget(KEYS)
    eventually(lambda: None not in plain.mget(KEYS))

    first.kill()
    killed = time.monotonic()
    plain.delete(*KEYS)
    # readers read again: a miss is declined if it comes within the gap (100 ms) after a refresh
    eventually(lambda: None not in client.mget(KEYS), every=0.2)
    assert time.monotonic() - killed < SESSION_S + 10.0

    third = updaters.make(settings).start()
    second.terminate()
    assert second.wait() == 0
    for key in KEYS:
        plain.set(key, "old")
    client.invalidate(*KEYS)
    client.mget(KEYS)
    eventually(
        lambda: {each.decode() for each in plain.mget(KEYS) if each} == {f'"row {n}"' for n in range(60)}
    )
    assert third.running


def shown(updater):
    """The partitions of each gauge that has them."""
    found = {}
    for name, partition in re.findall(
        r'^(\w+)\{partition="(\d+)"\}', updater.page("/metrics")[1], re.MULTILINE
    ):
        found.setdefault(name, set()).add(int(partition))
    return found


def test_an_updater_shows_no_series_of_partitions_that_it_has_given_away(settings, updaters):
    """Members get partitions by lot: of so many, one of two gets none once in eight million times."""
    url, everything = settings["queue"]["url"].replace("partitions=6", "partitions=24"), set(range(24))
    first, second = (updaters.make(settings | {"queue": {"url": url}}) for _ in range(2))
    first.start()
    eventually(lambda: shown(first).get("cacheupdater_done_offset") == everything)
    gauges = shown(first).keys()
    second.start()

    def divided():
        ours, others = shown(first), shown(second)
        return ours.keys() == others.keys() == gauges and all(
            ours[each] | others[each] == everything and not ours[each] & others[each] for each in gauges
        )

    eventually(divided)
    second.terminate()
    assert second.wait() == 0
    eventually(lambda: shown(first) == dict.fromkeys(gauges, everything))


def test_check_tries_the_streams_and_says_what_is_wrong(settings, updaters, plain):
    updater = updaters.make(settings)
    code, said = checked(updater.file)
    assert (code, "6 partitions" in said) == (0, True), said

    plain.config_set("maxmemory-policy", "allkeys-lru")
    try:
        code, said = checked(updater.file)
    finally:
        plain.config_set("maxmemory-policy", "noeviction")
    assert code != 0
    assert "evicting=allowed" in said


def test_number_of_partitions_must_be_the_one_that_stands(settings, updaters):
    assert checked(updaters.make(settings).file)[0] == 0
    other = json.loads(json.dumps(settings))
    other["queue"]["url"] = other["queue"]["url"].replace("partitions=6", "partitions=7")
    code, said = checked(updaters.make(other).file)

    assert code != 0
    assert "have 6 partitions, and the URL says 7" in said
