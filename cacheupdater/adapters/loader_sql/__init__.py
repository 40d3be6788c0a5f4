"""Rows from a SQL database: see `loader`."""

from cacheupdater.adapters.loader_sql.finder import SqlFinder
from cacheupdater.adapters.loader_sql.loader import SqlLoader, SqlSource

__all__ = ["SqlFinder", "SqlLoader", "SqlSource"]
