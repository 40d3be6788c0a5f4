"""The statements of a depot in SQLite. `SqliteDepot` runs them in its thread.

A pair of statements is for lanes of touches, and for urgent ones: the row of a partition has the cursors of both. `~` is Python's,
so a lane has the same number in both. Only one process writes at a time, so no statement locks rows. `julianday` is the time of the machine, which all processes at one
file share. SQLite has no arrays; json_each reads a list.
"""

from __future__ import annotations

from cacheupdater.adapters.depot_sql import checks

APPLICATION = 0x63757031  # "cup1", SQLite's application_id of our files: a file of another program is refused

_NOW = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970


def _for_both_lanes(text: str) -> tuple[str, str]:
    """For a lane of touches, and for an urgent one."""
    return text.format(of=""), text.format(of="urgent_")


_LIVING = f"SELECT member FROM members WHERE expires > {_NOW}"  # noqa: S608  our own texts, as all here

CREATE = (
    """CREATE TABLE partitions (
        partition INTEGER PRIMARY KEY,
        last INTEGER NOT NULL DEFAULT 0,
        scan INTEGER NOT NULL DEFAULT 1,
        done INTEGER NOT NULL DEFAULT 1,
        urgent_last INTEGER NOT NULL DEFAULT 0,
        urgent_scan INTEGER NOT NULL DEFAULT 1,
        urgent_done INTEGER NOT NULL DEFAULT 1,
        epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT
    )""",
    """CREATE TABLE packs (
        lane INTEGER NOT NULL,
        position INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (lane, position)
    )""",
    "CREATE TABLE members (member TEXT PRIMARY KEY, expires REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE news (puts INTEGER NOT NULL)",
    "INSERT INTO news VALUES (0)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {checks.VERSION}",
)
ADD_PARTITION = "INSERT INTO partitions (partition) VALUES (?)"
TABLES = "SELECT count(*) FROM sqlite_schema"
PARTITIONS = "SELECT count(*) FROM partitions"
FORGET = f"DELETE FROM members WHERE expires < {_NOW} - {checks.MEMBER_KEPT_S}"  # noqa: S608

RENEW = f"INSERT OR REPLACE INTO members (member, expires) VALUES (?, {_NOW} + ?)"  # noqa: S608
LIVING = _LIVING
OWNERS = f"""
SELECT owner, json_group_array(partition) FROM partitions WHERE owner IN ({_LIVING}) GROUP BY owner
"""  # noqa: S608
CLAIM = f"""
UPDATE partitions SET owner = :me, epoch = epoch + 1
WHERE partition IN (SELECT value FROM json_each(:partitions)) AND :me IN ({_LIVING})
AND (owner IS NULL OR owner = :me OR owner NOT IN ({_LIVING}))
RETURNING partition, epoch, done, urgent_done
"""  # noqa: S608
RELEASE = "UPDATE partitions SET owner = NULL WHERE owner = ? AND partition = ? AND epoch = ?"
END = "DELETE FROM members WHERE member = ?"
LEAVE = "UPDATE partitions SET owner = NULL WHERE owner = ?"

NEWS = "SELECT puts FROM news"
LASTS = "SELECT partition, last, urgent_last FROM partitions"
READ = "SELECT position, payload FROM packs WHERE lane = ? AND position >= ? ORDER BY position LIMIT ?"
COMMIT = _for_both_lanes("""
UPDATE partitions SET {of}scan = max({of}scan, ?), {of}done = max({of}done, ?)
WHERE owner = ? AND partition = ? AND epoch = ? RETURNING {of}done
""")
FINISH = "DELETE FROM packs WHERE lane = ? AND position = ?"
SWEEP = """
DELETE FROM packs WHERE rowid IN (SELECT rowid FROM packs WHERE lane = ? AND position < ? LIMIT ?)
"""
LAG = f"""
SELECT l.lane, l.done, l.last + 1,
    (SELECT count(*) FROM packs k WHERE k.lane = l.lane AND k.position >= l.done),
    CASE WHEN l.owner IN ({_LIVING}) THEN l.owner END
FROM (
    SELECT partition, ~partition AS lane, urgent_done AS done, urgent_last AS last, owner FROM partitions
    UNION ALL SELECT partition, partition, done, last, owner FROM partitions
) l ORDER BY l.partition, l.lane
"""  # noqa: S608
# an end that no pack has reached is of a file that was made again meanwhile
DROP = _for_both_lanes("""
UPDATE partitions SET {of}scan = max({of}scan, min(:end, {of}last + 1)), {of}done = max({of}done, min(:end, {of}last + 1))
WHERE partition = :partition RETURNING {of}done
""")
ADVANCE = """
UPDATE partitions SET last = last + :touches, urgent_last = urgent_last + :urgent WHERE partition = :partition
RETURNING last - :touches, last - done + 1, urgent_last - :urgent, urgent_last - urgent_done + 1
"""
PUT = "INSERT INTO packs (lane, position, payload) VALUES (?, ?, ?)"
TELL = "UPDATE news SET puts = puts + 1"
