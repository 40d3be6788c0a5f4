"""Outages of Redis, the database or the updater, under load, as the application and the cache see them.

Three promises: the client raises what redis-py raises and nothing else; everything recovers by itself; and keys that are read
afterwards are fresh within hold + 5 s. `usual` is the control of the third promise: how long an ordinary change has just taken
on this machine. An outage lasts 30 s in `make prove`, where all keys must be fresh in time after one outage. In `make test` an
outage lasts 3 s, and has three tries, for the machine may stand still.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from pathlib import Path

import pytest
import redis
from live.database import Database
from live.updater_process import Updaters, config, eventually
from servers.postgres import started_postgres
from suite.pace import Metronome, soonest

import cacheupdater_client
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis

LOAD_S = 1.0  # of reads before an outage
HOLD_S = 1.0
BACK_S = 5.0  # after the end of an outage all is as usual
TRIES = 3  # short outages, one of which must show it
PATIENCE_S = 60.0  # for what takes a few seconds on a machine with nothing else to do
ROWS = 100
KEYS = [f"item:{n}" for n in range(1, ROWS + 1)]

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def redis_server():
    """A Redis of these tests' own, to stop."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def pg_server():
    """A PostgreSQL to stop, with a table."""
    server = started_postgres()
    rows = f"INSERT INTO items SELECT n, 1 FROM generate_series(1, {ROWS}) n"
    server.execute("CREATE TABLE items (id bigint PRIMARY KEY, version bigint NOT NULL)", rows)
    yield server
    server.remove()


@pytest.fixture(scope="module")
def updater(redis_server, pg_server):
    """One process for all outages: it must survive each, and the next one too."""
    source = {"url": pg_server.url(), "budget": "2000/s"}
    namespace = {"key": "item:{id:int}", "load": {"source": "main", "table": "items"}}
    settings = config(redis_server.url, {"main": source}, {"item": namespace}, every=f"{HOLD_S:g}s")
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        updaters = Updaters(Path(folder))
        yield updaters.start(settings)
        updaters.close()


SOON_S = 0.5  # so long a client waits for a Redis that hangs
PATIENT_S = 5.0  # and so long where nothing hangs but the machine


def client_of(kind, url, timeout=PATIENT_S, **options):
    return kind.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout, **options)


