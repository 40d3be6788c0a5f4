"""A stranger at the hint socket announces changes that never happened: which values leave a real Redis, and how fast."""

from __future__ import annotations

import json
import time

import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually

from cacheupdater_client.protocol.wire import CHANGE, encode_pack

KEYS = 5_000  # a few seconds more than are watched
RATE = 500.0  # rows a second
WATCHED_S = 4.0


@pytest.fixture
def updater(updaters, database, pg_url, redis_url):
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, version bigint)")
    sources = {"main": {"url": pg_url, "budget": f"{RATE:.0f}/s", "burst": "1s"}}
    items = {
        "key": "product:{id:int}",
        "load": {"source": "main", "table": "items"},
        "value": {"foreign": "replace"},
        "max_backlog": 100,
    }
    return updaters.start(config(redis_url, sources, {"item": items}, partitions=1))


def fill(plain, form):
    names = [form % n for n in range(KEYS)]
    with plain.pipeline(transaction=False) as pipe:
        for at in range(0, KEYS, 1000):
            pipe.mset(dict.fromkeys(names[at : at + 1000], json.dumps({"id": 1, "version": 1})))
        pipe.execute()
    return [name.encode() for name in names]


def values(plain):
    return sum(1 for _ in plain.scan_iter("product:*", count=5000))


def flood(updater, names, *, fed=False):
    """As fast as it is let; the peer does not wait to be acknowledged. `fed`: it claims that a feed has told the changes."""
    peer = HintPeer(updater.socket)
    for at in range(0, KEYS, 1000):
        part = names[at : at + 1000]
        peer.pack(encode_pack(CHANGE, 0, part, tokens=[1] * len(part) if fed else ()))
    return peer


def test_false_changes_remove_no_key_that_the_pattern_does_not_take(updater, plain):
    with flood(updater, fill(plain, "product:cart:%d")):
        eventually(lambda: updater.metric("dropped_total", reason="unknown") >= KEYS - 200)

        assert values(plain) == KEYS


@pytest.mark.prove
@pytest.mark.parametrize("fed", [False, True], ids=["announced", "as_if_by_a_feed"])
def test_false_changes_empty_a_namespace_no_faster_than_its_budget(updater, plain, fed):
    names = fill(plain, "product:%d")
    began = time.monotonic()
    with flood(updater, names, fed=fed):
        while time.monotonic() < began + WATCHED_S:
            left = values(plain)
            # each row that is loaded is absent, which removes its key too: twice the rate, and a second of it at once
            assert left >= KEYS - RATE * (2 * (time.monotonic() - began) + 1) - 200
        print(f"\nof {KEYS} keys {left} are left after {WATCHED_S:g} s")
        eventually(lambda: values(plain) == 0)
