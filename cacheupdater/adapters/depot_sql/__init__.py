"""The depot in a SQL database: see `postgres` and `sqlite`."""

from cacheupdater.adapters.depot_sql.opening import depot_at
from cacheupdater.adapters.depot_sql.sqlite_file import refuse_unwritable

__all__ = ["depot_at", "refuse_unwritable"]
