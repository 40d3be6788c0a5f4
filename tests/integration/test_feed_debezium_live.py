"""Recorded topics of Debezium's connectors reach the cache: real Kafka, real Redis, real PostgreSQL with the rows, real updaters.

The rows change in PostgreSQL without a word, and then the topics get what a connector has once said of such changes. A group that is
new would count all keys as changed, which hides what an event does. So the group of each test has begun before.
"""

from __future__ import annotations

import asyncio
import json
import time
from uuid import uuid4

import pytest
import redis
from aiokafka import AIOKafkaProducer
from feeds.debezium_events import event, key
from feeds.recorded import CONNECTORS, FORMS, recording, table_topic
from live import warm
from live.database import Database
from live.explained import WITHIN_S, because, told
from live.updater_process import eventually

from cacheupdater.adapters.feed_debezium import DebeziumFeed, DebeziumSettings
from cacheupdater.feed_ports import Watched
from cacheupdater.local import kafka_topics
from cacheupdater.local.postgres_server import run_sql
from cacheupdater_client import Redis
from cacheupdater_client.protocol.broker import parse_cluster

pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("needs_apache"),
]

TABLES = (
    "CREATE TABLE items (id bigint PRIMARY KEY, shelf int NOT NULL)",
    "CREATE TABLE stock (item_id bigint, place text, pieces int NOT NULL, PRIMARY KEY (item_id, place))",
    "INSERT INTO items SELECT i, 0 FROM generate_series(1, 9) i",
    "INSERT INTO stock VALUES (1, 'north', 0), (1, 'west', 0), (2, 'south', 0), (9, 'north', 0)",
)
TRUTH = {
    "item:{id}": "SELECT id, shelf FROM items",
    "stock:{item_id}:{place}": "SELECT item_id, place, pieces FROM stock",
}
UNTOLD = {"item:9", "stock:9:north"}  # rows of which no event tells
SECRET = "a-secret-in-a-record"


class Shop:
    """The rows, the cache, the topics, and the updaters that read them."""

    def __init__(self, kafka, database, redis_url, connector):
        self.bootstrap, self.url, self.redis_url = kafka.bootstrap, database, redis_url
        self.connector, self.prefix = connector, f"live-{uuid4().hex[:12]}"
        self.topics = [table_topic(connector, each, self.prefix) for each in ("items", "stock")]
        self.plain = redis.Redis.from_url(redis_url)
        run_sql(database, *TABLES)
        for topic in self.topics:
            kafka_topics.done(kafka_topics.create(self.bootstrap, topic, partitions=3))
        asyncio.run(self._begin())

    async def _begin(self):
        """The group has read so far."""
        watched = (Watched("items", ("id",)), Watched("stock", ("item_id", "place")))
        address = parse_cluster(f"kafka://{self.bootstrap}")
        feed = DebeziumFeed(DebeziumSettings(address, self.prefix, self.prefix, watched))
        await feed.start()
        async for batch in feed.batches():
            await feed.confirm(batch.position)
            break
        await feed.stop()

    def settings(self, queue=None):
        feed = {"url": f"kafka://{self.bootstrap}", "prefix": self.prefix, "group": self.prefix}
        sql = "SELECT item_id, place, pieces FROM stock WHERE (item_id, place) IN :keys"
        return {
            "version": 1,
            "queue": queue or {"url": "memory://"},
            "cache": {"url": self.redis_url},
            "sources": {"shop": {"url": self.url, "budget": "500/s", "changes": {"debezium": feed}}},
            "defaults": {"refresh": {"every": "1h"}, "ttl": "2h", "missing": {"ttl": "2h"}},
            "namespaces": {
                "item": {
                    "key": "item:{id:int}",
                    "load": {"source": "shop", "sql": "SELECT id, shelf FROM items WHERE id IN :id"},
                    "changes": [{"table": "items"}],
                },
                "stock": {
                    "key": "stock:{item_id:int}:{place}",
                    "load": {"source": "shop", "sql": sql},
                    "changes": [{"table": "stock"}],
                },
            },
        }

    def run(self, *statements):
        run_sql(self.url, *statements)

    def rows(self):
        """The value of each row, by key."""
        with Database(self.url) as own:
            return {
                name.format(**row): dict(row)
                for name, statement in TRUTH.items()
                for row in own.rows(statement)
            }

    def values(self):
        names = [each.decode() for pattern in ("item:*", "stock:*") for each in self.plain.scan_iter(pattern)]
        found = dict(zip(names, self.plain.mget(names), strict=True)) if names else {}
        return {name: json.loads(value) for name, value in found.items() if value not in {None, b""}}

    def fill(self, emit):
        """A value of every row, as a reader has caused it."""
        wanted = self.rows()
        with Redis.from_url(self.redis_url, emit=emit) as cache:
            for name in wanted:
                cache.get(name)  # once: a second miss that comes late is loaded again
            eventually(lambda: self.values() == wanted)

    def stale(self):
        """Keys whose value is not their row."""
        rows = self.rows()
        return {name for name, value in self.values().items() if rows.get(name) != value}

    def at_rest(self):
        began = time.monotonic()
        eventually(lambda: not self.stale())
        return time.monotonic() - began

    def send(self, *records):
        """Puts records (topic, key, value) where Kafka's own partitioner puts them."""

        async def send():
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
            await producer.start()
            try:
                for topic, key, value in records:
                    await producer.send(topic, value, key=key)
            finally:
                await producer.stop()

        asyncio.run(send())

    def close(self):
        self.plain.close()
        for topic in self.topics:
            kafka_topics.done(kafka_topics.delete(self.bootstrap, topic))


