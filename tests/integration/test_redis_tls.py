"""An impostor behind `rediss://` gets nothing: no password, no key, no command.

Client and updater connect by redis-py. The tests check its defaults: it verifies the certificate and the name in it.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest
from servers.certificates import Authority
from servers.pretender import pretending

from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.errors import CacheUpdaterError
from cacheupdater_client import Redis

PASSWORD = "c4n4ry-of-a-password"


def a_redis_of(authority):
    """It agrees to everything."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.vouch("server"))
    return pretending(lambda data: b"+OK\r\n" * data.count(b"*"), tls)


async def updater(url):
    """A token is the first thing that an updater asks of a Redis."""
    writer = RedisWriter(url)
    with suppress(CacheUpdaterError):
        await writer.token([b"product:7"])
    await writer.close()


async def application(url):
    def read():
        with Redis.from_url(url, retry=None, protocol=2) as client, suppress(Exception):
            client.get("product:7")

    await asyncio.to_thread(read)


@pytest.fixture
def trusted(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def another(tmp_path):
    return Authority(tmp_path, "another")


@pytest.mark.parametrize("ask", [updater, application])
async def test_a_redis_that_nobody_vouches_for_hears_nothing(ask, trusted, another):
    async with a_redis_of(another) as (port, heard):
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0")
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert heard == []


@pytest.mark.parametrize("ask", [updater, application])
async def test_a_redis_of_another_name_hears_nothing(ask, trusted):
    async with a_redis_of(trusted) as (port, heard):  # its certificate is for 127.0.0.1 and localhost
        await ask(f"rediss://shop:{PASSWORD}@127.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert heard == []


@pytest.mark.parametrize("ask", [updater, application])
async def test_the_redis_that_is_vouched_for_is_spoken_to(ask, trusted):
    async with a_redis_of(trusted) as (port, heard):
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert PASSWORD.encode() in b"".join(heard)
