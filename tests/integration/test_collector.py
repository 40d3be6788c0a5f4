"""A collector as an operator runs it: real processes, real sockets, a real updater and a real Kafka behind it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from brokers.records import records_of
from hints.peer import HintPeer
from hints.server import HintServer
from live.updater_process import ROOT, config, eventually
from suite.pace import PATIENCE_S, slowness, soonest

from cacheupdater.core.peers import CLIENTS_MAX
from cacheupdater.local import kafka_topics
from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port
from cacheupdater_client import Redis
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Hello, decode_pack
from cacheupdater_client.target import DRAIN_S

MIB = 1024 * 1024
OWN_MIB = 26  # 23.7 measured, ten times, with a file and without; numpy alone takes 9
HEAVY = {"numpy", "sqlalchemy", "pydantic_core", "asyncpg", "aiosqlite"}
PAGE = ROOT / "docs/how-to/collector.md"
SUPPORT = Path(__file__).parents[1] / "support"
KEYS, ROUNDS, PAUSE_S = (
    50,
    60,
    0.02,
)  # a reader reads each of its keys 50 times a second, and announces 6 changes
CHANGES = range(0, ROUNDS, 10)
ADDED_NS = 20_000  # of 99 % of the hints: what a read may take longer, whatever has become of the collector


class Reader:
    """An application in a process of its own."""

    def __init__(self, emit, name, rounds=ROUNDS):
        command = [sys.executable, "-m", "hints.reader", emit, name, str(KEYS), str(rounds), str(PAUSE_S)]
        paths = os.pathsep.join((str(SUPPORT), str(ROOT / "client")))
        environment = {**os.environ, "PYTHONPATH": paths}  # noqa: TID251  a child inherits it
        self._process = subprocess.Popen(
            dying_with_us(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout.readline() == "begun\n", self._process.stderr.read()

    def result(self):
        """What became of its hints."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, err
        assert "Traceback" not in err
        return json.loads(out)


def unharmed(*results):
    """No hint was dropped, none was left, and neither a call nor the process has paid for what was away."""
    for result in results:
        assert result["dropped"] == {}
        assert result["delivered"] == result["emitted"]
        assert result["grown_kib"] < 32 * 1024
        assert result["p99_ns"] <= ADDED_NS * slowness()


def changes_of(*names):
    return {b"p:change:%s:%d" % (name.encode(), turn) for name in names for turn in CHANGES}


def entries(packs, kind=TOUCH):
    """How many hints entered the queue, each for all that were merged into it."""
    return sum(len(pack.keys) for pack in packs if pack.kind == kind)


def most(seconds):
    """As many hints may enter the queue in so many seconds: 1.1 for each key and turn."""
    return 1.1 * KEYS * (seconds / DRAIN_S + 1)


def gone_on(collector):
    """How many hints the queue behind has taken. `waiting` is told once a turn, so it may be 0 though a hint has just come."""
    return collector.metric("forwarded_total") + collector.metric("merged_total")


def test_clients_are_greeted_as_by_the_updater_behind_and_their_hints_are_merged(sockets, collectors):
    with HintServer(sockets / "up", partitions=3, prefixes=[b"p:", b"q:"]) as updater:
        collector = collectors(updater.url).start()
        with HintPeer(collector.socket) as one, HintPeer(collector.socket) as other:
            assert one.hello == Hello(3, [b"p:", b"q:"], CLIENTS_MAX)
            for peer in (one, other) * 20:
                peer.hint(TOUCH, b"p:1", b"q:2", b"stranger")
            assert updater.wait_until(lambda u: u.hints(TOUCH) == {b"p:1": 40, b"q:2": 40})
        eventually(lambda: collector.metric("collected_total", kind="touch") == 120)
        eventually(lambda: collector.metric("dropped_total", reason="undeclared") == 40)
        eventually(lambda: gone_on(collector) == 80)


