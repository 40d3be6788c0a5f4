"""Old values live on while PostgreSQL is away: over a kill of the updater, for as long as `fail_safe` says and no longer."""

from __future__ import annotations

import time

import pytest
from live.explained import told
from live.updater_process import config, eventually

from cacheupdater_client import Redis

KEYS = [f"item:{n}" for n in range(1, 21)]
CHANGED = "item:21"
TTL_S = 10.0  # a restart of the updater on a busy machine takes less than three quarters of it
FAIL_SAFE_S = 10.0
HOLD_S = 0.3
READ_EVERY_S = 0.2
SLACK_S = 2.0  # from the last load of a value until PostgreSQL has stopped

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def updater(redis_url, postgres_server, updaters):
    postgres_server.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, version bigint NOT NULL)",
        "INSERT INTO items SELECT n, 1 FROM generate_series(1, 21) n",
    )
    namespace = {
        "key": "item:{id:int}",
        "load": {"source": "main", "table": "items"},
        "ttl": {"base": f"{TTL_S:g}s", "jitter": "0%"},
        "fail_safe": f"{FAIL_SAFE_S:g}s",
    }
    source = {"url": postgres_server.url(), "budget": "2000/s"}
    settings = config(redis_url, {"main": source}, {"item": namespace}, every=f"{HOLD_S:g}s")
    return updaters.start(settings)


def read(client, keys, until):
    """Reads the keys again and again. Returns when one of them was gone, or `until`."""
    while (now := time.monotonic()) < until:
        if None in client.mget(keys):
            return now
        time.sleep(READ_EVERY_S)
    return until


@pytest.mark.prove
def test_values_that_are_read_live_on_over_a_kill_of_the_updater_and_expire_in_time(
    redis_url, postgres_server, updater, plain
):
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        eventually(lambda: None not in client.mget([*KEYS, CHANGED]))
        read(client, [*KEYS, CHANGED], time.monotonic() + 2 * HOLD_S)

        before = time.monotonic()
        postgres_server.stop()
        after = time.monotonic()
        assert read(client, [*KEYS, CHANGED], after + 0.6 * TTL_S) == after + 0.6 * TTL_S
        client.invalidate(CHANGED)
        eventually(lambda: updater.metric("prolonged_total", namespace="item", result="prolonged") > 0)
        told(updater, KEYS[0], "prolonged")
        updater.kill()
        updater.start()

        gone = read(client, KEYS, after + TTL_S + FAIL_SAFE_S + SLACK_S)
        assert before + TTL_S + FAIL_SAFE_S - SLACK_S <= gone < after + TTL_S + FAIL_SAFE_S + SLACK_S
        assert plain.get(CHANGED) is None
        assert any("prolonged item" in each for each in updater.troubles)

        postgres_server.start()
        eventually(lambda: None not in client.mget([*KEYS, CHANGED]))
        eventually(lambda: not updater.troubles)
