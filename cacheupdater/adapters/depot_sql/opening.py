"""Picks the depot for an address. The composition root calls `depot_at` once per process.

A driver is imported only when its database is used: asyncpg is an extra, and SQLite's is Python's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.errors import Misconfigured
from cacheupdater.packages import ASYNCPG

if TYPE_CHECKING:
    from cacheupdater.adapters.depot_sql.postgres import PostgresDepot
    from cacheupdater.adapters.depot_sql.sqlite import SqliteDepot
    from cacheupdater.core.depot_url import Address


def depot_at(address: Address) -> PostgresDepot | SqliteDepot:
    """The depot in the database that the address names. Nothing is opened yet. Raises Misconfigured."""
    if address.path:
        from cacheupdater.adapters.depot_sql.sqlite import SqliteDepot  # noqa: PLC0415  one database, one driver

        return SqliteDepot(address)
    try:
        from cacheupdater.adapters.depot_sql.postgres import PostgresDepot  # noqa: PLC0415  asyncpg is an extra
    except ModuleNotFoundError as e:
        raise Misconfigured(f"a queue in PostgreSQL needs {e.name}: pip install {ASYNCPG}") from None
    return PostgresDepot(address)
