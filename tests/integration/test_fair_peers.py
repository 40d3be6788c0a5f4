"""One peer floods the hint socket with misses; an honest peer's misses are still served, with real servers."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from itertools import count

import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually
from suite.pace import TRIES, soonest

from cacheupdater_client.protocol.wire import CHANGE, MISS, encode_frame, encode_pack

ROWS = 100_000
HONEST = 10  # keys, one after the other
SOON_S = 1.0  # of a budget of 500 rows/s a turn is 0.1 s


@pytest.fixture
def updater(updaters, database, pg_url, redis_url):
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, version bigint)")
    database.execute(f"INSERT INTO items SELECT n, 1 FROM generate_series(1, {ROWS}) n")
    sources = {"main": {"url": pg_url, "budget": "500/s"}}
    items = {
        "key": "product:{id:int}",
        "load": {"source": "main", "table": "items"},
        "value": {"foreign": "replace"},
    }
    return updaters.start(config(redis_url, sources, {"item": items}, partitions=1))


@pytest.fixture
def flood(updater):
    """A peer that sends misses of other keys, as fast as it is let, until the test is over."""
    peer = HintPeer(updater.socket, timeout=None)

    def run():
        with contextlib.suppress(OSError):  # the peer is closed
            for at in count(TRIES * HONEST + 1, 1000):
                peer.hint_unheard(MISS, *(b"product:%d" % n for n in range(at, at + 1000)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    eventually(lambda: updater.metric("dropped_total", reason="backlog") > 20_000)
    yield
    peer.close()
    thread.join()


def seconds(plain, peer, kind, key):
    """From the hint to its value in Redis."""
    began = time.monotonic()
    peer.hint(kind, key)
    eventually(lambda: plain.exists(key))
    return time.monotonic() - began


def usual(plain, peer, kind, numbers):
    """The median of ten keys, one after the other."""
    took = [seconds(plain, peer, kind, b"product:%d" % next(numbers)) for _ in range(HONEST)]
    return statistics.median(took)


@pytest.mark.parametrize("kind", [MISS, CHANGE], ids=["miss", "change"])
@pytest.mark.usefixtures("flood")
def test_an_honest_peer_does_not_wait_behind_a_flood(updater, plain, kind):
    fresh = count(1)
    with HintPeer(updater.socket) as peer:
        took = soonest(lambda: usual(plain, peer, kind, fresh), SOON_S)
    print(f"\nbeside a flood of misses, median s to a fresh value: {took:.2f}")


@contextlib.contextmanager
def beside(work):
    """While this goes on, again and again."""
    over = threading.Event()

    def run():
        while not over.is_set():
            with contextlib.suppress(OSError):  # cut off in the middle, or the end of the test
                work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def test_an_honest_peer_does_not_wait_behind_one_that_is_another_connection_for_each_pack(updater, plain):
    fresh, numbers = count(1), count(TRIES * HONEST + 2, 1000)

    def flood():
        first = next(numbers)
        pack = encode_pack(MISS, 0, [b"product:%d" % n for n in range(first, first + 1000)])
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(1.0)
            stranger.connect(str(updater.socket))
            stranger.recv(1000)
            stranger.sendall(encode_frame(0, pack))
            stranger.shutdown(socket.SHUT_WR)
            stranger.recv(1000)

    with HintPeer(updater.socket, timeout=None) as peer:
        seconds(plain, peer, MISS, b"product:%d" % next(fresh))
        with beside(flood):
            eventually(lambda: updater.metric("dropped_total", reason="backlog") > 20_000)
            took = soonest(lambda: usual(plain, peer, MISS, fresh), SOON_S)
    print(f"\nbeside one that reconnects, median s: {took:.2f}")
