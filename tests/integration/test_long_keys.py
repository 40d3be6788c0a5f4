"""One key in a thousand stays for 25 s in a SQL queue: the others do not notice, and a killed updater's successor reads little again.

The long keys are of a namespace whose quota is spent. A depot of the test's own puts the hints, as a collector would.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing, contextmanager

import pytest
from live.updater_process import config, eventually

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater_client.protocol.wire import MISS, encode_pack

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(400)]

EVERY_S, PACK = 0.05, 50  # a thousand keys a second
LONG_EVERY = 20  # packs: one key in a thousand
LONG_AT_FIRST = 25  # with a quota of one a second, the next ones wait for 25 s
BEFORE_S, MEASURED_S = 7.0, 8.0
YOUNG_S = 6.0  # packs are put back after five seconds, at a look in each
NEARLY = 0.95


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queue.db?partitions=1"
    base = request.getfixturevalue("pg_url")
    return f"{base}{'&' if '?' in base else '?'}partitions=1"


def settings_for(redis_url, url):
    load = {"source": "main", "python": "live.loaders:plain"}
    spaces = {
        "item": {"key": "item:{id:int}", "load": load},
        "rare": {"key": "rare:{id:int}", "load": load, "quota": {"rate": "1/s", "burst": 1}},
    }
    said = config(redis_url, {"main": {"budget": "5000/s"}}, spaces)
    return said | {"queue": {"url": f"{url}&session_timeout=2s"}, "listen": None}


class Sender:
    """Puts packs of ever new keys, some with a long key."""

    def __init__(self, url, *, first, long_keys):
        self.long_sent = []
        self._url, self._next, self._long_keys = url, first, long_keys
        self._ended = threading.Event()

    def end(self):
        self._ended.set()

    def run(self):
        asyncio.run(self._run())

    async def _run(self):
        depot = depot_at(depot_url.parse(self._url))
        await depot.open()
        due, number = time.monotonic(), 0
        while not self._ended.is_set():
            await depot.put([(0, self._pack(number))])
            number += 1
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await depot.close()

    def _pack(self, number):
        long = self._long_keys and (number < LONG_AT_FIRST or number % LONG_EVERY == 0)
        keys = [b"item:%d" % each for each in range(self._next, self._next + PACK)]
        self._next += PACK
        if long:
            keys[0] = b"rare:%d" % number
            self.long_sent.append(keys[0])
        return encode_pack(MISS, time.time_ns() // 1_000_000, keys)


@contextmanager
def sending(url, **how):
    sender = Sender(url, **how)
    thread = threading.Thread(target=sender.run)
    thread.start()
    try:
        yield sender
    finally:
        sender.end()
        thread.join()


def rows_a_second(updater):
    time.sleep(BEFORE_S)
    before, began = updater.metric("rows_total", namespace="item"), time.monotonic()
    time.sleep(MEASURED_S)
    return (updater.metric("rows_total", namespace="item") - before) / (time.monotonic() - began)


def cursors(url, database):
    """The last pack's position and the `done` of the one partition's urgent packs: all are misses, or were put back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(depot_url.parse(url).path)) as file:
            return file.execute("SELECT urgent_last, urgent_done FROM partitions").fetchone()
    return asyncio.run(database(url))


async def of_postgres(url):
    import asyncpg

    address = depot_url.parse(url)
    connection = await asyncpg.connect(url.replace("postgresql+asyncpg", "postgresql").partition("?")[0])
    try:
        return await connection.fetchrow(f"SELECT urgent_last, urgent_done FROM {address.table}_partitions")
    finally:
        await connection.close()


def test_a_long_tail_costs_the_others_nothing_and_a_restart_reads_nothing_else_again(
    url, redis_url, updaters, plain, record_property
):
    settings = settings_for(redis_url, url)
    updater = updaters.make(settings).start()
    with sending(url, first=1, long_keys=False):
        control = rows_a_second(updater)
    with sending(url, first=1_000_000, long_keys=True) as sender:
        rate = rows_a_second(updater)
    kind = url.partition(":")[0]
    record_property(f"figure: {kind}, others beside long keys, share of the rate without", rate / control)
    assert rate >= NEARLY * control

    eventually(lambda: updater.metric("pending") <= len(sender.long_sent), within=10.0)
    time.sleep(1.0)  # commits follow within a tenth of a second, and nothing new is sent
    last, done = cursors(url, of_postgres)
    waiting = len(sender.long_sent) - plain.exists(*sender.long_sent)
    record_property(
        f"figure: {kind}, long keys that wait, and packs behind done", f"{waiting}, {last - done + 1}"
    )
    assert waiting >= LONG_AT_FIRST // 2
    assert last - done <= YOUNG_S / EVERY_S + waiting

    updater.kill()
    heir = updaters.make(settings).start()
    eventually(lambda: heir.metric("hints_total", kind="miss") > 0 == heir.metric("pending"), within=90.0)
    again = heir.metric("hints_total", kind="miss")
    record_property(f"figure: {kind}, hints that the successor read", again)
    assert again <= waiting + PACK * (1 + YOUNG_S / EVERY_S / LONG_EVERY)
