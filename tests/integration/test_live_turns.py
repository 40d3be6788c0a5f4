"""The loop of a running updater stays responsive under floods: keys of nobody, and touches of a million keys."""

from __future__ import annotations

import re
import sqlite3
import threading
from itertools import count
from math import ceil, inf, log2
from time import monotonic, sleep

import numpy as np
import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually
from suite.pace import slowness, soonest

from cacheupdater_client.protocol.wire import MISS, TOUCH, encode_pack

NAMESPACES = 300
PACKS, PACK = 40, 1_000
PROBES = 40
LONGEST_S = 0.1
USUAL_S, RARE = 0.02, 0.001  # of processor time: one longer turn in a thousand
TRIES = 3  # stories, of which one must keep the bounds: another process adds to a turn's time, a fault adds to it in each
# seats in one dict; one more, and it is made anew: 42 MB that nobody has touched, at once
LARGE = 2**20 * 2 // 3
ROUNDS = 3  # so often each key is read, about
AHEAD = 16  # packs that are sent before the first of them is accepted: as many as the updater will take in one fetch


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
    assert (
        updater.metric("turn_seconds_count") >= PACKS / 2
    )  # two of these packs are more than a turn takes in


def _flood(path, packs, draw):
    """Each key once in order, so that everything grows; then by chance."""
    keys = packs * PACK
    with HintPeer(path, timeout=60.0) as peer:
        for number in range(ROUNDS * packs):
            first = number * PACK
            ids = range(first, first + PACK) if number < packs else draw.integers(0, keys, PACK).tolist()
            peer.pack(encode_pack(TOUCH, 0, [b"item:%d" % each for each in dict.fromkeys(ids)]))
            if number % AHEAD == AHEAD - 1:
                peer.wait()
        peer.wait()


def _turns(updater):
    """How many there were, and how many took longer than each bound of the metric: of processor time, on one look."""
    page = updater.page("/metrics")[1]
    found = re.findall(r'turn_cpu_seconds_bucket{le="(.+)"} (\S+)', page)
    within = {float(bound): float(number) for bound, number in found}
    turns = within[inf]
    return turns, {bound: turns - number for bound, number in within.items()}


def _growths(seats, first):
    """How often a dict of so many has been made anew, from the time on when it had `first`: each time twice as large."""
    return max(0, ceil(log2(seats / first)))


def _story(updaters, settings, packs, *, seats):
    """What the turns of a new updater were, and how much slower than usual the machine was at its beginning or its end."""
    updater, slow = updaters.start(settings), slowness()
    _flood(updater.socket, packs, np.random.default_rng(1))
    eventually(lambda: updater.metric("done_offset") == ROUNDS * packs, within=400.0)
    kept = "tracked" if seats else "learned"
    eventually(lambda: updater.metric(kept) >= 0.9 * packs * PACK)  # it is told once a second, or estimated
    turns, longer = _turns(updater)
    updater.kill()
    assert turns > packs
    return turns, longer, max(slow, slowness())


def _kept(turns, longer, usual, longest, *, seats):
    """Whether few turns were longer than `usual` seconds, and none than `longest` but for growths of a large dict."""
    return longer[usual] <= max(1.0, RARE * turns) and longer[longest] <= _growths(max(1, seats), LARGE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("refresh", "budget"),
    [
        pytest.param({}, "5000/s", id="price"),
        pytest.param({"every": "10m"}, "100000/s", id="fixed", marks=pytest.mark.prove),
    ],
)
def test_turns_stay_short_while_a_million_keys_are_touched(
    refresh, budget, updaters, redis_url, amount, record_property, request
):
    """With a fixed interval each key has a seat in the end, with prices a row in the table; one partition has them all.

    A dict of seats grows in one piece. At 700,000 that takes 24 to 33 ms of CPU on a quiet machine, and 18 of them go to the first
    touch of new memory: how long the system takes to find that is not ours to bound. So the last growth may be long, but it
    counts among the rare turns, and no other may take 100 ms. `make test` has 20,000 keys and a few hundred turns, of which one
    may be longer than 20 ms.

    20 and 100 ms are bounds of the metric, and the test judges by these alone. If no story keeps them, on a machine that computes
    slower than the one where they were found, the test judges by the metric's next bounds that allow for its pace. Then it is
    skipped, so that the report says what was not shown.
    """
    sources = {"main": {"budget": budget}}
    load = {"source": "main", "python": "live.loaders:plain"}
    space = {"key": "item:{id:int}", "load": load, "ttl": "1h", "refresh": refresh}
    if refresh:
        space["max_backlog"] = 200_000  # more than a partition lets wait before it stops reading
    settings = config(redis_url, sources, {"item": space}, partitions=1)
    del settings["defaults"]
    packs, policy = amount(20, 1_000), request.node.callspec.id
    seats = packs * PACK if refresh else 0

    for _ in range(TRIES):
        turns, longer, slow = _story(updaters, settings, packs, seats=seats)
        if _kept(turns, longer, USUAL_S, LONGEST_S, seats=seats):
            break
    record_property(f"figure: {packs * PACK} keys, {policy}: turns", turns)
    for bound in (USUAL_S, LONGEST_S):
        record_property(
            f"figure: {packs * PACK} keys, {policy}: of these longer than {bound:g} s of CPU", longer[bound]
        )
    if not _kept(turns, longer, USUAL_S, LONGEST_S, seats=seats):
        assert slow > 1.0, longer
        wider = [min(each for each in longer if each >= bound * slow) for bound in (USUAL_S, LONGEST_S)]
        assert _kept(turns, longer, *wider, seats=seats), longer
        pytest.skip(f"the machine is {slow:.1f} times slower than usual: judged by {wider} s of CPU")
