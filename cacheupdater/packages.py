"""What pip installs for a module that is missing, as a shell takes it: the packages of our extras, with their bounds.

A message names no extra: an index may lack this project, and has its packages. `pyproject.toml` holds the same requirements,
and a test compares both. Those of the extra `kafka` stand in `protocol.broker`, for the client names them too.
"""

from __future__ import annotations

# without uvloop, which has a marker: the updater runs without it
UPDATER = (
    "'cachetools>=6' 'hiredis>=3' 'numpy>=2' 'prometheus-client>=0.23' 'pydantic>=2.11' 'ruamel.yaml>=0.18'"
    " 'sqlalchemy[asyncio]>=2.0.43'"
)
OF_UPDATERS = frozenset(
    {"cachetools", "numpy", "prometheus_client", "pydantic", "pydantic_core", "ruamel", "sqlalchemy"}
)
"""Modules of these packages. hiredis is not among them: redis-py does without it."""

AIOSQLITE, ASYNCPG, PSYCOPG2, RICH = (
    "'aiosqlite>=0.20'",
    "'asyncpg>=0.30'",
    "'psycopg2-binary>=2.9'",
    "'rich>=13'",
)
_OTHERS = {"aiosqlite": AIOSQLITE, "asyncpg": ASYNCPG, "psycopg2": PSYCOPG2, "rich": RICH}


def lacking(module: str) -> str | None:
    """What brings this module; None if it is not one of ours."""
    if module in OF_UPDATERS:
        return UPDATER
    if module == "aiokafka":
        from cacheupdater_client.protocol.broker import PACKAGES  # noqa: PLC0415  ssl, which few commands need

        return PACKAGES
    return _OTHERS.get(module)
