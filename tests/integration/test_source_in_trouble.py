"""A source becomes slow, refuses, hangs or cuts, and is well again: PostgreSQL behind a proxy, and a loader in Python.

Each story judges what the source itself saw: when somebody came to it, and how many at a time. The application reads all keys
all the time, more often than the budget can refresh them, and the rows change during the outage.
"""

from __future__ import annotations

import json
import math
import time
from itertools import accumulate, pairwise

import pytest
from live.updater_process import config, eventually
from servers.hurt_postgres import HurtPostgres
from suite.beside import Repeated
from suite.pace import Metronome

from cacheupdater.core.breaker import FIRST, OPEN_S, RAMP_S, SILENT_S
from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(240)]

KEYS = [f"item:{number}" for number in range(200)]
RATE = 200.0
RAMP_SHARE_S = math.sqrt(2 * RAMP_S * len(KEYS) / RATE)  # until the ramp has paid for each key once
POOL = 5
TIMEOUT_S = 1.0
TTL_S = 6.0
READ_EVERY_S = 0.2
USUAL_LOADS = 40  # until the updater knows how long a load usually takes
AWAY_S = 2 * TTL_S  # an outage that no value outlives without `fail_safe`
PROBES_APART_S = 0.3  # what a probe does, it does without such a pause
LATE_S = 0.5  # until the source sees a probe that is due: a new connection may come first
FRESH_S = 5.0


class HurtLoader:
    """The loader in the updater's process, as seen from here."""

    name = "python"
    sees_who_is_refused = True

    def __init__(self, folder):
        self._log, self._hurt = folder / "calls", folder / "hurt"
        self._version = 1
        self.hurt("")
        self.source = {}
        self.load = {"source": "main", "python": "live.hurt_loader:rows"}
        self.environment = {"LOADER_LOG": str(self._log), "HURT": str(self._hurt)}

    def hurt(self, trouble):
        part = self._hurt.with_suffix(".part")
        part.write_text(f"{trouble} {self._version}")
        part.replace(self._hurt)

    def change_rows(self):
        self._version += 1

    @property
    def contacts(self):
        return [at for what, at, _ in self._calls() if what == "begins"]

    @property
    def loads(self):
        return [(at, rows) for what, at, rows in self._calls() if what == "answers"]

    @property
    def open(self):
        return [(at, 1 if what == "begins" else -1) for what, at, _ in self._calls() if what != "answers"]

    def _calls(self):
        lines = (line.split() for line in self._log.read_text().splitlines())
        return [(what, float(at), int(rows)) for what, at, rows in lines]


class HurtDatabase:
    """PostgreSQL behind its proxy."""

    name = "postgresql"
    sees_who_is_refused = False

    def __init__(self, proxy, database):
        self._database = database
        database.execute("CREATE TABLE items (id int PRIMARY KEY, version int NOT NULL)")
        database.execute(f"INSERT INTO items SELECT n, 1 FROM generate_series(0, {len(KEYS) - 1}) n")
        self.hurt = proxy.hurt
        self.contacts, self.loads, self.open = proxy.contacts, proxy.loads, proxy.open
        self.source = {"url": proxy.url}
        self.load = {"source": "main", "table": "items"}
        self.environment = {}

    def change_rows(self):
        self._database.execute("UPDATE items SET version = version + 1")


@pytest.fixture(params=["postgresql", "python"])
def source(request, tmp_path):
    if request.param == "python":
        yield HurtLoader(tmp_path)
        return
    database = request.getfixturevalue("database")
    with HurtPostgres(request.getfixturevalue("pg_url"), columns=2) as proxy:
        yield HurtDatabase(proxy, database)


class Reads:
    """The application: all keys, again and again."""

    def __init__(self, client):
        self._client = client
        self.versions = set()
        self.missing = 0

    def look(self):
        values = self._client.mget(KEYS)
        self.missing += values.count(None)
        self.versions = {value and json.loads(value)["version"] for value in values}


def begun(times):
    """The first of the times that lie close together: a probe may come, ask, and ask to be cancelled."""
    return [at for before, at in pairwise([-math.inf, *times]) if at - before > PROBES_APART_S]


def most(changes, since=0.0, until=math.inf):
    """How many there were at a time."""
    found = accumulate((change for _, change in changes), initial=0)
    spans = zip([0.0, *(at for at, _ in changes)], [*(at for at, _ in changes), math.inf], found, strict=True)
    return max(now for began, ended, now in spans if began < until and ended > since)


def settings_of(redis_url, source):
    item = {
        "key": "item:{id:int}",
        "load": source.load,
        "ttl": {"base": f"{TTL_S:g}s", "jitter": "0%"},
        "fail_safe": "1h",
    }
    limits = {"budget": f"{RATE:g}/s", "pool_size": POOL, "statement_timeout": f"{TIMEOUT_S:g}s"}
    return config(redis_url, {"main": source.source | limits}, {"item": item})


@pytest.mark.parametrize("trouble", ["slow", "refused", "hanging", "reset"])
def test_it_is_left_alone_probed_and_eased_in_and_no_value_is_lost(
    source, trouble, redis_url, updaters, record_property
):
    updater = updaters.start(settings_of(redis_url, source), environment=source.environment)
    with Metronome() as control, Redis.from_url(redis_url, emit=updater.emit) as client:
        reads = Reads(client)
        eventually(lambda: reads.look() or reads.versions == {1})
        reads.missing = 0
        with Repeated(READ_EVERY_S, reads.look):
            eventually(lambda: len(source.loads) > USUAL_LOADS)
            source.change_rows()
            hurt = time.monotonic()
            source.hurt(trouble)
            time.sleep(AWAY_S)
            well = time.monotonic()
            source.hurt("")
            eventually(lambda: reads.versions == {2})
            fresh = time.monotonic()
            eventually(lambda: source.loads[-1][0] > fresh + RAMP_S)

    late = LATE_S + 2 * control.latest
    opened = hurt + SILENT_S + 2 * TIMEOUT_S + late  # at the latest
    probes = begun([at for at in source.contacts if opened < at < well])
    (closed, _), *eased_in = [each for each in source.loads if each[0] > well]
    name = f"figure: {source.name}, {trouble}"
    apart = [f"{after - before:.2f}" for before, after in pairwise(probes)]
    record_property(f"{name}, s between two probes", " ".join(apart) or "not seen")
    record_property(f"{name}, s until the first answer", f"{closed - well:.2f}")
    record_property(f"{name}, s until all values are fresh", f"{fresh - well:.2f}")
    record_property(
        f"{name}, most loads at a time, and while it is left alone",
        f"{most(source.open)}, {most(source.open, opened, well)}",
    )
    record_property(f"{name}, values missing", reads.missing)

    if source.sees_who_is_refused or trouble != "refused":
        assert len(probes) >= (well - opened) / (OPEN_S + TIMEOUT_S + late) - 1
        for before, after in pairwise(probes):
            assert OPEN_S - LATE_S / 10 <= after - before <= OPEN_S + TIMEOUT_S + late
    assert most(source.open) <= POOL
    assert most(source.open, opened, well) <= 1, "one probe at a time"
    assert closed - well <= OPEN_S + TIMEOUT_S + late
    rows = 0
    for at, more in eased_in:
        rows += more
        if at - closed <= RAMP_S:
            assert rows <= FIRST + RATE * (at - closed + late) ** 2 / (2 * RAMP_S), at - closed
    assert rows > RATE, "the whole budget is spent again: else this test proves nothing"
    assert reads.missing == 0
    assert fresh - well <= FRESH_S + RAMP_SHARE_S