def test_only_what_the_operator_names_is_forwarded(sockets, collectors):
    with HintServer(sockets / "up", prefixes=[]) as updater:
        collector = collectors(updater.url, "--only", "p:", "q:").start()
        with HintPeer(collector.socket) as peer:
            assert peer.hello.prefixes == [b"p:", b"q:"]
            peer.hint(CHANGE, b"p:1", b"other")
        assert updater.hints(CHANGE) == {b"p:1": 1}


def test_a_collector_that_is_stopped_forwards_what_it_has(sockets, collectors):
    with HintServer(sockets / "up") as updater:
        collector = collectors(updater.url).start()
        with HintPeer(collector.socket) as peer:
            peer.hint(TOUCH, *(b"p:%d" % number for number in range(500)))
            collector.terminate()
            assert collector.wait() == 0
        assert len(updater.hints(TOUCH)) == 500
    assert not collector.socket.exists()


def test_clients_wait_for_a_collector_whose_queue_is_not_there_yet(sockets, collectors):
    collector = collectors(f"unix://{sockets}/up")
    collector.launch()
    eventually(lambda: "queue_missing" in collector.log)
    assert collector.page("/livez")[0] == 200
    assert json.loads(collector.page("/readyz")[1])["conditions"] == {"queue": False, "accepting": False}
    assert not collector.socket.exists()
    reader = Reader(collector.emit, "early")
    with HintServer(sockets / "up", prefixes=[]) as updater:
        collector.wait_ready()
        result = reader.result()
        unharmed(result)
        assert result["emitted"] == KEYS * ROUNDS + len(CHANGES)
        assert updater.wait_until(lambda u: sum(u.hints().values()) >= result["emitted"])
        assert set(updater.hints(CHANGE)) == changes_of("early")
        assert collector.page("/readyz")[0] == 200


def test_a_change_is_acknowledged_only_by_the_queue_and_arrives_after_an_outage(sockets, collectors):
    with HintServer(sockets / "up") as updater:
        collector = collectors(updater.url).start()
        with HintPeer(collector.socket) as peer, HintPeer(collector.socket) as reader:
            updater.acknowledges = False  # as a queue that has stopped
            peer.hint_unheard(CHANGE, b"p:1")
            assert updater.wait_until(lambda u: u.hints(CHANGE)[b"p:1"] == 1)
            reader.hint(TOUCH, b"p:2")  # returns: touches are acknowledged from memory
            assert peer.accepted == 0
            assert collector.metric("waiting") >= 1
            updater.drop_peers()
            updater.acknowledges = True
            peer.wait()
            assert updater.hints(CHANGE)[b"p:1"] == 2  # at least once
            assert updater.wait_until(lambda u: u.hints(TOUCH)[b"p:2"] >= 1)


def test_a_collector_that_is_killed_costs_its_clients_nothing_and_no_change(sockets, collectors):
    with HintServer(sockets / "up", prefixes=[]) as updater:
        collector = collectors(updater.url).start()
        readers = [Reader(collector.emit, name) for name in ("a", "b")]
        assert updater.wait_until(lambda u: u.hints(TOUCH))
        collector.kill()
        before = sum(updater.hints(TOUCH).values())
        collector.start()
        results = [reader.result() for reader in readers]
        unharmed(*results)
        assert {each["emitted"] for each in results} == {KEYS * ROUNDS + len(CHANGES)}
        assert updater.wait_until(lambda u: set(u.hints(CHANGE)) >= changes_of("a", "b"))
        assert updater.wait_until(lambda u: sum(u.hints(TOUCH).values()) > before)


