"""What a feed with an outbox is told, and the connections that follow from it.

The composition root makes one `NotifySettings` per source. Addresses are read as SQLAlchemy reads them, so a source has one url
for its loads and for its feed. Each connection belongs to one feed, which ends it: there is no pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import asyncpg
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from cacheupdater.adapters.feed_notify.failures import FOREIGN, of_server
from cacheupdater.core import database_url
from cacheupdater.encryption import Tls, context
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.feed_ports import Watched

    Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# Seconds after which the server notices that the machine of a reader is gone, and another reader has its turn. The end of a
# process it notices at once
GONE = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
_SQLALCHEMY_ALONE = ("prepared_statement_cache_size", "prepared_statement_name_func", "async_fallback")


class NotifySettings(NamedTuple):
    """A feed, as the configuration says it."""

    url: str  # of the source: postgresql+asyncpg://…
    watched: Sequence[Watched]
    outbox: str = "public.cacheupdater_changes"  # its table; readers of another outbox are another group
    statement_timeout: float = 10.0  # seconds for a statement or a connection; usually some milliseconds
    tls: Tls | None = None  # None: connections to other machines are encrypted


def user_of(settings: NotifySettings) -> str | None:
    """The reader's name in the database, as far as the url says it."""
    return make_url(settings.url).username


async def connected(settings: NotifySettings) -> Connection:
    """A new connection. Raises Unavailable or Misconfigured."""
    where = database_url.parts(settings.url)
    if where.database != "postgresql":
        raise Misconfigured("changes: notify needs a source with a postgresql+asyncpg:// url")
    try:
        address = make_url(settings.url).set(drivername="postgresql+asyncpg")
        _, said = address.get_dialect()().create_connect_args(address)
    except (SQLAlchemyError, ValueError) as e:  # its text would show the url with its password
        raise Misconfigured(f"a source's url cannot be used ({type(e).__name__})") from None
    tls = settings.tls or Tls("off" if where.local else "on")
    try:
        return await asyncpg.connect(**_arguments(said, settings), ssl=context(tls) or False)
    except FOREIGN as e:
        raise of_server(e) from None


def _arguments(said: Mapping[str, Any], settings: NotifySettings) -> dict[str, Any]:
    server = {
        "application_name": "cacheupdater",
        "statement_timeout": str(round(settings.statement_timeout * 1000)),
        "default_transaction_read_only": "off",
        "default_transaction_isolation": "read committed",
        "jit": "off",  # compilation costs more than any of our statements
        **GONE,
    }
    return {
        **{name: value for name, value in said.items() if name not in _SQLALCHEMY_ALONE},
        "server_settings": server,
        "timeout": settings.statement_timeout,
        "command_timeout": settings.statement_timeout + 1.0,  # the server ends a slow statement itself before
    }
