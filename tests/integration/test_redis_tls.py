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

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client import Redis
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import TOUCH
from cacheupdater_client.transports import link_to

pytestmark = pytest.mark.usefixtures("patient", "patient_client")

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


def streams_at(url):
    return f"{url}{'&' if '?' in url else '?'}stream=hints&partitions=1"


async def depot(url):
    """What it holds is a first question, whatever the answer is."""
    observer = RecordingObserver()
    depot = RedisDepot(streams.parse(streams_at(url)), observer=observer, notices=Notices(lambda: 0.0))
    with suppress(CacheUpdaterError):
        await depot.open()
    await depot.close()


async def sender(url):
    """The link of a client that sends its hints to streams."""
    outbox, link = Outbox(), link_to(streams_at(url))()
    outbox.add(TOUCH, {b"product:7": 1})
    await asyncio.to_thread(link.turn, outbox, 1.0, 1)
    link.close()


ALL = [updater, application, depot, sender]


@pytest.fixture
def trusted(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def another(tmp_path):
    return Authority(tmp_path, "another")


@pytest.mark.parametrize("ask", ALL)
async def test_a_redis_that_nobody_vouches_for_hears_nothing(ask, trusted, another):
    async with a_redis_of(another) as (port, heard):
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0")
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert heard == []


@pytest.mark.parametrize("ask", ALL)
async def test_a_redis_of_another_name_hears_nothing(ask, trusted):
    async with a_redis_of(trusted) as (port, heard):  # its certificate is for 127.0.0.1 and localhost
        await ask(f"rediss://shop:{PASSWORD}@127.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert heard == []


@pytest.mark.parametrize("ask", ALL)
async def test_the_redis_that_is_vouched_for_is_spoken_to(ask, trusted):
    async with a_redis_of(trusted) as (port, heard):
        await ask(f"rediss://shop:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={trusted.ca}")
    assert PASSWORD.encode() in b"".join(heard)
