"""An application fills keys through `Cache` beside a running updater: what the application has loaded the updater does not."""

from __future__ import annotations

import pytest
from live.updater_process import config, eventually

import cacheupdater_client
from cacheupdater_client.buffer import Buffer

KEYS = 100
EVERY = "50s"  # no interval ends while the test runs

pytestmark = pytest.mark.live

TABLE = (
    "CREATE TABLE items (id bigint PRIMARY KEY, name text);"
    f"INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, {2 * KEYS}) n"
)


@pytest.fixture
def updater(updaters, redis_url, pg_url, database):
    database.execute(TABLE)
    namespace = {"key": "item:{id:int}", "load": {"source": "main", "table": "items"}}
    source = {"url": pg_url, "budget": "1000/s"}
    return updaters.start(config(redis_url, {"main": source}, {"item": namespace}, every=EVERY))


@pytest.fixture
def items(updater, redis_url, database):
    client = cacheupdater_client.Redis.from_url(redis_url, emit=updater.emit)
    cache = cacheupdater_client.Cache(client)

    @cache.values("item:{id:int}", ttl="60s")
    def items(ids: list[int]) -> dict[int, dict]:
        return {each: {"id": each, "name": f"item {each}"} for each in ids}

    yield items
    client.close()


def read_twice(items, updater, ids):
    """Fills the keys, then finds them; returns when the updater has decided about both."""
    before = updater.metric("decisions_total")
    items.get_many(ids)
    eventually(lambda: updater.metric("decisions_total") >= before + len(ids))
    items.get_many(ids)
    eventually(lambda: updater.metric("decisions_total") >= before + 2 * len(ids))


def test_what_readers_have_filled_is_not_loaded_again_in_the_same_interval(items, updater, monkeypatch):
    read_twice(items, updater, range(1, KEYS + 1))
    assert updater.metric("decisions_total", decision="filled") == KEYS
    assert updater.metric("decisions_total", decision="hold") == KEYS
    assert updater.metric("rows_total") == 0

    # the control: touches without tokens, as earlier clients leave them
    monkeypatch.setattr(Buffer, "fill", lambda self, key, _: self.touch(key))
    read_twice(items, updater, range(KEYS + 1, 2 * KEYS + 1))
    eventually(lambda: updater.metric("rows_total") == KEYS)


def test_a_change_of_a_filled_key_is_loaded_at_once(items, updater):
    read_twice(items, updater, range(1, KEYS + 1))
    items.invalidate(7)
    eventually(lambda: updater.metric("refreshes_total", result="written") == 1)
    assert updater.metric("rows_total") == 1
