"""The URL that an application's client stands for leads redis-py to the same server with the same rights."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from cacheupdater.adapters.address_redis import url_of
from cacheupdater.errors import Misconfigured

SAME = ("host", "port", "db", "username", "password", "path", "ssl_ca_certs", "ssl_cert_reqs")


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6380/3",
        "redis://me:p%40ss%3A%2F%3F@[::1]:6379/0",
        "redis://:only%23password@cache/0",
        "rediss://cache:6379/0?ssl_ca_certs=/a%20file.pem&ssl_cert_reqs=none",
        "unix://me:secret@/run/redis.sock?db=2",
    ],
)
def test_the_url_of_a_client_makes_a_client_of_the_same_server(kind, url):
    def said(client):
        options = client.connection_pool.connection_kwargs
        return client.connection_pool.connection_class, {name: options.get(name) for name in SAME}

    client = kind.from_url(url)
    kind_of, before = said(client)
    kind_again, after = said(kind.from_url(url_of(client)))
    assert kind_again is kind_of
    before["port"] = before["port"] or (None if before["path"] else 6379)
    assert {name: after[name] for name in before if before[name] is not None} == {
        name: value for name, value in before.items() if value is not None
    }


def test_the_primary_of_sentinels_keeps_both_passwords():
    sentinels = Sentinel([("a", 1), ("b", 2)], sentinel_kwargs={"password": "s&x"}, password="p w")
    url = url_of(sentinels.master_for("shop"))
    assert url == "redis+sentinel://:p%20w@a:1,b:2/shop/0?sentinel_password=s%26x"


def test_a_cluster_is_named_by_its_nodes():
    client = redis.asyncio.RedisCluster(host="h", port=7000, password="p", ssl=True)
    assert url_of(client) == "rediss+cluster://:p@h:7000?ssl_cert_reqs=required"


def test_what_no_url_can_say_is_refused():
    provider = redis.UsernamePasswordCredentialProvider("me", "secret")
    with pytest.raises(
        Misconfigured, match="credential_provider, which no URL can say; name the Redis in a file"
    ):
        url_of(redis.Redis(credential_provider=provider))
