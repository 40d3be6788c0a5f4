"""The statements of a depot in PostgreSQL, for tables of one name. `PostgresDepot` makes them once and sends them.

A pair of statements is for lanes of touches, and for urgent ones: the row of a partition has the cursors of both, so one lock
covers both. `~` is Python's, so a lane has the same number in both.

Whoever changes rows of several partitions locks them first, in the order of their numbers (`lock`). So no two of us wait for each
other in a circle. A put takes its positions under that lock and holds it until it has committed. So positions of a lane come to
be seen in their order, and a reader that goes on behind the last one misses none.

`clock_timestamp()` is the time of the server when a row is looked at; `now()` would be that of the transaction's beginning.
"""

from __future__ import annotations

from cacheupdater.adapters.depot_sql import checks

_LIVING = "SELECT member FROM {members} WHERE expires > clock_timestamp()"

_CREATE = """
CREATE TABLE {partitions} (
    partition integer PRIMARY KEY,
    last bigint NOT NULL DEFAULT 0,
    scan bigint NOT NULL DEFAULT 1,
    done bigint NOT NULL DEFAULT 1,
    urgent_last bigint NOT NULL DEFAULT 0,
    urgent_scan bigint NOT NULL DEFAULT 1,
    urgent_done bigint NOT NULL DEFAULT 1,
    epoch bigint NOT NULL DEFAULT 0,
    owner text
) WITH (fillfactor = 50);
CREATE TABLE {packs} (
    lane integer NOT NULL,
    position bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (lane, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE TABLE {members} (member text PRIMARY KEY, expires timestamptz NOT NULL) WITH (fillfactor = 50);
CREATE TABLE {about} (version integer NOT NULL);
INSERT INTO {partitions} (partition) SELECT generate_series(0, {count} - 1);
INSERT INTO {about} VALUES ({version});
ANALYZE {partitions};
"""

_ABOUT = """
SELECT (SELECT version FROM {about}) AS version, (SELECT count(*) FROM {partitions}) AS partitions
"""

_FORGET = """
DELETE FROM {members} WHERE expires < clock_timestamp() - {kept} * interval '1 second'
"""

_RENEW = """
WITH renewed AS (
    INSERT INTO {members} (member, expires) VALUES ($1, clock_timestamp() + $2 * interval '1 second')
    ON CONFLICT (member) DO UPDATE SET expires = EXCLUDED.expires
)
SELECT member, NULL::integer[] AS owned FROM {members} WHERE expires > clock_timestamp()
UNION ALL
SELECT owner, array_agg(partition) FROM {partitions} WHERE owner = $1 OR owner IN ({living}) GROUP BY owner
"""

_LOCK = """
SELECT FROM {partitions} WHERE partition = ANY($1::integer[]) ORDER BY partition FOR UPDATE
"""

_CLAIM = """
UPDATE {partitions} SET owner = $1, epoch = epoch + 1
WHERE partition = ANY($2::integer[]) AND $1 IN ({living})
AND (owner IS NULL OR owner = $1 OR owner NOT IN ({living}))
RETURNING partition, epoch, done, urgent_done
"""

_RELEASE = """
UPDATE {partitions} p SET owner = NULL
FROM unnest($2::integer[], $3::bigint[]) AS said (partition, epoch)
WHERE p.partition = said.partition AND p.epoch = said.epoch AND p.owner = $1
"""

_END = "DELETE FROM {members} WHERE member = $1"

_LOCK_OURS = "SELECT FROM {partitions} WHERE owner = $1 ORDER BY partition FOR UPDATE"

_LEAVE = "UPDATE {partitions} SET owner = NULL WHERE owner = $1"

# the row of a partition says whether there is anything to read, so idle lanes cost no look into the packs
_READ = """
SELECT asked.lane, pack.position, pack.payload
FROM unnest($1::integer[], $2::bigint[]) AS asked (lane, after)
JOIN {partitions} p ON p.partition = greatest(asked.lane, ~asked.lane)
    AND CASE WHEN asked.lane < 0 THEN p.urgent_last ELSE p.last END >= asked.after
CROSS JOIN LATERAL (
    SELECT position, payload FROM {packs} k
    WHERE k.lane = asked.lane AND k.position >= asked.after ORDER BY k.position LIMIT $3
) AS pack
"""

