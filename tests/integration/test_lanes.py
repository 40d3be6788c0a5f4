"""A change behind a backlog of touches in a SQL queue: its owner finishes the change first, while the touches still wait.

An updater has served some keys and was killed, and 50,000 packs with a read each wait. A depot of the test's own puts all packs, as
a collector would.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from live.updater_process import config, eventually

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(300)]

TOUCHES, AT_ONCE = 50_000, 5_000
WITHIN_S = 1.0
TRIES = 3  # a time is the best of them
SERVED = [f"item:{number}" for number in range(20)]
KEY, FINE = SERVED[0], b'"fine"'


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    base = (
        f"sqlite:///{tmp_path}/queue.db" if request.param == "sqlite" else request.getfixturevalue("pg_url")
    )
    return f"{base}{'&' if '?' in base else '?'}partitions=1&length={2 * TOUCHES}"


def settings_for(redis_url, url):
    items = {"item": {"key": "item:{id:int}", "load": {"source": "main", "python": "live.loaders:plain"}}}
    said = config(redis_url, {"main": {"budget": "1000/s"}}, items, partitions=1)
    return said | {"queue": {"url": f"{url}&session_timeout=2s"}, "listen": None}


def on_depot(url, work):
    """What this work gives, done on a depot of our own."""

    async def run():
        depot = depot_at(depot_url.parse(url))
        try:
            await depot.open()
            return await work(depot)
        finally:
            await depot.close()

    return asyncio.run(run())


def fill(url):
    """Many touches, and a change behind them, in an empty queue."""

    async def put(depot):
        for each in await depot.lag():
            await depot.drop(each.lane, each.end)
        now = time.time_ns() // 1_000_000
        for first in range(1, TOUCHES, AT_ONCE):
            packs = [
                (0, encode_pack(TOUCH, now, [b"item:%d" % each])) for each in range(first, first + AT_ONCE)
            ]
            await depot.put(packs)
        await depot.put([(0, encode_pack(CHANGE, now, [KEY.encode()]))])

    on_depot(url, put)


def serve(url, updater, plain):
    """The updater serves some keys, so that the next one finds values that are ours, and is killed."""
    now = time.time_ns() // 1_000_000
    on_depot(url, lambda depot: depot.put([(0, encode_pack(MISS, now, [key.encode() for key in SERVED]))]))
    updater.start()
    eventually(lambda: None not in plain.mget(SERVED))
    updater.kill()


def waiting(url):
    async def packs(depot):
        return sum(each.packs for each in await depot.lag())

    return on_depot(url, packs)


def begun(updater):
    return "is ours from offset" in updater.log


def test_a_change_behind_a_backlog_of_touches_is_done_at_once(
    url, redis_url, updaters, plain, record_property
):
    took, left = [], []
    for _ in range(TRIES):
        plain.flushdb()
        serve(url, updaters.make(settings_for(redis_url, url)), plain)
        fill(url)
        plain.set(KEY, '"old"')
        updater = updaters.make(settings_for(redis_url, url))
        updater.launch()
        eventually(lambda updater=updater: begun(updater), every=0.005)
        began = time.monotonic()
        eventually(lambda: plain.get(KEY) == FINE, within=120.0, every=0.005)
        took.append(time.monotonic() - began)
        left.append(waiting(url))
        updater.kill()
        if took[-1] < WITHIN_S:
            break
    kind = url.partition(":")[0]
    record_property(
        f"figure: {kind}, a change behind {TOUCHES} touches, ms from the owner's start",
        round(min(took) * 1000),
    )
    record_property(f"figure: {kind}, packs that wait when the change is done", left[-1])
    assert left[-1] > 0
    assert min(took) < WITHIN_S