@pytest.fixture
def shop(request, kafka, pg_url, redis_url):
    shop = Shop(kafka, pg_url, redis_url, getattr(request, "param", "postgresql"))
    yield shop
    shop.close()


def reads(updater):
    return updater.metric("feed_reads", source="shop") == 1.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shop", CONNECTORS, indirect=True)
def test_recorded_topics_leave_no_stale_value_at_rest_and_touch_no_other(shop, form, updaters):
    updater = updaters.make(shop.settings()).start()
    eventually(lambda: reads(updater))
    shop.fill(updater.emit)
    records = [each for each in recording(shop.connector, form, shop.prefix) if each.topic in shop.topics]
    changes = [each for each in records if each.key is not None]  # a truncate has no key
    truncates = [each for each in records if each.key is None]
    shop.run("DELETE FROM items WHERE id = 2", "DELETE FROM stock WHERE item_id = 1",
             "UPDATE items SET shelf = 7", "UPDATE stock SET pieces = 7")  # fmt: skip
    before = shop.stale()
    shop.send(*changes)
    concerned = {_named(each) for each in changes}
    print(f"{shop.connector}, {form}: {len(changes)} records, {len(concerned)} keys")
    eventually(lambda: shop.stale() == before - concerned)
    assert shop.stale() >= UNTOLD, "nobody told of these"
    assert updater.metric("feed_skipped_total") == updater.metric("feed_unmapped_total") == 0.0

    shop.run("TRUNCATE items")
    shop.send(*truncates)
    eventually(lambda: not any(name.startswith("item:") for name in shop.values()))
    told(updater, "item:1", "feed_swept")
    updater.terminate()
    assert updater.wait() == 0


def _named(record):
    said = json.loads(record.key)
    row = said.get("payload", said)
    return f"item:{row['id']}" if "id" in row else f"stock:{row['item_id']}:{row['place']}"


def test_malformed_and_foreign_records_are_counted_and_passed_over_and_the_log_quotes_none(shop, updaters):
    updater = updaters.make(shop.settings()).start()
    eventually(lambda: reads(updater))
    shop.fill(updater.emit)
    items = shop.topics[0]
    shop.run("UPDATE items SET shelf = 7 WHERE id <= 2")
    shop.send(
        (items, key(1), event("u", None, {"id": 1, "shelf": 7})),
        (items, key(1), f"\0{SECRET}".encode()),
        (items, key(2), json.dumps({"id": 2, "name": SECRET}).encode()),
        (items, key(2), None),
        (items, key(2), event("u", None, {"id": 2, "shelf": 7})),
    )
    print(f"at rest after {shop.at_rest():.2f} s")
    eventually(lambda: updater.metric("feed_skipped_total", source="shop", reason="malformed") == 1.0)
    eventually(lambda: updater.metric("feed_skipped_total", source="shop", reason="foreign") == 1.0)
    assert any(f"in {items}, partition" in each for each in updater.messages)
    assert reads(updater)
    shop.send((items, key(1), f"\1{SECRET}".encode()))
    told(updater, "item:1", "feed_skipped")
    assert SECRET not in updater.log


