"""TLS between the updater and its database, against eavesdroppers and impostors.

One database says that it has no TLS and asks for the password, as an attacker on the way could. The other is a real PostgreSQL
with certificates of the test's own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from pathlib import Path

import pytest
from servers.certificates import Authority
from servers.pretender import pretending

from cacheupdater.adapters.feed_replication import ReplicationFeed, Settings
from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.encryption import Tls
from cacheupdater.errors import CacheUpdaterError, Unavailable, Unreached
from cacheupdater.feed_ports import Watched
from cacheupdater_client.protocol.patterns import Pattern

PASSWORD = "c4n4ry-of-a-password"
SETTLE_S = 60.0  # for what takes a few turns of the loop
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
ASKS_FOR_IT = b"R" + struct.pack("!ii", 8, 3)  # AuthenticationCleartextPassword
ENCRYPTED = (
    "SELECT id, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS ssl"
    " FROM (VALUES (CAST(1 AS bigint))) AS one (id) WHERE id IN :id"
)


def a_database_without_tls():
    """It asks for the password, and hangs up when it has one."""

    def answer(data):
        if data.startswith(b"p"):  # a password
            return None
        return b"N" if data == SSL_REQUEST else ASKS_FOR_IT

    return pretending(answer)


async def loaded(url, tls=None):
    """The row of one key, which tells whether its connection was encrypted."""
    source = SqlSource(url, tls=tls, statement_timeout=5.0)
    try:
        return await SqlLoader(source, ENCRYPTED, Pattern.compile("x:{id:int}")).load([(1,)])
    finally:
        await source.close()
        await _settled()


async def _settled():
    """asyncpg gives up a refused TLS connection, and asyncio ends it some turns later. The loop must live until then."""
    transports = asyncio.get_running_loop()._transports
    async with asyncio.timeout(SETTLE_S):
        while any(each._sock is not None for each in list(transports.values())):  # noqa: ASYNC110  asyncio sets no event
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("host", "tls"),
    [("127.1", None), ("127.0.0.1", Tls("on")), ("127.0.0.1", Tls("verify"))],
    ids=["off this machine, nothing said", "on", "verify"],
)
async def test_a_database_that_says_it_has_no_tls_never_gets_the_password(host, tls):
    async with a_database_without_tls() as (port, heard):
        with pytest.raises(Unreached, match="offers no TLS, and nothing was sent to it without"):
            await loaded(f"postgresql+asyncpg://shop:{PASSWORD}@{host}:{port}/shop", tls)
    assert set(heard) == {SSL_REQUEST}


async def test_a_database_without_tls_gets_the_password_only_where_tls_is_off():
    async with a_database_without_tls() as (port, heard):
        with pytest.raises(CacheUpdaterError):
            await loaded(f"postgresql+asyncpg://shop:{PASSWORD}@127.1:{port}/shop", Tls("off"))
    assert PASSWORD.encode() in b"".join(heard)
    assert SSL_REQUEST not in heard


async def test_the_environment_does_not_change_how_a_connection_is_encrypted(monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "disable")
    async with a_database_without_tls() as (port, heard):
        with pytest.raises(Unreached):
            await loaded(f"postgresql+asyncpg://shop:{PASSWORD}@127.1:{port}/shop")
    assert set(heard) == {SSL_REQUEST}


@pytest.mark.parametrize(
    ("host", "tls"), [("127.1", None), ("127.0.0.1", Tls("on")), ("127.0.0.1", Tls("verify"))]
)
async def test_a_feed_never_gives_the_password_to_a_database_that_says_it_has_no_tls(host, tls, monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "disable")
    async with a_database_without_tls() as (port, heard):
        url = f"postgresql+asyncpg://shop:{PASSWORD}@{host}:{port}/shop"
        with pytest.raises(Unavailable, match="offers no TLS"):
            await told(url, 1, tls)
    assert set(heard) == {SSL_REQUEST}


async def told(url, rows, tls=None):
    """Reads so many changes of a feed."""
    feed = ReplicationFeed(Settings(url, "shop", "shop", (Watched("items", ("id", "note")),), tls=tls))
    try:
        await feed.start()
        changes = []
        before = None
        async for batch in feed.batches():
            before = before if changes else batch.position
            changes += batch.changes
            await feed.confirm(batch.position)
            # Only a batch with the commit has a higher position. Until the commit is confirmed, all changes come again.
            if len(changes) >= rows and batch.position > before:
                return changes
    finally:
        await feed.stop()


class Server:
    """A real PostgreSQL that lets `shop` in by TLS alone."""

    def __init__(self, postgres, authority):
        self._postgres = postgres
        self._data = Path(f"{postgres._home}/data")
        self.url = postgres.url().replace("//postgres@", "//shop@")
        owner = self._data.stat()
        certificate, key = authority.vouch("server")
        for source, name in ((certificate, "server.crt"), (key, "server.key"), (authority.ca, "root.crt")):
            shutil.copy(source, self._data / name)
            (self._data / name).chmod(0o600)
            os.chown(self._data / name, owner.st_uid, owner.st_gid)
        postgres.execute(
            "CREATE ROLE shop LOGIN",
            "ALTER SYSTEM SET ssl = 'on'",
            "ALTER SYSTEM SET ssl_ca_file = 'root.crt'",
        )

    def lets_in(self, *how):
        rules = self._data / "pg_hba.conf"
        ours = "host all postgres 127.0.0.1/32 trust\n"  # the fixture's
        rules.write_text(f"{ours}hostssl all shop 127.0.0.1/32 {' '.join(how)}\n")
        self._postgres.stop()
        self._postgres.start()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def server(postgres_server, authority):
    return Server(postgres_server, authority)


@pytest.mark.timeout(300)
async def test_a_real_postgres_is_spoken_to_as_the_configuration_says(server, authority, tmp_path):
    server.lets_in("trust")
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger")

    for tls in (Tls("on"), Tls("verify", str(authority.ca))):
        assert await loaded(server.url, tls) == {(1,): {"id": 1, "ssl": True}}
    for tls in (Tls("verify", str(stranger.ca)), Tls("verify")):
        with pytest.raises(Unreached, match=r"certificate cannot be trusted .*name its authority by ca"):
            await loaded(server.url, tls)
    with pytest.raises(Unreached, match=r"does not let this user in from here .*, no encryption"):
        await loaded(server.url, Tls("off"))


@pytest.mark.timeout(300)
async def test_a_real_postgres_that_wants_a_certificate_of_ours_gets_it(server, authority):
    server.lets_in("cert", "clientcert=verify-full")
    certificate, key = authority.vouch("shop")
    ca = str(authority.ca)

    with pytest.raises(Unreached, match="connection requires a valid client certificate"):
        await loaded(server.url, Tls("verify", ca))
    shown = Tls("verify", ca, str(certificate), str(key))
    assert await loaded(server.url, shown) == {(1,): {"id": 1, "ssl": True}}


ROWS = 3_000  # with notes of all lengths, so that they lie anyhow in the records of TLS
FILL = f"INSERT INTO items SELECT id, repeat('x', id * 7) FROM generate_series(1, {ROWS}) id"


@pytest.mark.timeout(300)
async def test_a_feed_is_encrypted_as_its_source_is(logical_server, authority, tmp_path):
    server = Server(logical_server, authority)
    server.lets_in("cert", "clientcert=verify-full")
    logical_server.execute(
        "ALTER ROLE shop REPLICATION",
        "CREATE TABLE items (id bigint PRIMARY KEY, note text)",
        "CREATE PUBLICATION shop FOR TABLE items",
        "SELECT pg_create_logical_replication_slot('shop', 'pgoutput')",
        FILL,
    )
    certificate, key = map(str, authority.vouch("shop"))
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "stranger")

    for tls in (Tls("verify", str(authority.ca), certificate, key), Tls("on", None, certificate, key)):
        changes = await told(server.url, ROWS, tls)
        assert [each.rows[0]["id"] for each in changes] == [*range(1, ROWS + 1)]
        logical_server.execute("TRUNCATE items", FILL)
    for tls in (Tls("verify", str(stranger.ca), certificate, key), Tls("verify", None, certificate, key)):
        with pytest.raises(Unavailable, match="certificate cannot be trusted"):
            await told(server.url, 1, tls)
    for tls in (Tls("off"), Tls("verify", str(authority.ca))):
        with pytest.raises(Unavailable, match=r"does not let this user in|certificate"):
            await told(server.url, 1, tls)
