"""A collector of twenty clients beside one direct client, at a full updater: each client has the same share of the rows."""

from __future__ import annotations

import contextlib
import threading
from itertools import count

import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually

from cacheupdater_client.protocol.wire import MISS

CLIENTS = 20
RATE = 4_000  # rows/s
FULL = 85_000  # keys of a partition: from here on a collector of twenty clients is held, or almost
EARLIER = 4_000  # entries in Redis: those of rows that were chosen before the updater was full are among them
MEASURED = 16_000  # entries in Redis, two for each row: some twenty rounds in which the direct client has twenty rows
EACH = 20_000  # keys of a client of the collector, again and again: more than are loaded of them
DIRECT_FROM = 1 + CLIENTS * EACH
ROWS = DIRECT_FROM + 50_000
WITHIN = 0.15


@pytest.fixture
def updater(updaters, database, pg_url, redis_url):
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, version bigint)")
    database.execute(f"INSERT INTO items SELECT n, 1 FROM generate_series(1, {ROWS}) n")
    sources = {"main": {"url": pg_url, "budget": f"{RATE}/s"}}
    items = {
        "key": "product:{id:int}",
        "load": {"source": "main", "table": "items"},
        "max_backlog": 200_000,  # no hint is dropped: whoever sends too much must wait
    }
    return updaters.start(config(redis_url, sources, {"item": items}, partitions=1))


@contextlib.contextmanager
def flooding(peer, first, keys, *, at_once):
    """This client sends misses of these keys as fast as it is let."""

    def run():
        with contextlib.suppress(OSError):  # the peer is closed
            for at in count(0, at_once):
                peer.hint_unheard(MISS, *(b"product:%d" % (first + (at + n) % keys) for n in range(at_once)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        peer.close()
        thread.join()


def loaded(plain):
    """Rows of the collector's clients, and of the direct one."""
    numbers = [int(key.partition(b":")[2]) for key in plain.scan_iter(b"product:*", count=10_000)]
    direct = sum(number >= DIRECT_FROM for number in numbers)
    return len(numbers) - direct, direct


@pytest.mark.prove
def test_twenty_clients_behind_a_collector_have_twenty_shares_beside_a_direct_one(updater, collectors, plain):
    collector = collectors(updater.emit).start()
    with contextlib.ExitStack() as floods:
        clients = [HintPeer(collector.socket, timeout=None) for _ in range(CLIENTS)]
        direct = HintPeer(updater.socket, timeout=None)
        # a pack that is sent before the updater knows all clients has fewer shares
        eventually(lambda: updater.metric("clients") == CLIENTS + 1)
        for number, client in enumerate(clients):
            floods.enter_context(flooding(client, 1 + number * EACH, EACH, at_once=500))
        floods.enter_context(flooding(direct, DIRECT_FROM, ROWS - DIRECT_FROM, at_once=20))
        eventually(lambda: updater.metric("pending") > FULL)
        # whoever sends first has the first rows: with nothing else there, they are no share of anything
        eventually(lambda: plain.dbsize() > EARLIER)
        before = loaded(plain)
        eventually(lambda: plain.dbsize() >= 2 * sum(before) + MEASURED)
        after = loaded(plain)
        assert updater.metric("clients") == CLIENTS + 1
        assert collector.metric("clients") == CLIENTS
    gained = [later - earlier for earlier, later in zip(before, after, strict=True)]
    print(
        f"\nrows beside each other at a full updater, of a collector of {CLIENTS} clients and of one client: {gained}"
    )
    assert abs(gained[0] / gained[1] / CLIENTS - 1) < WITHIN
