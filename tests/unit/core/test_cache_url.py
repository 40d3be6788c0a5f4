"""URLs of caches: the meaning of each kind, what is refused, and what is never shown."""

from __future__ import annotations

import pytest

from cacheupdater.core.cache_url import Cluster, One, Sentinels, parse
from cacheupdater.errors import Misconfigured


@pytest.mark.parametrize("url", ["redis://h:1/2?a=b", "rediss://u:p@h", "unix:///run/redis.sock?db=1"])
def test_one_server_is_what_redis_py_reads(url):
    assert parse(url) == One(url)


def test_cluster_names_its_seeds_and_how_to_reach_any_node():
    cluster = parse("redis+cluster://u:p%40ss@a:7000,b,[::1]:7002/0?ssl_x=1&y=2")
    assert isinstance(cluster, Cluster)
    assert cluster.seeds == (("a", 7000), ("b", 6379), ("::1", 7002))
    assert cluster.url("::1", 7002) == "redis://u:p%40ss@[::1]:7002?ssl_x=1&y=2"
    assert parse("rediss+cluster://a").url("b", 1) == "rediss://b:1"


def test_sentinels_have_a_password_of_their_own_or_none():
    url = "rediss+sentinel://u:p@a,b:1,a/the-primary/3?sentinel_password=s&ssl_x=1&sentinel_username=w"
    sentinels = parse(url)
    assert isinstance(sentinels, Sentinels)
    assert (sentinels.seeds, sentinels.name) == ((("a", 26379), ("b", 1)), "the-primary")
    assert sentinels.url("h", 6379) == "rediss://u:p@h:6379/3?ssl_x=1"
    assert sentinels.sentinel_url("a", 26379) == "rediss://w:s@a:26379?ssl_x=1"
    without = parse("redis+sentinel://:p@a/m")
    assert (without.url("h", 1), without.sentinel_url("a", 2)) == ("redis://:p@h:1/0", "redis://a:2")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h", "use redis://"),
        ("redis+clusters://h", "use redis://"),
        ("h:6379", "use redis://"),
        ("redis+cluster://", "hosts cannot be read"),
        ("redis+cluster://a,,b", "hosts cannot be read"),
        ("redis+cluster://a:x", "hosts cannot be read"),
        ("redis+cluster://a:65536", "hosts cannot be read"),
        ("redis+cluster://a/1", "database 0 only"),
        ("redis+sentinel://a", "name of the primary is missing"),
        ("redis+sentinel://a/b c/0", "name of the primary is missing"),
        ("redis+sentinel://a/m/x", "database must be a number"),
        ("redis+sentinel:///m/0", "hosts cannot be read"),
    ],
)
def test_url_that_cannot_be_read_is_refused_with_a_form_to_follow(url, why):
    with pytest.raises(Misconfigured, match=why) as caught:
        parse(url)
    assert "redis+" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://u:hunter2@h", "redis+cluster://u:hunter2@h", "redis+sentinel://u:hunter2@h/m"]
)
def test_password_shows_in_no_repr_and_no_message(url):
    assert "hunter2" not in repr(parse(url))
    with pytest.raises(Misconfigured) as caught:
        parse(url.replace("redis", "rodis") if "+" not in url else url.replace("@h", "@:h"))
    assert "hunter2" not in str(caught.value)
