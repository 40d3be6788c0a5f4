"""The statements of a depot in SQLite. `SqliteDepot` runs them in its thread.

Only one process writes at a time, so no statement locks rows. `julianday` is the time of the machine, which all processes at one
file share. SQLite has no arrays; json_each reads a list.
"""

from __future__ import annotations

from cacheupdater.adapters.depot_sql import checks

APPLICATION = 0x63757031  # "cup1", SQLite's application_id of our files: a file of another program is refused

_NOW = "(julianday('now') - 2440587.5) * 86400.0"  # seconds since 1970
_LIVING = f"SELECT member FROM members WHERE expires > {_NOW}"  # noqa: S608  our own texts, as all here

CREATE = (
    """CREATE TABLE partitions (
        partition INTEGER PRIMARY KEY,
        last INTEGER NOT NULL DEFAULT 0,
        scan INTEGER NOT NULL DEFAULT 1,
        done INTEGER NOT NULL DEFAULT 1,
        epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT
    )""",
    """CREATE TABLE packs (
        partition INTEGER NOT NULL,
        position INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (partition, position)
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
RETURNING partition, epoch, done
"""  # noqa: S608
RELEASE = "UPDATE partitions SET owner = NULL WHERE owner = ? AND partition = ? AND epoch = ?"
END = "DELETE FROM members WHERE member = ?"
LEAVE = "UPDATE partitions SET owner = NULL WHERE owner = ?"

NEWS = "SELECT puts FROM news"
LASTS = "SELECT partition, last FROM partitions"
READ = "SELECT position, payload FROM packs WHERE partition = ? AND position >= ? ORDER BY position LIMIT ?"
COMMIT = """
UPDATE partitions SET scan = max(scan, ?), done = max(done, ?) WHERE owner = ? AND partition = ? AND epoch = ?
"""
FINISH = "DELETE FROM packs WHERE partition = ? AND position = ?"
SWEEP = """
DELETE FROM packs WHERE rowid IN (
    SELECT k.rowid FROM packs k JOIN partitions p ON k.partition = p.partition
    WHERE k.partition = ? AND k.position < p.done LIMIT ?
)
"""
LAG = f"""
SELECT p.partition, p.done, p.last + 1,
    (SELECT count(*) FROM packs k WHERE k.partition = p.partition AND k.position >= p.done),
    CASE WHEN p.owner IN ({_LIVING}) THEN p.owner END
FROM partitions p ORDER BY p.partition
"""  # noqa: S608
# an end that no pack has reached is of a file that was made again meanwhile
DROP = """
UPDATE partitions SET scan = max(scan, min(:end, last + 1)), done = max(done, min(:end, last + 1))
WHERE partition = :partition
"""
ADVANCE = """
UPDATE partitions SET last = last + :packs WHERE partition = :partition
RETURNING last - :packs, last - done + 1
"""
PUT = "INSERT INTO packs (partition, position, payload) VALUES (?, ?, ?)"
TELL = "UPDATE news SET puts = puts + 1"
