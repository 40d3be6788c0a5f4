"""P16: the cost of a hint on its way in and out, for each way to an updater, in packs of 10, 60 and 500 hints.

In: this process has an outbox and a link, as an application or a collector has (by HTTP: an application's own request), and counts
its CPU until the other side has acknowledged all. Out: an updater's door in a child process, which fetches every pack and
commits each second; its CPU counts from the first pack to the last. The servers between them (Redis, PostgreSQL, Kafka) run on the
other core, and are not counted. Keys are distinct, so nothing merges: each pack is as large as its row says. Packs are not decoded,
for that costs the same on every way.

All ways take turns in one run, and a row is the ratio to the unix socket with packs of the same size. Each is the median of
three rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from uuid import uuid4
from zlib import crc32

import rig
from table import row

from cacheupdater.collector.links import made_link
from cacheupdater.config.addresses import listen_address
from cacheupdater.config.queues import queue_of
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater.local.ports import free_port
from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater.local.redis_server import RedisServer
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import COMMIT_EVERY
from cacheupdater.service.doors import door_for
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import TOUCH

PARTITIONS = 12
SIZES = {10: 1200, 60: 1200, 500: 600}  # hints of a pack, and packs of a round
AT_ONCE = 5  # packs of a partition that wait in the outbox together: they fit into its window
ROUNDS = 3
TURN_S = 0.002  # between two turns of the link
WITHIN_S = 60.0  # for one way, with packs of one size
OPTIONS = f"partitions={PARTITIONS}&length=1000000"


# --- out: the updater's side, in a child process ------------------------------------------------------------


class Silent:
    """An observer that does nothing."""

    def count(self, metric, amount, *, label="", reason=""): ...

    def measure(self, metric, value, *, label=""): ...

    def level(self, metric, value, *, label=""): ...

    def end(self, metric, *, label=""): ...


class Reader:
    """Reads so many packs, and knows the CPU of that."""

    def __init__(self, queue, packs):
        self.queue, self.left = queue, packs
        self.began = 0.0
        self.done = {}
        self.epochs = {}
        self.end = asyncio.Event()

    async def follow(self):
        """Reads each partition that is ours. Nobody takes one away here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.commit())
            async for change in self.queue.assignments():
                for each in change.gained:
                    self.epochs[each.partition] = each.epoch
                    group.create_task(self.read(each.partition))

    async def read(self, partition):
        while messages := await self.queue.fetch(partition, 64):
            self.began = self.began or time.process_time()
            self.done[partition] = messages[-1].offset + 1
            self.left -= len(messages)
            if self.left <= 0:
                self.end.set()

    async def commit(self):
        while True:
            await asyncio.sleep(COMMIT_EVERY)
            for partition, done in self.done.items():
                await self.queue.commit(partition, epoch=self.epochs[partition], done=done)


async def read(url, packs):
    """Prints `ready`, then the seconds of CPU of so many packs."""
    is_socket = url.startswith(("unix:", "tcp:"))
    queue = queue_of("memory://" if is_socket else url, PARTITIONS if is_socket else None)
    listen = [listen_address(url)] if is_socket else []
    config = SimpleNamespace(queue=queue, listen=listen, collects=False)
    door = door_for(config, observer=Silent(), notices=Notices(time.monotonic))
    await door.find()
    door.declare([])
    reader = Reader(door.queue, packs)
    following = asyncio.ensure_future(reader.follow())
    await door.open()
    while len(reader.epochs) < PARTITIONS:  # noqa: ASYNC110  this side measures nothing yet
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await reader.end.wait()
    print(json.dumps(time.process_time() - reader.began), flush=True)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await door.close()


