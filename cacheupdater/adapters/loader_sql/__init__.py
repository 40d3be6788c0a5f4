"""Rows from a SQL database: see `loader`."""

from cacheupdater.adapters.loader_sql.loader import SqlLoader, SqlSource

__all__ = ["SqlLoader", "SqlSource"]
