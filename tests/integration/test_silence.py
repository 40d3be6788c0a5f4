"""Mistakes with which an updater does nothing useful although all looks well: each is reported where people look."""

from __future__ import annotations

import json

import pytest
import redis
from live.updater_process import config, eventually

from cacheupdater.pipeline.whereabouts import LEAST
from cacheupdater_client import Redis

NAMESPACES = {
    "price": {
        "key": "price:{number:int}:{country}",
        "load": {"source": "code", "python": "live.loaders:prices"},
    }
}
KEYS = [f"price:{n}:de" for n in range(50)]
NOBODYS = [f"price:top{n}:de" for n in range(25)]
LOOKED_S = 30.0  # twenty looks, at some a second, on a busy machine


def warnings(updater):
    """What /readyz warns of, by event."""
    status, body = updater.page("/readyz")
    return {each["event"]: each["text"] for each in json.loads(body)["warnings"]} if status == 200 else {}


@pytest.fixture
def application(redis_url):
    made = []

    def application(updater):
        made.append(Redis.from_url(redis_url, emit=updater.emit))
        return made[-1]

    yield application
    for each in made:
        each.close()


@pytest.fixture
def misled(redis_url, updaters):
    """An updater of another database than the applications'. It loads so slowly that most keys have no copy when they are looked at."""
    return updaters.start(
        config(redis_url.rpartition("/")[0] + "/1", {"code": {"budget": "1/s"}}, NAMESPACES)
    )


@pytest.mark.timeout(120)
def test_another_database_than_the_applications_is_said(misled, redis_url, application):
    client = application(misled)
    with redis.Redis.from_url(redis_url) as plain:
        plain.mset(dict.fromkeys(KEYS, "the application's"))

    def read():
        client.mget(KEYS)
        return "elsewhere" in warnings(misled)

    eventually(read, LOOKED_S, every=0.1)
    assert "were not in our Redis" in warnings(misled)["elsewhere"]
    assert "elsewhere: " in misled.log
    assert misled.metric("troubles", event="elsewhere") == 1.0
    assert misled.metric("elsewhere") == 1.0


@pytest.mark.timeout(120)
def test_another_database_is_said_though_the_applications_cache_was_empty(misled, application):
    """Each key is missed and set once, and no reader ever finds a key."""
    client = application(misled)
    for key in KEYS:
        assert client.get(key) is None
        client.set(key, "the application's")
    eventually(lambda: "elsewhere" in warnings(misled), LOOKED_S)


@pytest.mark.timeout(120)
def test_the_applications_own_database_is_not_suspected_while_its_cache_fills(
    redis_url, updaters, application
):
    """The control: the same reads and sets, where both use one database."""
    updater = updaters.start(config(redis_url, {"code": {"budget": "500/s"}}, NAMESPACES))
    client = application(updater)
    for key in KEYS:
        assert client.get(key) is None
        client.set(key, "the application's")
    eventually(lambda: json.loads(updater.page("/freshness")[1])["lately"]["looked"] >= LEAST, LOOKED_S)
    assert "elsewhere" not in warnings(updater)


@pytest.mark.timeout(120)
def test_a_pattern_that_takes_none_of_the_keys_is_said_and_ages_of_others_are_known(
    redis_url, updaters, application
):
    settings = config(redis_url, {"code": {"budget": "500/s"}}, NAMESPACES) | {"log_keys": "full"}
    updater = updaters.start(settings)
    client = application(updater)

    def read():
        client.mget(KEYS + NOBODYS)
        return (
            "nobodys" in warnings(updater)
            and updater.metric("read_age_seconds_count", namespace="price") >= 20
        )

    eventually(read, LOOKED_S, every=0.1)
    assert "such as price:top" in warnings(updater)["nobodys"]
    said = json.loads(updater.page("/freshness")[1])
    assert "nobodys" in {each["event"] for each in said["warnings"]}
    (age,) = said["read_ages"]
    assert (age["name"], age["looks"] >= 20) == ("price", True)
    assert updater.metric("source_up", source="code") == 1.0
    assert 0.0 <= updater.metric("source_silence_seconds", source="code") < 60.0
