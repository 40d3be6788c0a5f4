"""The loop of a running updater answers others while it is flooded with keys of nobody."""

from __future__ import annotations

import sqlite3
import threading
from itertools import count
from time import monotonic, sleep

from hint_peer import HintPeer
from pace import soonest
from updater_process import config, eventually

from cacheupdater_client.wire import MISS

NAMESPACES = 300
PACKS, PACK = 40, 1_000
PROBES = 40
LONGEST_S = 0.1


def _slowest_page(updater, probes=PROBES):
    """Seconds of the slowest of some looks at /livez."""
    slowest = 0.0
    for _ in range(probes):
        began = monotonic()
        assert updater.page("/livez")[0] == 200
        slowest = max(slowest, monotonic() - began)
        sleep(0.005)
    return slowest


def test_a_flood_of_keys_of_nobody_does_not_stop_an_updater_of_hundreds_of_namespaces_that_begin_alike(
    updaters, redis_url, tmp_path
):
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rows (tenant TEXT, id INTEGER, said TEXT)")
        database.execute("INSERT INTO rows VALUES ('acme', 7, 'here')")
    sql = "SELECT tenant, id, said FROM rows WHERE (tenant, id) IN :keys"
    spaces = {
        f"t{number}": {"key": f"app:{{tenant}}:t{number}:{{id:int}}", "load": {"source": "main", "sql": sql}}
        for number in range(NAMESPACES)
    }
    sources = {"main": {"url": f"sqlite+aiosqlite:///{path}", "budget": "1000/s"}}
    updater = updaters.start(config(redis_url, sources, spaces, partitions=1))
    numbers = count()

    with HintPeer(updater.socket) as peer:

        def flood():
            for _ in range(PACKS):
                peer.hint(MISS, *(b"app:acme:lock:%d" % next(numbers) for _ in range(PACK)))

        def flooded():
            before, usual = updater.metric("dropped_total", reason="unknown"), _slowest_page(updater)
            sender = threading.Thread(target=flood)
            sender.start()
            slowest = _slowest_page(updater)
            sender.join()
            sent = before + PACKS * PACK
            eventually(lambda: updater.metric("dropped_total", reason="unknown") >= sent)
            return max(0.0, slowest - usual)  # a busy machine holds up both

        soonest(flooded, LONGEST_S)
        peer.hint(MISS, b"app:acme:t299:7")

    eventually(lambda: updater.metric("refreshes_total", namespace="t299", result="written") == 1)
    assert updater.metric("turn_seconds_count") > PACKS
