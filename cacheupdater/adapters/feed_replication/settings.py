"""What a replication feed needs to know, and the arguments of libpq's connections that follow.

The composition root makes one `Settings` per feed. Addresses are read as SQLAlchemy reads them, so a source has one url for its
loads and for its feed. Encryption is said always, or libpq would read the environment, and go on in plain text if a server has
no TLS.
"""

from __future__ import annotations

import ssl
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from cacheupdater.core import database_url
from cacheupdater.encryption import Tls, context
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.feed_ports import Watched

CONNECT_MIN_S = 2  # seconds: libpq does not wait for less
# Seconds after which the server ends the connection of a reader that says nothing: a host that is gone, or a process that was
# stopped, keeps its turn no longer. Readers speak every 2 s.
SENDER_TIMEOUT_S = 20
_ASYNCPG_ALONE = ("prepared_statement_cache_size", "gsslib")


class Settings(NamedTuple):
    """A feed, as the configuration says it."""

    url: str  # of the source: postgresql+asyncpg://…
    publication: str
    slot: str
    watched: Sequence[Watched]
    statement_timeout: float = (
        5.0  # seconds for a question or a connection; none takes longer than some milliseconds
    )
    tls: Tls | None = None  # None: connections to other machines are encrypted


def user_of(settings: Settings) -> str | None:
    """The reader's name in the database, as far as the url says it."""
    return make_url(settings.url).username


def connection_arguments(settings: Settings) -> Mapping[str, str | int]:
    """The arguments of a plain connection. Raises Misconfigured."""
    where = database_url.parts(settings.url)
    if where.database != "postgresql":
        raise Misconfigured("changes: replication needs a source with a postgresql+asyncpg:// url")
    try:
        address = make_url(settings.url).set(drivername="postgresql+psycopg2")
        _, said = address.get_dialect()().create_connect_args(address)
    except (SQLAlchemyError, ValueError) as e:  # its text would show the url with its password
        raise Misconfigured(f"a source's url cannot be used ({type(e).__name__})") from None
    tls = settings.tls or Tls("off" if where.local else "on")
    milliseconds = round(settings.statement_timeout * 1000)
    return {
        **{name: value for name, value in said.items() if name not in _ASYNCPG_ALONE},
        **_encryption(tls),
        "application_name": "cacheupdater",
        "client_encoding": "UTF8",
        "connect_timeout": max(CONNECT_MIN_S, ceil(settings.statement_timeout)),
        "options": f"-c statement_timeout={milliseconds} -c default_transaction_read_only=off -c jit=off",
        "keepalives_idle": 10,  # seconds; a question after a long silence then finds a dead connection closed
    }


def replication_arguments(settings: Settings) -> Mapping[str, str | int]:
    """The arguments of a connection that replicates."""
    return {
        **connection_arguments(settings),
        "options": f"-c wal_sender_timeout={SENDER_TIMEOUT_S}s -c statement_timeout=0",
    }


def encrypted(settings: Settings) -> bool:
    """Whether the connections use TLS."""
    return connection_arguments(settings)["sslmode"] != "disable"


def _encryption(tls: Tls) -> Mapping[str, str]:
    context(tls)  # says which file is wrong, in the words that the loader of this source uses
    if tls.mode == "off":
        return {"sslmode": "disable", "gssencmode": "disable"}
    said = {"gssencmode": "disable", "sslmode": "require" if tls.mode == "on" else "verify-full"}
    if tls.mode == "verify":
        # the wheel of psycopg2 brings an OpenSSL that looks for authorities in folders of its builder
        said["sslrootcert"] = tls.ca or ssl.get_default_verify_paths().cafile or "system"
    if tls.cert is not None:
        said["sslcert"] = tls.cert
        said["sslkey"] = tls.key or tls.cert
    return said
