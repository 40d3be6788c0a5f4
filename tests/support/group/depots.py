"""The queues of the group's stories in a database: what came into the depot, and what its owners did with it.

A depot deletes finished packs, so triggers of the test's own write a history beside it, in the same transactions: each pack, each
removal, each step of `done`, each claim. So the history has what counted, and nothing that was refused or rolled back. Hints
reach these queues through a collector. `streams` has the queue in Redis.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import numpy as np
from depots import files
from live.database import Database

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from group import packs
from group.ledger import MILLISECOND, NEVER, Commits

_POSTGRES_HISTORY = """
CREATE TABLE seen_packs (lane integer, position bigint, payload bytea, at bigint);
CREATE TABLE seen_removals (lane integer, position bigint, at bigint);
CREATE TABLE seen_commits (number bigserial, lane integer, done bigint, at bigint);
CREATE TABLE seen_claims (partition integer, at bigint);
CREATE FUNCTION us() RETURNS bigint LANGUAGE sql VOLATILE AS
    $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
CREATE FUNCTION see_pack() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_packs VALUES (NEW.lane, NEW.position, NEW.payload, us()); RETURN NULL; END $$;
CREATE FUNCTION see_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_removals VALUES (OLD.lane, OLD.position, us()); RETURN NULL; END $$;
CREATE FUNCTION see_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_commits (lane, done, at) VALUES (NEW.partition, NEW.done, us()); RETURN NULL; END $$;
CREATE FUNCTION see_urgent_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_commits (lane, done, at) VALUES (~NEW.partition, NEW.urgent_done, us()); RETURN NULL; END $$;
CREATE FUNCTION see_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_claims VALUES (NEW.partition, us()); RETURN NULL; END $$;
CREATE TRIGGER see AFTER INSERT ON {0}packs FOR EACH ROW EXECUTE FUNCTION see_pack();
CREATE TRIGGER see_end AFTER DELETE ON {0}packs FOR EACH ROW EXECUTE FUNCTION see_removal();
CREATE TRIGGER see AFTER UPDATE ON {0}partitions FOR EACH ROW
    WHEN (OLD.done <> NEW.done) EXECUTE FUNCTION see_commit();
CREATE TRIGGER see_urgent AFTER UPDATE ON {0}partitions FOR EACH ROW
    WHEN (OLD.urgent_done <> NEW.urgent_done) EXECUTE FUNCTION see_urgent_commit();
CREATE TRIGGER see_claim AFTER UPDATE ON {0}partitions FOR EACH ROW
    WHEN (OLD.epoch <> NEW.epoch) EXECUTE FUNCTION see_claim();
"""

_NOW = (
    "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"  # microseconds; it counts milliseconds
)
_SQLITE_HISTORY = f"""
CREATE TABLE seen_packs (lane INTEGER, position INTEGER, payload BLOB, at INTEGER);
CREATE TABLE seen_removals (lane INTEGER, position INTEGER, at INTEGER);
CREATE TABLE seen_commits (number INTEGER PRIMARY KEY, lane INTEGER, done INTEGER, at INTEGER);
CREATE TABLE seen_claims (partition INTEGER, at INTEGER);
CREATE TRIGGER see_pack AFTER INSERT ON packs BEGIN
    INSERT INTO seen_packs VALUES (NEW.lane, NEW.position, NEW.payload, {_NOW}); END;
CREATE TRIGGER see_removal AFTER DELETE ON packs BEGIN
    INSERT INTO seen_removals VALUES (OLD.lane, OLD.position, {_NOW}); END;
CREATE TRIGGER see_commit AFTER UPDATE ON partitions WHEN OLD.done <> NEW.done BEGIN
    INSERT INTO seen_commits (lane, done, at) VALUES (NEW.partition, NEW.done, {_NOW}); END;
