"""Flask-Caching and dogpile through our client: each read and write leaves its hint, under the key that Redis has."""

from __future__ import annotations

import pytest
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from dogpile.cache.proxy import ProxyBackend
from flask import Flask
from flask_caching import Cache
from stories.client import Ear

from cacheupdater_client.dogpile import HintProxy
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH


@pytest.fixture
def ear():
    ear = Ear("test_hints_of_frameworks")
    ear.heard()
    return ear


class Passing(ProxyBackend):
    """Somebody else's proxy."""


def flask_cache(kind="RedisCache", **config):
    said = {"CACHE_TYPE": f"cacheupdater_client.flask.{kind}", **config}
    return Cache(Flask("shop"), config=said)


def region(ear, backend="dogpile.cache.redis", *, make=None, wrap=(), **arguments):
    return make_region(**(make or {})).configure(
        backend, arguments=arguments, wrap=[*wrap, HintProxy(emit=ear.url)]
    )


# --- Flask-Caching ------------------------------------------------------------------------------------


def test_each_command_of_flask_caching_leaves_its_hint(ear, redis_url):
    cache = flask_cache(CACHE_REDIS_URL=redis_url, CACHE_OPTIONS={"emit": ear.url})
    assert cache.get("a") is None
    cache.set("a", 5)
    assert cache.get("a") == 5
    assert ear.heard() == {
        (MISS, b"flask_cache_a"): 1,
        (CHANGE, b"flask_cache_a"): 1,
        (TOUCH, b"flask_cache_a"): 1,
    }
    assert cache.get_many("a", "b") == [5, None]
    assert ear.heard() == {(TOUCH, b"flask_cache_a"): 1, (MISS, b"flask_cache_b"): 1}
    cache.delete("a")
    cache.unlink("b")
    assert ear.heard() == {(CHANGE, b"flask_cache_a"): 1, (CHANGE, b"flask_cache_b"): 1}


def test_a_server_may_be_named_by_host_and_port(ear, redis_server):
    cache = flask_cache(
        CACHE_REDIS_HOST="127.0.0.1",
        CACHE_REDIS_PORT=redis_server.port,
        CACHE_KEY_PREFIX="shop:",
        CACHE_OPTIONS={"emit": ear.url},
    )
    cache.get("a")
    assert ear.heard() == {(MISS, b"shop:a"): 1}


def test_options_of_redis_reach_redis_and_only_limits_the_hints(ear, redis_url):
    options = {"emit": ear.url, "only": ["flask_cache_p"], "socket_timeout": 7}
    cache = flask_cache(CACHE_REDIS_URL=redis_url, CACHE_OPTIONS=options)
    cache.get("other")
    cache.get("product")
    assert ear.heard() == {(MISS, b"flask_cache_product"): 1}
    assert cache.cache._read_client.get_connection_kwargs()["socket_timeout"] == 7


def test_sentinels_and_clusters_of_flask_caching_leave_hints(ear, redis_sentinels, redis_cluster):
    cache = flask_cache(
        "RedisSentinelCache",
        CACHE_REDIS_SENTINELS=[("127.0.0.1", each.port) for each in redis_sentinels.sentinels],
        CACHE_REDIS_SENTINEL_MASTER=redis_sentinels.name,
        CACHE_OPTIONS={"emit": ear.url},
    )
    cache.set("a", "x")
    cache.get("none")
    assert ear.heard() == {(CHANGE, b"flask_cache_a"): 1, (MISS, b"flask_cache_none"): 1}
    cache = flask_cache(
        "RedisClusterCache",
        CACHE_REDIS_CLUSTER=f"127.0.0.1:{redis_cluster.nodes[0].port}",
        CACHE_OPTIONS={"emit": ear.url},
    )
    cache.set("a", "x")
    assert cache.get("a") == "x"
    assert ear.heard() == {(CHANGE, b"flask_cache_a"): 1, (TOUCH, b"flask_cache_a"): 1}


# --- dogpile ------------------------------------------------------------------------------------------


def test_each_command_of_dogpile_leaves_its_hint(ear, redis_url):
    shop = region(ear, url=redis_url, make={"key_mangler": "shop:{}".format})
    assert shop.get("a") is NO_VALUE
    assert shop.get_or_create("a", lambda: 5) == 5
    assert set(ear.heard()) == {(MISS, b"shop:a"), (CHANGE, b"shop:a")}  # it looks again when it has the lock
    assert shop.get_multi(["a", "b"]) == [5, NO_VALUE]
    assert ear.heard() == {(TOUCH, b"shop:a"): 1, (MISS, b"shop:b"): 1}
    shop.set_multi({"a": 1, "b": 2})
    shop.delete("a")
    shop.delete_multi(["a", "b"])
    assert ear.heard() == {(CHANGE, b"shop:a"): 3, (CHANGE, b"shop:b"): 2}


@pytest.mark.filterwarnings("ignore:Call to deprecated setex")  # dogpile's
def test_the_proxy_stands_among_others_and_its_class_suffices(ear, redis_url, monkeypatch):
    region(ear, url=redis_url, wrap=[Passing]).get("a")
    assert ear.heard() == {(MISS, b"a"): 1}
    monkeypatch.setenv("CACHEUPDATER_EMIT", ear.url)
    arguments = {"url": redis_url, "redis_expiration_time": 60}
    stock = make_region().configure("dogpile.cache.redis", arguments=arguments, wrap=[HintProxy, Passing])
    stock.set_multi({"b": 1})
    assert stock.get("b") == 1
    assert ear.heard() == {(CHANGE, b"b"): 1, (TOUCH, b"b"): 1}


def test_a_backend_without_redis_works_as_before_and_leaves_no_hints(ear):
    memory = region(ear, "dogpile.cache.memory")
    assert memory.get_or_create("a", lambda: 5) == memory.get("a") == 5
    assert ear.heard() == {}


def test_sentinels_and_clusters_of_dogpile_leave_hints(ear, redis_sentinels, redis_cluster):
    hosts = [("127.0.0.1", each.port) for each in redis_sentinels.sentinels]
    shop = region(
        ear, "dogpile.cache.redis_sentinel", sentinels=hosts, service_name=redis_sentinels.name, db=None
    )
    shop.set("a", 1)
    shop.get("none")
    assert ear.heard() == {(CHANGE, b"a"): 1, (MISS, b"none"): 1}
    cluster = f"redis://127.0.0.1:{redis_cluster.nodes[0].port}"
    shop = region(ear, "dogpile.cache.redis_cluster", url=cluster)
    shop.set("{k}a", 1)
    assert shop.get_multi(["{k}a", "{k}none"]) == [1, NO_VALUE]  # of one slot, as with dogpile's own
    assert ear.heard() == {(CHANGE, b"{k}a"): 1, (TOUCH, b"{k}a"): 1, (MISS, b"{k}none"): 1}
