"""The servers of a run, and the start of every lane: rows of version 1 and the cache that `traffic` describes.

Two roles use the database, so that its log shows the loads apart from the changes: `loader` loads, and only its statements
are logged (see `statements`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import redis

from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater.local.redis_server import RedisServer
from freshness_live.statements import LOGGED, Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freshness_live.traffic import Inherited

LOADER = "loader"
LOAD = "SELECT id, version FROM items WHERE id = ANY($1)"
NAME = "item:{}"
_AT_ONCE = 1_000  # keys of one pipeline
_KEPT_S = 86_400  # longer than any run: only the TTL lane lets values die
_TABLE = (
    "DROP TABLE IF EXISTS items",
    "CREATE TABLE items (id bigint PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 50)",
)
_NO_FEED = (
    "DROP PUBLICATION IF EXISTS cacheupdater",
    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
)
_FEED = (  # as `cacheupdater changes install` makes it
    "CREATE PUBLICATION cacheupdater FOR TABLE items",
    "SELECT pg_create_logical_replication_slot('cacheupdater', 'pgoutput')",
)


class Servers(NamedTuple):
    """The addresses of the servers."""

    postgres: PostgresServer
    redis: RedisServer
    log: Log

    def database(self, user: str = "postgres") -> str:
        return self.postgres.url().replace("postgres@", f"{user}@")

    def renew(self, keys: int, *, feed: bool = False) -> None:
        """Makes rows of version 1 and an empty cache: nothing of the last lane stays but a feed's slot, if this lane has one too."""
        rows = f"INSERT INTO items SELECT n, 1 FROM generate_series(0, {keys - 1}) n"
        self.postgres.execute(
            *_NO_FEED,
            *_TABLE,
            rows,
            f"GRANT SELECT ON items TO {LOADER}",
            *(_FEED if feed else ()),
            "VACUUM ANALYZE items",
            "CHECKPOINT",
        )
        with redis.Redis.from_url(self.redis.url) as cache:
            cache.flushall()
        self.log.mark()

    def fill(self, cached: Inherited, *, ttl: bool, told: bool) -> None:
        """Fills the cache, just before readers begin: with a TTL the first values expire at once.

        Where changes are `told`, they were told before too: no value is old yet.
        """
        with redis.Redis.from_url(self.redis.url) as cache:
            for first in range(0, len(cached.left), _AT_ONCE):
                pipe = cache.pipeline(transaction=False)
                for key in range(first, min(first + _AT_ONCE, len(cached.left))):
                    left = cached.left[key] if ttl else _KEPT_S
                    if left > 0:
                        version = 0 if cached.stale[key] and not told else 1
                        pipe.set(NAME.format(key), version, px=max(1, int(left * 1000)))
                pipe.execute()


@contextmanager
def servers() -> Iterator[Servers]:
    """Servers that end with this process."""
    # a commit is told once its WAL is written, as in a database that must not lose it
    postgres = PostgresServer(settings={"wal_level": "logical", "synchronous_commit": "on"})
    try:
        postgres.start()
        postgres.execute(
            *LOGGED,
            f"CREATE ROLE {LOADER} LOGIN REPLICATION",
            f"ALTER ROLE {LOADER} SET log_statement = 'all'",
        )
        with RedisServer() as cache:
            yield Servers(postgres, cache, Log.of(postgres.url()))
    finally:
        postgres.remove()