_COMMIT = """
UPDATE {partitions} p SET {of}scan = greatest(p.{of}scan, said.scan), {of}done = greatest(p.{of}done, said.done)
FROM unnest($2::integer[], $3::bigint[], $4::bigint[], $5::bigint[]) AS said (lane, epoch, scan, done)
WHERE p.partition = greatest(said.lane, ~said.lane) AND p.epoch = said.epoch AND p.owner = $1
RETURNING said.lane, p.{of}done
"""

_FINISH = """
DELETE FROM {packs} k USING unnest($1::integer[], $2::bigint[]) AS said (lane, position)
WHERE k.lane = said.lane AND k.position = said.position
"""

_SWEEP = """
DELETE FROM {packs} k USING (
    SELECT said.lane, old.position FROM unnest($1::integer[], $2::bigint[]) AS said (lane, done)
    CROSS JOIN LATERAL (
        SELECT position FROM {packs} o
        WHERE o.lane = said.lane AND o.position < said.done ORDER BY o.position LIMIT {deleted}
    ) AS old
    LIMIT {deleted}
) AS gone
WHERE k.lane = gone.lane AND k.position = gone.position
"""

_LAG = """
SELECT l.lane, l.done, l.last + 1,
    (SELECT count(*) FROM {packs} k WHERE k.lane = l.lane AND k.position >= l.done),
    CASE WHEN p.owner IN ({living}) THEN p.owner END
FROM {partitions} p CROSS JOIN LATERAL (
    VALUES (~p.partition, p.urgent_done, p.urgent_last), (p.partition, p.done, p.last)
) AS l (lane, done, last) ORDER BY p.partition, l.lane
"""

# an end that no pack has reached is of tables that were made again meanwhile
_DROP = """
UPDATE {partitions} SET {of}scan = greatest({of}scan, least($2, {of}last + 1)),
    {of}done = greatest({of}done, least($2, {of}last + 1))
WHERE partition = $1 RETURNING {of}done
"""

_ADVANCE = """
UPDATE {partitions} p SET last = p.last + said.touches, urgent_last = p.urgent_last + said.urgent
FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS said (partition, touches, urgent)
WHERE p.partition = said.partition
RETURNING p.partition, p.last - said.touches, p.last - p.done + 1,
    p.urgent_last - said.urgent, p.urgent_last - p.urgent_done + 1
"""

_PUT = """
WITH put AS (
    INSERT INTO {packs} (lane, position, payload)
    SELECT * FROM unnest($1::integer[], $2::bigint[], $3::bytea[])
)
SELECT pg_notify($4, '')
"""


class Statements:
    """The texts for one set of tables. `table` is a checked name, perhaps behind a schema's."""

    def __init__(self, table: str) -> None:
        names = {each: _quoted(f"{table}_{each}") for each in ("partitions", "packs", "members", "about")}
        living = _LIVING.format(**names)

        def filled(text: str, of: str = "") -> str:
            more = {"living": living, "deleted": checks.DELETED_MAX, "kept": checks.MEMBER_KEPT_S, "of": of}
            return text.format(**names, **more)

        self.channel = table.rpartition(".")[2]
        self.about = names["about"]  # the last table that is made
        self.say = filled(_ABOUT)
        self.forget = filled(_FORGET)
        self.renew = filled(_RENEW)
        self.lock = filled(_LOCK)
        self.claim = filled(_CLAIM)
        self.release = filled(_RELEASE)
        self.end = filled(_END)
        self.lock_ours = filled(_LOCK_OURS)
        self.leave = filled(_LEAVE)
        self.read = filled(_READ)
        self.commit = (filled(_COMMIT), filled(_COMMIT, "urgent_"))
        self.finish = filled(_FINISH)
        self.sweep = filled(_SWEEP)
        self.lag = filled(_LAG)
        self.drop = (filled(_DROP), filled(_DROP, "urgent_"))
        self.advance = filled(_ADVANCE)
        self.put = filled(_PUT)
        self._names = names

    def create(self, partitions: int) -> str:
        """Makes all tables, with so many partitions."""
        return _CREATE.format(**self._names, count=partitions, version=checks.VERSION)


def _quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))