def test_a_collector_that_hangs_costs_its_clients_nothing_and_no_hint(sockets, collectors):
    with HintServer(sockets / "up", prefixes=[]) as updater:
        collector = collectors(updater.url).start()
        reader = Reader(collector.emit, "a")
        assert updater.wait_until(lambda u: u.hints(TOUCH))
        collector.pause()
        time.sleep(3 * DRAIN_S)  # the application goes on meanwhile
        collector.resume()
        result = reader.result()
        unharmed(result)
        assert updater.wait_until(lambda u: sum(u.hints().values()) >= result["emitted"])
        assert set(updater.hints(CHANGE)) == changes_of("a")


def test_a_miss_and_a_change_reach_a_real_updater(updaters, collectors, redis_url, database, plain, pg_url):
    database.execute(
        "CREATE TABLE products (id int PRIMARY KEY, price int); INSERT INTO products VALUES (7, 1)"
    )
    sources = {"main": {"url": pg_url, "budget": "1000/s"}}
    load = {"source": "main", "sql": "SELECT id, price FROM products WHERE id IN :id"}
    updater = updaters.start(
        config(redis_url, sources, {"product": {"key": "product:{id:int}", "load": load}})
    )
    collector = collectors(updater.emit).start()

    def price():
        value = plain.get("product:7")
        return value and json.loads(value)["price"]

    with Redis.from_url(redis_url, emit=collector.emit) as application:
        assert application.get("product:7") is None
        eventually(lambda: price() == 1)
        database.execute("UPDATE products SET price = 2 WHERE id = 7")
        application.invalidate("product:7")
        eventually(lambda: price() == 2)
    with HintPeer(collector.socket) as peer:
        assert peer.hello == Hello(2, [b"product:"], CLIENTS_MAX)


def example(language):
    """The program in this language on the page about collectors."""
    return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


def go(said):
    imports = 'import ("net/http"; "os"; "strings")'
    return f"package main\n{imports}\nfunc main() {{\n{said}\nif !taken {{ os.Exit(1) }}\n}}\n"


