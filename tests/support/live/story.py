"""The story of a cache with more than one node: an application and a real updater use it while Redis is reshaped and killed.

Loud keys are read and changed all the time. Quiet keys are read once before the harm, changed once later, and not read again:
only that change can bring their new value. The application's threads record what they read and announced, and PostgreSQL
records when rows were loaded (`group_rows`). `Verdict` compares these records with each other and with Redis at rest.

Two promises hold at rest: each hint was followed by a load that began late enough (L1), and the value in Redis is of such a
load, so no value is older than its row (S2). One promise holds all the time: no reader gets a value that an acknowledged
invalidation has removed (S1).

There is one exception, which is Redis' own: writes and invalidations that a primary acknowledged are lost if another node
replaces it before it has replicated them. So a test declares each `Strike`. A struck key whose last load was at that time may
hold an earlier value until its next refresh. A reader of such a key, or of any key that was struck a few seconds ago, may see a
removed value. After one more read of each key, all promises must hold without exception.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from typing import NamedTuple

import numpy as np
from group import ledger
from group import rows as group_rows
from group.ledger import SECOND, Hints, Slack, Values
from group.story import QUICK_START
from redis.exceptions import RedisClusterException, RedisError

import cacheupdater_client
from cacheupdater.core.answers import Result
from cacheupdater.core.limits import Limits
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH
from live.database import Database
from live.updater_process import config, eventually

HOLD_S = 0.3
LOAD_S = 0.1  # between reading the rows and the answer: time for the rows to change
HEALED_S = (
    HOLD_S + 5.0
)  # within this time after a strike, a key that is read is fresh again; a second is usual
LATE_S = 1.5  # from the beginning of a load to its value in Redis' replicas; a tenth of this is usual
REST_S = 40.0
CALM_S = 1.5  # after the last harm: loud keys are read and changed once more
CHANGE_EVERY_S = 0.03  # one loud key and one quiet one
QUIET_A_SECOND = 30  # keys: enough to change all of them in the end, if nothing delays the writer
TAGS = 8
LOUDEST = 8  # keys that are drawn every other time
READ_EVERY_S = 0.001
UNDER_WAY_READS, UNDER_WAY_CHANGES = 300, 50  # of a second or two
TROUBLE = (RedisError, RedisClusterException, OSError)
# an application that does not wait for a dead node
CLIENT = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}

SLOWLY = f"""
CREATE FUNCTION loaded_slowly(ids bigint[]) RETURNS TABLE (id bigint, version bigint, at bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM loaded(ids);
    PERFORM pg_sleep({LOAD_S});
END $$;
"""
LOAD = f"""
SELECT '{{' || rows.id % {TAGS} || '}}' AS tag, rows.*
FROM (SELECT array_agg(id) AS ids FROM items WHERE ('{{' || id % {TAGS} || '}}', id) IN :keys) asked,
    loaded_slowly(asked.ids) rows
"""
UPDATE = "UPDATE items SET version = version + 1 WHERE id = $1 RETURNING version"

_LIMITS = Limits()
# see `group_story`
SLACK = Slack(touch=round(HOLD_S * 1.001 * SECOND), miss=round((_LIMITS.gap + _LIMITS.head_timeout) * SECOND))
# the updater's allowed log lines on a Redis in trouble; any other line is a fault
_WARNINGS = re.compile(
    r"redis_down: (Redis does not answer|\d+ keys? of item must wait|the removal of \d+ changed keys? must wait): "
    r"|write_delayed item: \d+ of \d+ values cannot be written now: "
    r"|pauses_unread: which namespaces are paused cannot be read"
)


def now():
    """Whole microseconds of Unix time."""
    return time.time_ns() // 1000


def rounds_of(seconds, each):
    """The number of rounds of `each` seconds in a fifth of the story's seconds, at least one."""
    return max(1, int(seconds / 5 / each))


def name_of(number):
    """The name of a key. Its hash tag gives some slots of a cluster many keys."""
    return f"item:{{{number % TAGS}}}:{number}"


class Strike(NamedTuple):
    """Harm by which Redis may forget what it has acknowledged."""

    keys: frozenset
    began: int
    forgets_until: int  # values that are loaded later go to the successor
    over: int  # from here on all clients know the successor


class Read(NamedTuple):
    """One read; zeros if there was no value."""

    at: int
    key: int
    version: int
    loaded: int
    promised: int  # the last announced version that Redis had acknowledged before the read


class Application(threading.Thread):
    """One thread of the application, with a client of its own."""

    def __init__(self, story):
        super().__init__(daemon=True)
        self._story = story
        self._ended = threading.Event()
        self.refused = Counter()

    def end(self):
        self._ended.set()
        self.join(60)
        assert not self.is_alive()


class Reader(Application):
    """Reads loud keys all the time, and others on request."""

    def __init__(self, story):
        super().__init__(story)
        self.seen = []

    def run(self):
        draw = random.Random(2)
        with self._story.client() as client:
            while not self._ended.wait(READ_EVERY_S):
                self.read(client, self._story.drawn(draw))

    def read(self, client, number):
        promised, asked = self._story.promised[number], now()
        try:
            value = client.get(name_of(number))
        except TROUBLE as e:
            self.refused[type(e).__name__] += 1
            return
        said = {"version": 0, "at": 0} if value is None else json.loads(value)
        self.seen.append(Read(asked, number, said["version"], said["at"], promised))


class Writer(Application):
    """Changes rows, commits, invalidates. If Redis refuses, only the hint announces the change."""

    def __init__(self, story):
        super().__init__(story)
        self.changes = []  # (microseconds, key)

    def run(self):
        draw, quiet = random.Random(1), iter(self._story.quiet)
        with self._story.client() as client, Database(self._story.rows.url) as database:
            while not self._ended.wait(CHANGE_EVERY_S):
                self._change(client, database, self._story.drawn(draw))
                if (number := next(quiet, None)) is not None:
                    self._change(client, database, number)

    def _change(self, client, database, number):
        version = database.value(UPDATE, number)
        self.changes.append((now(), number))
        try:
            client.invalidate(name_of(number))
        except TROUBLE as e:
            self.refused[type(e).__name__] += 1
        else:
            self._story.promised[number] = version


class Verdict(NamedTuple):
    """The faults, and the numbers checked. `forgotten` and `reread` are Redis' own, see above."""

    lost: int  # hints that no load has followed
    unserved: int  # hints whose key has no value that was loaded since
    stale: int  # values
    broken: int  # reads of removed values
    forgotten: int  # values that are stale, absent or too old, because Redis lost newer ones
    reread: int  # reads of removed values that came back in this way
    hints: int
    values: int

    @property
    def faults(self):
        return {name: getattr(self, name) for name in self._fields[:4] if getattr(self, name)}


class Story:
    """One updater, one application, the keys of both. `with` lets the application work."""

    def __init__(self, updaters, pg_url, world, *, loud, quiet, program=None):
        """`world` is the Redis of the test: its `url`, a `client(emit)`, and `fetch(names)` by a client that leaves no hints."""
        self.world, self.loud, self.quiet = world, loud, quiet
        self.promised = dict.fromkeys((*loud, *quiet), 0)
        self.rows = group_rows.Rows(pg_url)
        with Database(pg_url) as database:
            database.execute(SLOWLY)
        self.updater = updaters.start(self._settings(pg_url), program=program, environment=QUICK_START)
        self.reader, self.writer, self.again = Reader(self), Writer(self), Reader(self)
        self.strikes = []
        self.took = 0.0

    def _settings(self, pg_url):
        source = {"url": pg_url, "budget": "5000/s", "statement_timeout": "1.8s", "pool_size": 5}
        items = {
            "key": "item:{tag}:{id:int}",
            "load": {"source": "main", "sql": LOAD},
            "value": group_rows.VALUE,
            "ttl": "1h",
        }
        return config(self.world.url, {"main": source}, {"item": items}, every=f"{HOLD_S}s")

    def drawn(self, draw):
        """A loud key; every other time one of the first few."""
        return draw.choice(self.loud[: draw.choice((LOUDEST, len(self.loud)))])

    def client(self):
        return self.world.client(self.updater.emit)

    def __enter__(self):
        """Returns when every key has its value."""
        # a target whose clients are all gone has no counts of its own any more
        self.kept = self.client()
        self.read_again()
        names = list(map(name_of, self.promised))
        eventually(lambda: None not in self.world.fetch(names))
        self.took = -time.monotonic()
        self.reader.start()
        self.writer.start()
        return self

    def __exit__(self, *_):
        self.took += time.monotonic()
        self.reader.end()
        self.writer.end()
        self.kept.close()

    def until_well_under_way(self):
        """Waits until enough has been read and changed for harm to matter."""
        eventually(
            lambda: len(self.reader.seen) > UNDER_WAY_READS and len(self.writer.changes) > UNDER_WAY_CHANGES
        )

    def read_again(self):
        """Reads every key once."""
        with self.client() as client:
            for number in self.promised:
                self.again.read(client, number)

    def rest(self):
        """Waits until the updater has every hint, and nothing under way."""
        cacheupdater_client.close(60)
        sent = self.sent
        assert sent["dropped"] == {}
        assert sent["delivered"] == sent["emitted"]
        eventually(
            lambda: (
                self.updater.metric("hints_total") >= sent["delivered"] and not self.updater.metric("pending")
            ),
            within=REST_S,
            every=0.2,
        )

    @property
    def sent(self):
        """The client's counts of its hints."""
        return cacheupdater_client.stats()["targets"][self.updater.emit]

    # --- judgement ----------------------------------------------------------------------------------------

    @property
    def reads(self):
        return self.again.seen + self.reader.seen

    def hints(self):
        """The ledger of what the clients must have emitted."""
        lines = [(read.key, TOUCH if read.version else MISS, read.at) for read in self.reads]
        lines += [(number, CHANGE, at) for at, number in self.writer.changes]
        return Hints(*np.array(lines, dtype=np.int64).T)

    def verdict(self):
        hints, loads, held = self.hints(), self.rows.loads(), self._values()
        forgettable = self._forgettable(loads)
        unserved, old = ledger.unserved(hints, held, SLACK), ledger.stale(held, self.rows.versions())
        hint_forgotten, value_forgotten = (np.isin(each.keys, forgettable) for each in (hints, held))
        broken = [read for read in self.reads if 0 < read.version < read.promised]
        reread = sum(self._is_reread(read, loads) for read in broken)
        return Verdict(
            lost=int(ledger.lost(hints, loads, SLACK).sum()),
            unserved=int((unserved & ~hint_forgotten).sum()),
            stale=int((old & ~value_forgotten).sum()),
            broken=len(broken) - reread,
            forgotten=len({*hints.keys[unserved & hint_forgotten], *held.keys[old & value_forgotten]}),
            reread=reread,
            hints=len(hints.keys),
            values=len(held.keys),
        )

    def _values(self):
        said = zip(self.promised, self.world.fetch(list(map(name_of, self.promised))), strict=True)
        found = [(number, json.loads(value)) for number, value in said if value is not None]
        lines = [(number, each["version"], each["at"]) for number, each in found]
        return Values(*np.array(lines, dtype=np.int64).reshape(-1, 3).T)

    def _forgettable(self, loads):
        """Keys whose last load Redis may have lost."""
        return [
            key
            for key in self.promised
            for each in self.strikes
            if self._may_lose(each, key, loads) and _next(loads, key, each.forgets_until) == ledger.NEVER
        ]

    def _is_reread(self, read, loads):
        """Whether the key had not been refreshed since it was struck, or there was no time for that yet."""
        return any(
            read.at <= each.over + HEALED_S * SECOND
            or (
                self._may_lose(each, read.key, loads)
                and read.at <= _next(loads, read.key, each.forgets_until) + LATE_S * SECOND
            )
            for each in self.strikes
            if read.key in each.keys and each.began <= read.at
        )

    @staticmethod
    def _may_lose(strike, key, loads):
        """Whether a load of this key may have been written to a node that lost it."""
        since = strike.began - round(LATE_S * SECOND)
        return key in strike.keys and _next(loads, key, since) <= strike.forgets_until

    def silences(self):
        """For each strike, the seconds until a struck key was read with a value that was loaded after the strike."""
        return [
            (self._first_fresh(each.keys, since=each.forgets_until) - each.began) / SECOND
            for each in self.strikes
        ]

    def _first_fresh(self, keys, *, since):
        fresh = (read.at for read in self.reads if read.key in keys and read.loaded > since)
        return min(fresh, default=float("inf"))

    def figures(self):
        results = {each.value: self.updater.metric("refreshes_total", result=each.value) for each in Result}
        return (
            f"{self.took:.1f} s, {len(self.reader.seen) / self.took:,.0f} reads/s, {len(self.writer.changes)} changes;"
            f" refused to the application: reads {dict(self.reader.refused)}, changes {dict(self.writer.refused)};"
            f" refreshes: { {name: int(count) for name, count in results.items() if count} };"
            f" seconds until a struck key was fresh: {[round(each, 1) for each in self.silences()]}"
        )

    def assert_the_updater_is_well(self):
        """The updater never ended, gave nothing up, and logged only that Redis was in trouble."""
        assert self.updater.running
        assert self.updater.metric("quarantined") == 0
        assert self.updater.metric("dropped_total") == 0
        assert self.updater.metric("errors_total", reason="faulty") == 0
        assert "Traceback" not in self.updater.log
        assert [each for each in self.updater.messages if not _WARNINGS.match(each)] == []


def _next(loads, key, since):
    """The first load of a key at or after a time."""
    return int(loads.next_since(np.array([key]), np.array([since]))[0])