@pytest.mark.prove
def test_a_table_without_a_topic_is_told_until_there_is_one(shop, updaters):
    topic = shop.topics[1]
    kafka_topics.done(kafka_topics.delete(shop.bootstrap, topic))
    updater = updaters.make(shop.settings()).start()
    told(updater, "stock:1:north", "feed_lacks")
    kafka_topics.done(kafka_topics.create(shop.bootstrap, topic, partitions=3))
    eventually(lambda: ": feed_lacks: " not in because(updater, "stock:1:north"), within=WITHIN_S)


@pytest.fixture
def pair(shop, updaters, tmp_path):
    """Two updaters that share a queue: the one that reads the feed, and the other."""
    queue = {"url": f"sqlite:///{tmp_path}/queue.db?partitions=4&session_timeout=2s"}
    both = [updaters.make(shop.settings(queue)).start() for _ in range(2)]
    [reader] = eventually(lambda: [each for each in both if reads(each)])
    [other] = [each for each in both if each is not reader]
    shop.fill(other.emit)
    return reader, other


@pytest.mark.prove
def test_a_killed_reader_s_successor_goes_on_and_loses_nothing(shop, pair):
    reader, other = pair
    changed = [_updated(shop, each) for each in range(1, 10)]
    shop.run("UPDATE items SET shelf = 7")
    shop.send(*changed[:5])
    reader.kill()
    killed = time.monotonic()
    shop.send(*changed[5:])
    eventually(lambda: reads(other))
    print(f"another updater reads {time.monotonic() - killed:.1f} s after the kill")
    print(f"at rest after {shop.at_rest():.1f} s")
    other.terminate()
    assert other.wait() == 0


@pytest.mark.prove
def test_a_reader_that_wakes_after_its_session_takes_nothing_from_its_successor(shop, pair):
    reader, other = pair
    reader.pause()
    shop.run("UPDATE items SET shelf = 7 WHERE id <= 5")
    shop.send(*(_updated(shop, each) for each in range(1, 6)))
    eventually(lambda: reads(other))
    shop.at_rest()
    reader.resume()
    eventually(lambda: not reads(reader))
    assert reads(other)
    shop.run("UPDATE items SET shelf = 8")
    shop.send(*(_updated(shop, each, 8) for each in range(1, 10)))
    print(f"at rest after {shop.at_rest():.1f} s")
    assert (reads(reader), reads(other)) == (False, True)


def _updated(shop, each, shelf=7):
    return shop.topics[0], key(each), event("u", None, {"id": each, "shelf": shelf})


def test_an_updater_that_was_away_reads_what_it_has_missed(shop, updaters):
    updater = updaters.make(shop.settings()).start()
    shop.fill(updater.emit)
    updater.terminate()
    assert updater.wait() == 0
    shop.run("UPDATE items SET shelf = 7 WHERE id = 1")
    shop.send((shop.topics[0], key(1), event("u", None, {"id": 1, "shelf": 7})))
    updater.start()
    print(f"at rest after {shop.at_rest():.1f} s")
    assert not any("feed_swept" in each for each in updater.troubles)


@pytest.mark.prove
def test_commands_and_pages_tell_of_the_feed(shop, updaters):
    updater = updaters.make(shop.settings()).start()
    eventually(lambda: reads(updater))
    [feed] = json.loads(updater.page("/freshness")[1])["feeds"]
    assert (feed["source"], feed["kind"], feed["reads"]) == ("shop", "debezium", True)
    installed = said_by(updater, "changes", "install")
    assert "source shop, debezium: nothing was made" in installed
    assert f"note: no event of {shop.topics[0]} could be tried" in installed
    for words in (("changes", "install", "--print"), ("changes", "remove")):
        assert "source shop, debezium: nothing to do" in said_by(updater, *words)
    shop.send((shop.topics[0], key(1), event("c", None, {"id": 1, "shelf": 0})))
    checked = said_by(updater, "check", "--connect")
    assert "debezium: can be read" in checked
    assert f"no event of {shop.topics[1]} could be tried" in checked


def said_by(updater, *words):
    done = warm.run(*words, "-c", updater.file)
    return done.stdout + done.stderr