@pytest.mark.parametrize(
    ("program", "name", "whole", "hints"),
    [
        pytest.param(
            ("sh", "-e"),
            "example.sh",
            str,
            {TOUCH: {b"product:7": 3}, MISS: {b"product:8": 1}, CHANGE: {b"product:9": 1}},
            id="sh",
        ),
        pytest.param(("node",), "example.mjs", str, {CHANGE: {b"product:7": 1}}, id="js"),
        pytest.param(
            ("go", "run"),
            "example.go",
            go,
            {CHANGE: {b"product:7": 1}},
            id="go",
            marks=pytest.mark.prove,  # compiles a minute if its cache is empty
        ),
    ],
)
def test_the_examples_for_other_languages_hand_in_hints(
    sockets, tmp_path, collectors, request, program, name, whole, hints
):
    language = request.node.callspec.id
    for needed in ("curl",) if language == "sh" else program[:1]:
        if not shutil.which(needed):
            pytest.skip(f"needs {needed} on this machine")
    port = free_port()
    source = tmp_path / name
    source.write_text(whole(example(language).replace("7172", str(port))))
    with HintServer(sockets / "up", prefixes=[]) as updater:
        by_http = f"http://127.0.0.1:{port}"
        collector = collectors(updater.url, "--listen", f"unix://{sockets}/own", by_http).start()
        done = subprocess.run([*program, source], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        for kind, counts in hints.items():
            assert updater.wait_until(lambda u, kind=kind, counts=counts: u.hints(kind) == counts)
        assert collector.metric("intake_rejected_total") == 0


def test_four_processes_are_one_hint_per_key_and_turn_in_kafka_and_none_is_lost(kafka, new_topic, collectors):
    topic = new_topic(partitions=3)
    collector = collectors(kafka.url(topic)).start()
    began = time.monotonic()
    readers = [Reader(collector.emit, name) for name in "abcd"]
    results = [reader.result() for reader in readers]
    eventually(lambda: gone_on(collector) == sum(each["emitted"] for each in results))
    seconds = time.monotonic() - began
    packs = packs_of(kafka, topic)
    assert all(result["delivered"] == result["emitted"] for result in results)
    assert sum(sum(pack.counts) or len(pack.keys) for pack in packs) == sum(r["emitted"] for r in results)
    assert entries(packs) <= most(seconds)
    assert {key for pack in packs if pack.kind == CHANGE for key in pack.keys} == changes_of(*"abcd")


@pytest.mark.prove  # a broker of its own that dies: 20 s
def test_a_kafka_that_dies_costs_no_hint_and_no_application_any_time(own_kafka, collectors, needs_apache):
    kafka_topics.done(kafka_topics.create(own_kafka.admin, "hints", partitions=3))
    collector = collectors(f"kafka://{own_kafka.bootstrap}/hints").start()
    readers = [Reader(collector.emit, name, rounds=4 * ROUNDS) for name in "ab"]
    eventually(lambda: collector.metric("forwarded_total") > KEYS)
    own_kafka.kill()
    eventually(lambda: collector.troubles)
    eventually(lambda: collector.metric("waiting") > 100)
    own_kafka.start()
    results = [reader.result() for reader in readers]
    emitted = sum(each["emitted"] for each in results)
    eventually(lambda: gone_on(collector) >= emitted)
    found = packs_of(own_kafka, "hints")
    assert all(each["delivered"] == each["emitted"] and each["dropped"] == {} for each in results)
    assert sum(sum(pack.counts) or len(pack.keys) for pack in found) >= emitted
    assert {key for pack in found if pack.kind == CHANGE for key in pack.keys} >= changes_of("a", "b")


def packs_of(kafka, topic):
    return [decode_pack(value) for _, _, value in asyncio.run(records_of(kafka.bootstrap, topic))]


def file_of(kafka, topic):
    """A file that updaters and collectors share; its database and Redis are of no concern here."""
    load = {"source": "main", "sql": "SELECT id, price FROM products WHERE id IN :id"}
    sources = {"main": {"url": "postgresql+asyncpg://nobody@127.0.0.1:1/shop", "budget": "1000/s"}}
    namespaces = {"product": {"key": "product:{id:int}", "load": load}}
    return {
        **config("redis://127.0.0.1:1/0", sources, namespaces),
        "queue": {"url": kafka.url(topic, "?group=updaters&session_timeout=10s")},
    }


@pytest.mark.parametrize("with_file", [False, True], ids=["no file", "file"])
def test_a_collector_fits_beside_an_application(kafka, new_topic, collectors, with_file):
    topic = new_topic(partitions=3)
    settings = file_of(kafka, topic) if with_file else None
    collector = collectors(kafka.url(topic), settings=settings).start()
    with HintPeer(collector.socket) as peer:
        assert peer.hello == Hello(3, [b"product:"] if with_file else [], CLIENTS_MAX)
        peer.hint(CHANGE, b"product:7")
    assert [pack.keys for pack in packs_of(kafka, topic)] == [[b"product:7"]]
    assert collector.own <= OWN_MIB * MIB
    assert not {name for name in HEAVY if f"/{name}" in Path(f"/proc/{collector.pid}/maps").read_text()}


def test_a_collector_without_a_file_loads_nothing_heavy(sockets, collectors):
    with HintServer(sockets / "up") as updater:
        collector = collectors(updater.url, program=("-X", "importtime", "-m", "cacheupdater")).start()
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in collector.log.splitlines()}
    assert {"cacheupdater", "cacheupdater_client", "asyncio"} <= loaded
    assert not loaded & {*HEAVY, "redis", "ruamel", "cachetools", "aiokafka"}


def test_a_collector_is_ready_after_a_second_of_work(sockets, collectors):
    """How long it waits for a processor is not its own."""
    with HintServer(sockets / "up") as updater:

        def start():
            spent = psutil.Process(collectors(updater.url).start().pid).cpu_times()
            return spent.user + spent.system

        soonest(start, 1.0 * slowness())