CREATE TRIGGER see_urgent AFTER UPDATE ON partitions WHEN OLD.urgent_done <> NEW.urgent_done BEGIN
    INSERT INTO seen_commits (lane, done, at) VALUES (~NEW.partition, NEW.urgent_done, {_NOW}); END;
CREATE TRIGGER see_claim AFTER UPDATE ON partitions WHEN OLD.epoch <> NEW.epoch BEGIN
    INSERT INTO seen_claims VALUES (NEW.partition, {_NOW}); END;
"""


class DepotQueue:
    """What both databases share. `rows` runs a statement; `collectors` is the fixture of that name."""

    def __init__(self, url, *, partitions, collectors):
        self.address_url = f"{url}{'&' if '?' in url else '?'}partitions={partitions}"
        self.address = depot_url.parse(self.address_url)
        asyncio.run(_made(self.address))
        self.watch()
        self.collector = collectors(self.address_url).start()
        self.emit = self.collector.emit

    def url(self, session, instance=None):
        """The queue's URL in the configuration of a member. Members of a depot have no names."""
        return f"{self.address_url}&session_timeout={session}s"

    @property
    def behind(self):
        """The number of packs that are not finished, and of hints that are on their way to the depot."""
        [(left,)] = self.rows(
            "SELECT count(*) FROM {}packs k JOIN {}partitions p ON p.partition = CASE WHEN k.lane < 0 THEN ~k.lane ELSE k.lane END"
            " AND k.position >= CASE WHEN k.lane < 0 THEN p.urgent_done ELSE p.done END"
        )
        return left + self.collector.metric("waiting")

    def records(self):
        """For the ledger, each lane is a partition of its own."""
        removed = {(lane, at): when for lane, at, when in self.rows("SELECT * FROM seen_removals")}
        rows = self.rows("SELECT lane, position, payload, at FROM seen_packs")
        put = {(lane, at): when for lane, at, _, when in rows}
        found = packs.records([row[:3] for row in rows])
        places = list(zip(found.partitions.tolist(), found.offsets.tolist(), strict=True))
        # a time is cut to milliseconds, or exact
        times = [removed.get(each, int(NEVER) - MILLISECOND) + MILLISECOND for each in places]
        came = [put[each] for each in places]
        return found._replace(removed=np.array(times, dtype=np.int64), put=np.array(came, dtype=np.int64))

    def commits(self):
        found = self.rows("SELECT lane, done, at FROM seen_commits ORDER BY number")
        partitions, done, at = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return Commits(partitions, done, at + MILLISECOND)

    def members(self):
        """The names of all that have joined, and of some that are gone."""
        return {name for (name,) in self.rows("SELECT member FROM {}members")}

    def owners(self):
        """The name of each partition's owner, as the depot says now."""
        return dict(self.rows("SELECT partition, owner FROM {}partitions WHERE owner IS NOT NULL"))

    def claims(self):
        """Each claim that counted: its partition, and when it was, in microseconds of Unix time."""
        return self.rows("SELECT partition, at FROM seen_claims")


class PostgresQueue(DepotQueue):
    def watch(self):
        with Database(self.address.url) as database:
            database.execute(_POSTGRES_HISTORY.replace("{0}", f"{self.address.table}_"))

    def rows(self, statement):
        with Database(self.address.url) as database:
            return [tuple(each) for each in database.rows(statement.replace("{}", f"{self.address.table}_"))]

    def is_free(self):
        return True  # PostgreSQL ends the transaction of a frozen process


class SqliteQueue(DepotQueue):
    def watch(self):
        with closing(sqlite3.connect(self.address.path)) as connection:
            connection.executescript(_SQLITE_HISTORY)

    def rows(self, statement):
        with closing(sqlite3.connect(self.address.path, timeout=30)) as connection:
            return connection.execute(statement.replace("{}", "")).fetchall()

    def is_free(self):
        return files.is_free(self.address.path)


async def _made(address):
    """The tables are made, as the first updater would make them."""
    depot = depot_at(address)
    try:
        await depot.open()
    finally:
        await depot.close()
