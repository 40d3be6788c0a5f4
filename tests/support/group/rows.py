"""The rows of the group's stories, and the times of their loads by PostgreSQL's own log.

A namespace's statement calls a function that writes its time and its keys into the server's log before it reads a row. A
volatile function takes a new snapshot for each of its statements, so its rows were read after the time in the log. (It could
not write to a table: loads are read-only.) The time also goes into the value, so that a value in Redis names its load.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import redis
from live.database import Database

from group.ledger import Loads, Values

KEYS = 100_000
PATTERN = "item:{id:int}"
PREFIX = b"item:"

TABLE = f"""
CREATE TABLE items (id bigint PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO items SELECT n, 1 FROM generate_series(0, {KEYS - 1}) n;
"""
FUNCTION = """
CREATE FUNCTION loaded(ids bigint[]) RETURNS TABLE (id bigint, version bigint, at bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE began bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    RAISE LOG 'loading % %', began, ids;
    RETURN QUERY SELECT items.id, items.version, began FROM items WHERE items.id = ANY(ids);
END $$;
"""
SQL = "SELECT rows.* FROM (SELECT array_agg(id) AS ids FROM items WHERE id IN :id) asked, loaded(asked.ids) rows"
VALUE = {"columns": ["version", "at"]}

_LOADING = re.compile(rb"LOG: +loading (\d+) \{([\d,]+)\}")
_AT_ONCE = 1000  # keys of one MGET


class Rows:
    """One test's table, in its own database."""

    def __init__(self, url):
        self.url = url
        with Database(url) as database:
            database.execute(TABLE)
            database.execute(FUNCTION)
            self._log = Path(database.value("SHOW data_directory")).parent / "log"
        self._mark = self._log.stat().st_size

    def loads(self):
        """All loads since this table was made."""
        return Loads(*self.loaded())

    def loaded(self):
        """Their rows, in the order of the log: keys, and when each was loaded, in microseconds of Unix time."""
        with self._log.open("rb") as log:
            log.seek(self._mark)
            found = _LOADING.findall(log.read())
        keys = [np.array(ids.split(b","), dtype=np.int64) for _, ids in found]
        times = np.repeat(
            np.array([int(at) for at, _ in found], dtype=np.int64), [len(each) for each in keys]
        )
        return np.concatenate(keys) if keys else times, times

    def versions(self):
        """The versions by key."""
        with Database(self.url) as database:
            found = database.rows("SELECT id, version FROM items ORDER BY id")
        return np.array([version for _, version in found], dtype=np.int64)


def values(redis_url):
    """The values of these keys in Redis."""
    found = []
    with redis.Redis.from_url(redis_url) as plain:
        for begin in range(0, KEYS, _AT_ONCE):
            held = plain.mget([PREFIX + b"%d" % n for n in range(begin, begin + _AT_ONCE)])
            for number, value in enumerate(held, begin):
                if value is not None:
                    said = json.loads(value)
                    found.append((number, said["version"], said["at"]))
    return Values(*np.array(found, dtype=np.int64).reshape(-1, 3).T)