class Reads(threading.Thread):
    """One application's reads, and what they raised."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.count = 0
        self.raised = {}
        self.longest = 0.0
        self._ended = threading.Event()

    def run(self):
        draw = random.Random(1)
        while not self._ended.wait(0.002):
            began = time.monotonic()
            try:
                self.client.get(draw.choice(KEYS))
            except Exception as e:  # noqa: BLE001  what it may be is the question
                self.raised.setdefault(type(e), str(e))
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1

    def end(self):
        self._ended.set()
        self.join(PATIENCE_S)


class Load:
    """An application with our client, and one with redis-py beside it, both reading all the time."""

    def __init__(self, updater, redis_url, timeout=PATIENT_S):
        self.ours = Reads(client_of(Redis, redis_url, timeout, emit=updater.emit))
        self.theirs = Reads(client_of(redis.Redis, redis_url, timeout))
        self._control = Metronome()  # of the whole process, which may stand still

    def __enter__(self):
        self._control.__enter__()
        self.ours.start()
        self.theirs.start()
        time.sleep(LOAD_S)
        return self

    def __exit__(self, *_):
        for each in (self.ours, self.theirs):
            each.end()
            each.client.close()
        self._control.__exit__()

    def assert_alike(self):
        """Ours raised nothing that redis-py did not raise, and did not wait longer."""
        assert set(self.ours.raised) <= set(self.theirs.raised), (self.ours.raised, self.theirs.raised)
        assert self.ours.longest <= self.theirs.longest + 1.0 + self._control.latest


def change_all(server):
    with Database(server.url()) as database:
        database.execute("UPDATE items SET version = version + 1")


def versions(server):
    with Database(server.url()) as database:
        return {f"item:{n}": version for n, version in database.rows("SELECT id, version FROM items")}


def change_in_vain(client, pg_server, outage, *, raises):
    """In the middle of an outage of Redis all rows change, and nobody can be told."""
    time.sleep(outage / 2)
    change_all(pg_server)
    with pytest.raises(raises):
        client.invalidate(*KEYS)
    time.sleep(outage / 2)


def fresh_after(client, expected, since):
    """Seconds from then until every key, read again and again, holds its row."""
    while True:
        asked = time.monotonic()
        values = client.mget(KEYS)
        wrong = [
            key
            for key, value in zip(KEYS, values, strict=True)
            if value is None or json.loads(value)["version"] != expected[key]
        ]
        if not wrong:
            return asked - since
        assert asked - since < PATIENCE_S, f"{len(wrong)} of {ROWS} keys are not fresh: {wrong[:5]}"
        time.sleep(0.05)


@pytest.fixture
def usual(updater, redis_server, pg_server):
    """All keys have values; the seconds until a change that nobody announces is seen while all is well."""
    with client_of(Redis, redis_server.url, emit=updater.emit) as application:
        application.mget(KEYS)
        eventually(lambda: all(application.mget(KEYS)), PATIENCE_S)
        change_all(pg_server)
        return fresh_after(application, versions(pg_server), time.monotonic())


@pytest.fixture
def in_time(usual, full_form):
    """Plays an outage, which returns the seconds until all was fresh. Fails if that took too long on a machine as busy as this."""
    within = BACK_S + max(HOLD_S, usual)  # an ordinary change takes little more than the hold
    return lambda play: soonest(play, within, tries=1 if full_form else TRIES)


def test_redis_is_gone_and_comes_back_empty(
    updater, redis_server, pg_server, outage, in_time, record_property
):
    with Load(updater, redis_server.url) as load:

        def gone_and_back():
            redis_server.kill()
            change_in_vain(load.ours.client, pg_server, outage, raises=redis.exceptions.ConnectionError)
            assert updater.page("/livez")[0] == 200
            eventually(lambda: updater.page("/readyz")[0] == 503, PATIENCE_S)  # it looks every 5 s

            redis_server.start()
            took = fresh_after(load.ours.client, versions(pg_server), time.monotonic())
            eventually(lambda: updater.page("/readyz")[0] == 200, PATIENCE_S)
            return took

        took = in_time(gone_and_back)
        load.assert_alike()
        assert load.theirs.raised
    record_property("figure: outage, Redis gone: all keys fresh after, s", round(took, 2))
    print(f"fresh {took:.2f} s after the outage; {load.ours.count} reads; raised {load.ours.raised}")
    eventually(lambda: updater.metric("pending") == 0, PATIENCE_S)
    assert updater.running


def test_redis_hangs_and_goes_on(updater, redis_server, pg_server, outage, in_time, record_property):
    with Load(updater, redis_server.url, SOON_S) as load:

        def hung_and_back():
            redis_server.pause()
            change_in_vain(load.ours.client, pg_server, outage, raises=redis.exceptions.TimeoutError)
            redis_server.resume()
            return fresh_after(load.ours.client, versions(pg_server), time.monotonic())

        took = in_time(hung_and_back)
        load.assert_alike()
        assert load.theirs.raised
    record_property("figure: outage, Redis frozen: all keys fresh after, s", round(took, 2))
    print(f"fresh {took:.2f} s after the outage; {load.ours.count} reads; raised {load.ours.raised}")


def test_the_database_is_gone_and_comes_back(
    updater, redis_server, pg_server, outage, in_time, record_property
):
    failed_before = updater.metric("errors_total", reason="unavailable")
    with Load(updater, redis_server.url) as load:

        def gone_and_back():
            pg_server.stop()
            time.sleep(outage)
            assert all(load.ours.client.mget(KEYS))  # what was cached is served
            assert updater.page("/livez")[0] == 200

            pg_server.start()
            change_all(pg_server)  # nobody is told: reads alone must find out
            return fresh_after(load.ours.client, versions(pg_server), time.monotonic())

        took = in_time(gone_and_back)
        load.assert_alike()
        assert load.ours.raised == {}
    record_property("figure: outage, database gone: all keys fresh after, s", round(took, 2))
    print(f"fresh {took:.2f} s after the outage; {load.ours.count} reads")
    eventually(lambda: updater.metric("errors_total", reason="unavailable") > failed_before, PATIENCE_S)
    assert updater.metric("quarantined") == 0  # no key is to blame for an outage
    assert any("the database" in message or "cannot connect" in message for message in updater.messages)


@pytest.mark.usefixtures("usual")
def test_changes_told_while_the_database_is_gone_leave_no_old_value(updater, redis_server, pg_server):
    with client_of(Redis, redis_server.url, emit=updater.emit) as application:
        pg_server.stop()
        failed_before = updater.metric("errors_total", reason="unavailable")
        application.invalidate(*KEYS)
        eventually(lambda: updater.metric("errors_total", reason="unavailable") > failed_before, PATIENCE_S)

        assert not any(application.mget(KEYS))

        pg_server.start()
        fresh_after(application, versions(pg_server), time.monotonic())


def test_an_updater_that_was_killed_gets_the_hints_of_its_absence(
    updater, redis_server, pg_server, outage, in_time, record_property
):
    def target():
        return cacheupdater_client.stats()["targets"][updater.emit]

    reconnected = []

    with Load(updater, redis_server.url) as load:
        dropped_before = target()["dropped"]

        def killed_and_back():
            updater.kill()
            eventually(lambda: not target()["connected"], PATIENCE_S)
            change_all(pg_server)
            load.ours.client.invalidate(*KEYS)
            eventually(lambda: target()["waiting"] >= ROWS, PATIENCE_S)
            time.sleep(outage / 2)

            updater.start()
            healed = time.monotonic()
            eventually(lambda: target()["connected"], PATIENCE_S)
            reconnected.append(time.monotonic() - healed)
            return fresh_after(load.ours.client, versions(pg_server), healed)

        took = in_time(killed_and_back)
        load.assert_alike()
        assert load.ours.raised == {}

        load.ours.end()
        eventually(lambda: target()["waiting"] == 0, PATIENCE_S)
        final = target()
    assert final["dropped"] == dropped_before
    assert final["emitted"] == final["delivered"] + sum(final["dropped"].values())
    eventually(
        lambda: updater.metric("hints_total", kind="change") >= ROWS, PATIENCE_S
    )  # reported once a second
    record_property("figure: outage, updater killed: connected again after, s", round(reconnected[-1], 2))
    print(f"reconnected {reconnected[-1]:.3f} s after ready, fresh after {took:.2f} s; {final}")


def test_an_updater_that_was_away_longer_than_the_buffer_lasts_gets_what_it_holds(updater, redis_server):
    """100,000 keys wait at the most; what is beyond is counted, not kept, and the application never notices."""
    wanted = 120_000
    # a target of its own, so that the ledger begins at zero
    with client_of(Redis, redis_server.url, emit=updater.emit, only=["item:"]) as application:

        def target():
            return cacheupdater_client.stats()["targets"][f"{updater.emit} only item:"]

        application.get(KEYS[0])
        eventually(lambda: target()["delivered"] == 1, PATIENCE_S)
        updater.kill()
        for at in range(0, wanted, 10_000):
            application.mget([f"item:{n}" for n in range(1_000_000 + at, 1_000_000 + at + 10_000)])
            time.sleep(0.15)  # so that the sender takes them out of the buffer

        updater.start()
        eventually(lambda: target()["waiting"] == 0, PATIENCE_S)
        counted = target()

    assert counted["emitted"] == wanted + 1 == counted["delivered"] + sum(counted["dropped"].values())
    assert counted["delivered"] >= 100_000
