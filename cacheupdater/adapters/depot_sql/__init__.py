"""The depot in a SQL database: see `postgres` and `sqlite`."""

from cacheupdater.adapters.depot_sql.opening import depot_at

__all__ = ["depot_at"]
