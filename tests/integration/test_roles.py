"""What a process may be, live: a collector in front of streams of a Redis, and an updater that collects as well."""

from __future__ import annotations

import json
import os
import signal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually

from cacheupdater.core.peers import CLIENTS_MAX
from cacheupdater.local.ports import free_port
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Hello

pytestmark = pytest.mark.untimed

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
ROWS = 40
PARTITIONS = 24  # of streams: each of two owners has its share, whatever their random names are
MIB_MAX = (
    44  # of a collector that sends to streams: 39.5 measured; to Kafka 38, for redis-py is one library more
)


@pytest.fixture
def durable_redis():
    """A Redis for hints that keeps what it has answered for."""
    with RedisServer(options=DURABLE) as server:
        yield server


class Shop:
    """Products with prices, in the database and in the cache."""

    def __init__(self, database, plain):
        self._database, self._plain = database, plain
        database.execute(
            "CREATE TABLE products (id int PRIMARY KEY, price int);"
            f"INSERT INTO products SELECT id, 1 FROM generate_series(1, {ROWS}) id"
        )

    def names(self, ids=range(1, ROWS + 1)):
        return [b"product:%d" % each for each in ids]

    def price_all(self, price, ids=range(1, ROWS + 1)):
        self._database.execute(f"UPDATE products SET price = {price} WHERE id BETWEEN {ids[0]} AND {ids[-1]}")

    def prices(self):
        """Those in the cache, None where there is none."""
        found = self._plain.mget(self.names())
        return [value and json.loads(value)["price"] for value in found]


@pytest.fixture
def shop(database, plain):
    return Shop(database, plain)


@pytest.fixture
def file_of(redis_url, pg_url):
    """The file of an updater with this queue."""

    def file_of(queue, *, collects=False):
        load = {"source": "main", "sql": "SELECT id, price FROM products WHERE id IN :id"}
        sources = {"main": {"url": pg_url, "budget": "1000/s"}}
        namespaces = {"product": {"key": "product:{id:int}", "load": load}}
        settings = config(redis_url, sources, namespaces, every="40s")
        return {**settings, "queue": {"url": queue}, **({} if collects else {"listen": None})}

    return file_of


@pytest.mark.prove
def test_no_change_that_a_collector_acknowledged_is_lost_when_the_redis_of_the_streams_dies(
    updaters, collectors, durable_redis, shop, file_of
):
    url = f"{durable_redis.url}?stream=hints&partitions=3"
    collector = collectors(f"{durable_redis.url}?stream=hints")
    collector.launch()
    eventually(lambda: any("no updater has opened" in each for each in collector.messages))
    updaters.start(file_of(f"{url}&session_timeout=2s"))
    collector.wait_ready()
    first, second = shop.names(range(1, 21)), shop.names(range(21, ROWS + 1))
    with HintPeer(collector.socket) as one, HintPeer(collector.socket) as other:
        assert one.hello == other.hello == Hello(3, [], CLIENTS_MAX)
        one.hint(MISS, *first)
        other.hint(MISS, *second)
        assert eventually(lambda: shop.prices() == [1] * ROWS)
        shop.price_all(2)
        one.hint(CHANGE, *first)  # has returned: the streams have them
        durable_redis.kill()
        other.hint_unheard(CHANGE, *second)
        eventually(lambda: collector.troubles)
        assert other.accepted < other.sent
        durable_redis.start()
        other.wait()
        assert eventually(lambda: shop.prices() == [2] * ROWS)
    assert eventually(lambda: not collector.troubles)
    assert collector.resident <= MIB_MAX * 1024 * 1024
    assert collector.metric("dropped_total") == 0


@pytest.fixture(params=["streams", pytest.param("kafka", marks=pytest.mark.prove)])  # rebalances take 10 s
def shared_queue(request):
    """The URL of a queue, for updaters."""
    if request.param == "kafka":
        kafka, topic = (request.getfixturevalue(name) for name in ("kafka", "new_topic"))
        return kafka.url(topic(partitions=3), "?session_timeout=6s")
    url = request.getfixturevalue("durable_redis").url
    return f"{url}?stream=hints&partitions={PARTITIONS}&session_timeout=2s"


def sends_until_taken(url, lines):
    """How often a program had to send these hints: the answer 503 says that a busy queue has not taken them in time."""
    for sent in range(1, 10):
        try:
            with urlopen(Request(url, lines.encode()), timeout=30) as answer:
                assert answer.status == 202
                return sent
        except HTTPError as e:
            if e.code != 503:
                raise
    raise AssertionError("503 nine times")


def test_an_updater_that_listens_beside_a_shared_queue_collects_for_all_and_refreshes_its_share(
    updaters, shared_queue, shop, file_of
):
    by_http = f"http://127.0.0.1:{free_port()}"
    own = updaters.make(file_of(shared_queue, collects=True))
    said = json.loads(own.file.read_text())
    said["listen"].append(by_http)
    own.file.write_text(json.dumps(said))
    own.start()
    other = updaters.start(file_of(shared_queue))
    eventually(lambda: "is ours" in other.log)
    ready = dict.fromkeys(("queue", "forwarding", "cache", "accepting"), True)
    eventually(lambda: json.loads(own.page("/readyz")[1])["conditions"] == ready)
    with HintPeer(own.socket) as peer:
        assert peer.hello.prefixes == [b"product:"]
        peer.hint(MISS, *shop.names())
        assert eventually(lambda: shop.prices() == [1] * ROWS)
        assert eventually(lambda: min(each.metric("rows_total") for each in (own, other)) > 0), "both work"

        shop.price_all(2)
        lines = "".join(json.dumps({"key": k.decode(), "kind": "change"}) + "\n" for k in shop.names())
        sent = sends_until_taken(f"{by_http}/v1/hints", lines)
        assert eventually(lambda: shop.prices() == [2] * ROWS)
        assert eventually(
            lambda: own.metric("collected_total") == own.metric("forwarded_total") == (1 + sent) * ROWS
        )
        assert other.metric("collected_total") == 0

        said["namespaces"]["more"] = said["namespaces"]["product"] | {"key": "more:{id:int}"}
        own.file.write_text(json.dumps(said))
        os.kill(own.pid, signal.SIGHUP)
        assert peer.closed(), "who has the old hello shall come back for the new one"
    with HintPeer(own.socket) as peer:
        assert peer.hello.prefixes == [b"more:", b"product:"]
        shop.price_all(3)
        peer.hint(TOUCH, *shop.names())  # in memory only
        own.terminate()
        assert own.wait() == 0
    assert not own.socket.exists()
    assert eventually(lambda: other.metric("hints_total", kind="touch") > 0)
    assert own.complaints == []


def test_of_several_workers_one_listens_and_all_refresh(updaters, durable_redis, shop, file_of):
    queue = f"{durable_redis.url}?stream=hints&partitions={PARTITIONS}&session_timeout=2s"
    parent = updaters.start(file_of(queue, collects=True), arguments=("--workers", "2"))
    with HintPeer(parent.socket) as peer:
        peer.hint(MISS, *shop.names())
        assert eventually(lambda: shop.prices() == [1] * ROWS)

        def both_refresh():  # the second may come late and find everything loaded, so there is always more to load
            peer.hint(CHANGE, *shop.names())
            return min(parent.metric("rows_total", worker=each) for each in "01") > 0

        assert eventually(both_refresh, every=0.5)
    assert parent.metric("collected_total", worker="0") >= 2 * ROWS
    assert parent.metric("collected_total", worker="1") == 0
