"""A prefork application of four workers and one of asyncio send through one collector: nothing is lost, and no reader waits.

The time that a hint adds to a read is measured by turns with stock redis-py, and with an idle loop that shows the machine's own share.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import pytest
from brokers.records import records_of
from live.updater_process import ROOT, config, eventually
from suite.pace import PATIENCE_S

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port
from cacheupdater_client.protocol.wire import decode_pack
from cacheupdater_client.target import DRAIN_S

pytestmark = [pytest.mark.live, pytest.mark.prove]

SUPPORT = Path(__file__).parents[1] / "support"
WORKERS = 4
KEYS = 50 + WORKERS + 1  # those that all read, and one of each process
LATE_US = 1000
LATE_MORE, LATE_TIMES = (
    0.001,
    1.3,
)  # reads that may be late although stock's are not, of all and of those that are late
RATES = {"real": 5_000, "stubbed": 20_000}  # reads a second of all processes


class Crowd:
    """The two applications."""

    def __init__(self, emit, redis_url, *, rate, seconds, stubbed):
        said = {
            "emit": emit,
            "redis": redis_url,
            "rate": rate / (WORKERS + 1),
            "seconds": seconds,
            "stubbed": stubbed,
        }
        paths = os.pathsep.join((str(SUPPORT), str(ROOT / "client")))
        self._environment = {**os.environ, "PYTHONPATH": paths, "TIMED_READS": json.dumps(said)}  # noqa: TID251  children inherit it
        self._seconds, self._port = seconds, free_port()

    def results(self):
        """What became of the hints of each process, and how long its reads took."""
        bind = ["--bind", f"127.0.0.1:{self._port}", "--timeout", "0", "--no-control-socket"]
        prefork = self._start(
            "-m", "gunicorn", "--preload", "--workers", str(WORKERS), *bind, "live.timed_reads:app"
        )
        eventually(self._listens, within=PATIENCE_S)
        with ThreadPoolExecutor(WORKERS) as threads:
            asked = [threads.submit(self._ask) for _ in range(WORKERS)]
            loop = self._start("-m", "live.timed_reads")
            said, _ = loop.communicate(timeout=self._seconds + PATIENCE_S)
            results = [json.loads(each) for each in (said, *(one.result() for one in asked))]
        prefork.terminate()
        prefork.communicate(timeout=PATIENCE_S)
        assert prefork.returncode == 0
        return results

    def _start(self, *command):
        return subprocess.Popen(
            dying_with_us([sys.executable, *command]), stdout=subprocess.PIPE, env=self._environment
        )

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _ask(self):
        with urlopen(f"http://127.0.0.1:{self._port}/", timeout=self._seconds + PATIENCE_S) as answer:
            return answer.read()


@pytest.fixture
def names(plain):
    """Values of all keys that are read; a process makes its own by its number, so any number has one."""

    def named(*slots):
        return {f"p:{each}": json.dumps({"slot": str(each), "text": f"banner of {each}"}) for each in slots}

    plain.mset(named(*range(50)))
    return named


def told(results):
    """The percentiles of all processes together, and the share of reads that took longer than a millisecond."""
    late = {}
    for name in ("ours", "stock", "idle"):
        took = sorted(us for each in results for us in each["took"][name])
        p50, p99, p99995 = (took[int(len(took) * share)] for share in (0.5, 0.99, 0.99995))
        late[name] = sum(us > LATE_US for us in took) / len(took)
        print(
            f"{name}: {len(took):,} reads, p50 {p50} us, p99 {p99} us, p99.995 {p99995 / 1000:.1f} ms,"
            f" most {took[-1] / 1000:.1f} ms, above 1 ms {late[name]:.4%}"
        )
    return late


def settled(results, began):
    """Every process ran, and its hints were delivered. Returns how many hints there were, and the seconds that they came in."""
    assert len({each["pid"] for each in results}) == WORKERS + 1
    for each in results:
        assert each["dropped"] == {}
        assert each["delivered"] == each["emitted"] >= len(each["took"]["ours"] + each["took"]["alone"])
    late = told(results)
    assert late["ours"] <= LATE_TIMES * late["stock"] + LATE_MORE
    return sum(each["emitted"] for each in results), time.monotonic() - began


@pytest.mark.parametrize("how", RATES)
def test_a_crowd_reaches_kafka_through_one_collector(
    how, kafka, new_topic, collectors, redis_url, names, amount
):
    topic = new_topic(partitions=3)
    collector = collectors(kafka.url(topic)).start()
    began = time.monotonic()
    crowd = Crowd(collector.emit, redis_url, rate=RATES[how], seconds=amount(2, 15), stubbed=how == "stubbed")
    results = crowd.results()
    eventually(lambda: collector.metric("waiting") == 0)
    emitted, seconds = settled(results, began)
    packs = [decode_pack(value) for _, _, value in asyncio.run(records_of(kafka.bootstrap, topic))]
    entered = sum(len(pack.keys) for pack in packs)
    print(
        f"{how}: {emitted:,} hints, {entered:,} entered Kafka, {entered / (KEYS * seconds / DRAIN_S):.2f} a key and turn"
    )
    # the master has read one key before it forked
    assert emitted <= sum(sum(pack.counts) or len(pack.keys) for pack in packs) <= emitted + 1
    assert {b"p:%d" % each["pid"] for each in results} <= {key for pack in packs for key in pack.keys}
    assert entered <= 1.1 * KEYS * (seconds / DRAIN_S + 1)


@pytest.mark.parametrize("how", RATES)
def test_a_crowd_reaches_an_updater_through_one_collector(
    how, updaters, collectors, redis_url, names, plain, amount
):
    spaces = {"p": {"key": "p:{slot}", "load": {"source": "code", "python": "live.loaders:banners"}}}
    updater = updaters.start(config(redis_url, {"code": {"budget": "1000/s"}}, spaces))
    collector = collectors(updater.emit).start()
    began = time.monotonic()
    crowd = Crowd(collector.emit, redis_url, rate=RATES[how], seconds=amount(2, 15), stubbed=how == "stubbed")
    results = crowd.results()
    eventually(lambda: collector.metric("waiting") == 0)
    emitted, _ = settled(results, began)
    eventually(lambda: emitted <= updater.metric("hints_total") <= emitted + 1)
    own = [f"p:{each['pid']}" for each in results]
    eventually(lambda: None not in plain.mget(own))