@contextmanager
def child(*arguments):
    """A process of this file or of the product, once it is ready; it runs on the last core, as this process does."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("ready"), f"{arguments} is not ready"
        yield process
    finally:
        process.terminate()
        process.wait(15)


# --- in -------------------------------------------------------------------------------------------------------


def lots(size, packs):
    """Keys for `AT_ONCE` packs of each partition, lot by lot."""
    shares, numbers = defaultdict(list), count()
    wanted = size * AT_ONCE
    for _ in range(packs // (PARTITIONS * AT_ONCE)):
        while any(len(shares[partition]) < wanted for partition in range(PARTITIONS)):
            key = b"product:%014d" % next(numbers)
            shares[crc32(key) % PARTITIONS].append(key)
        yield [[shares[p].pop() for _ in range(size)] for _ in range(AT_ONCE) for p in range(PARTITIONS)]


def sent_by_link(url, size, packs):
    """Seconds of CPU and of time until everything is acknowledged."""
    outbox, link = Outbox(curious=True), made_link(url)
    outbox.last_call = True  # no touch waits for company: the packs are full already
    until = time.monotonic() + WITHIN_S

    def turn():
        assert time.monotonic() < until, f"{url} does not take the hints: {link.trouble}"
        link.turn(outbox, time.monotonic(), time.time_ns() // 1_000_000)

    while not link.connected:
        turn()
        time.sleep(TURN_S)
    ready = list(lots(size, packs))
    cpu, began = time.process_time(), time.perf_counter()
    for lot in ready:
        for at in range(0, len(lot), PARTITIONS):
            for keys in lot[at : at + PARTITIONS]:
                outbox.add(TOUCH, dict.fromkeys(keys, 1), ())
            turn()  # cuts these into one pack for each partition
        while outbox:
            turn()
            if outbox:
                time.sleep(TURN_S)
    spent = time.process_time() - cpu, time.perf_counter() - began
    link.close()
    return spent


def sent_by_http(url, size, packs):
    """The same by requests of a program that has no client of ours: one request for each pack."""
    host = urlsplit(url).netloc
    bodies = [
        "".join(f'{{"key": "{key.decode()}", "kind": "touch"}}\n' for key in keys)
        for lot in lots(size, packs)
        for keys in lot
    ]
    cpu, began = time.process_time(), time.perf_counter()
    for body in bodies:
        while not _is_taken(host, body):  # 503: there is no room now
            assert time.perf_counter() < began + WITHIN_S, f"{url} does not take the hints"
    return time.process_time() - cpu, time.perf_counter() - began


def _is_taken(host, body):
    connection = HTTPConnection(host)
    connection.request("POST", "/v1/hints", body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status == 202


# --- the ways -------------------------------------------------------------------------------------------------


class Ways:
    """The servers, and a fresh address for each measurement."""

    def __init__(self, stack):
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.redis = stack.enter_context(RedisServer())
        self.kafka = stack.enter_context(KafkaServer())
        self.postgres = PostgresServer()
        stack.callback(self.postgres.remove)
        self.postgres.start()

    def address(self, way):
        name = f"q{uuid4().hex[:12]}"
        if way == "kafka":
            kafka_topics.done(kafka_topics.create(self.kafka.admin, name, partitions=PARTITIONS))
        return {
            "unix": f"unix://{self.folder}/{name}",
            "tcp": f"tcp://127.0.0.1:{free_port()}",
            "streams": f"{self.redis.url}?stream={name}&{OPTIONS}",
            "sqlite": f"sqlite:///{self.folder}/{name}.db?{OPTIONS}",
            "postgresql": f"{self.postgres.url()}?table={name}&{OPTIONS}",
            "kafka": f"kafka://{self.kafka.bootstrap}/{name}",
        }[way]


WAYS = ("unix", "tcp", "http", "streams", "sqlite", "postgresql", "kafka")


def measured(ways, way, size, packs):
    """ns of CPU for a hint: in, and out; and hints a second. By HTTP, a collector is between, and its CPU is part of `out`."""
    if way == "http":
        return through_a_collector(ways, size, packs)
    url = ways.address(way)
    with child(__file__, "read", url, str(packs)) as reader:
        cpu, seconds = sent_by_link(url, size, packs)
        out = json.loads(reader.stdout.readline())
    hints = size * packs
    return cpu / hints * 1e9, out / hints * 1e9, hints / seconds


def through_a_collector(ways, size, packs):
    behind, front = ways.address("unix"), f"http://127.0.0.1:{free_port()}"
    arguments = ("-m", "cacheupdater", "collect", "--queue", behind, "--listen", front)
    with child(__file__, "read", behind, "1000000000"), child(*arguments) as collector:
        before = cpu_of(collector.pid)
        cpu, seconds = sent_by_http(front, size, packs)
        out = cpu_of(collector.pid) - before
    hints = size * packs
    return cpu / hints * 1e9, out / hints * 1e9, hints / seconds


def cpu_of(pid):
    """The seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(sizes=SIZES, rounds=ROUNDS):
    """The rows for `build/bench.json`."""
    found = defaultdict(list)
    with ExitStack() as stack:
        rig.pin(0)
        ways = Ways(stack)
        rig.pin(-1)
        for _ in range(rounds):
            for size, packs in sizes.items():
                for way in WAYS:
                    found[way, size].append(measured(ways, way, size, packs))
    return [rowed(way, size, found) for size in sizes for way in WAYS]


def rowed(way, size, found):
    mine, unix = found[way, size], found["unix", size]
    ratios = [(a[0] + a[1]) / (b[0] + b[1]) for a, b in zip(mine, unix, strict=True)]
    into, out, rate = (statistics.median(each) for each in zip(*mine, strict=True))
    method = (
        f"CPU of a hint in and out / by unix socket, packs of {size}: {into:.0f} ns in, {out:.0f} ns out; "
        f"{rate:,.0f} hints/s; median of {len(mine)} rounds"
    )
    return row(f"P16-{way}-{size}", statistics.median(ratios), None, method=method)


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(sys.argv[2], int(sys.argv[3])))
    else:
        for each in run():
            print(each)
