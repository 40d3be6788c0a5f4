"""The client straight to streams in a real Redis: every hint arrives in its partition, and no fault of that Redis reaches the
application.

The tests read the streams back and decode them. The depot of an updater reads what a client has sent. Processes end within
their bound and print nothing.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from itertools import count

import pytest
import redis
from depots.redis_world import RedisWorld
from suite.pace import PATIENCE_S, soonest

from cacheupdater.local.redis_cluster import Migration
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import outbox
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, decode_pack, partition_of
from cacheupdater_client.sender import EXIT_S, Sender

ENCODER = redis.Redis().get_encoder()
PROGRAM = """
import atexit, time
atexit.register(lambda: sys.argv[-1] == 'timed' and print(time.monotonic(), flush=True))  # the last of all
import asyncio, os, sys, threading
import cacheupdater_client as cu
from cacheupdater_client import Redis
from cacheupdater_client.asyncio import Redis as AsyncRedis
redis_url, emit = sys.argv[1:3]
"""
STRICT = [
    "-Werror",
    "-Wignore::ResourceWarning",  # redis-py leaves the parent's sockets to the collector in a forked child
    "-Wignore:This process:DeprecationWarning",  # Python 3.12 and later at any fork beside threads
]
OPTIONS = "?stream=hints&partitions=6"
PATIENT = """
from cacheupdater_client import sender
from cacheupdater_client.transports import redis_nodes
redis_nodes.ANSWER_S = 5.0
sender.EXIT_S = sender.sender._exit_left = 30.0
"""
"""For programs of which every hint is counted once: a hint whose answer comes late is sent again."""


@pytest.fixture
def sender():
    sender = Sender()
    yield sender
    sender.close(1)


@pytest.fixture
def buffer_to(sender):
    return lambda url, only=(): sender.target(url, only).buffer(ENCODER)


class Ledger:
    """What is in the streams, decoded."""

    def __init__(self, client, partitions=6):
        self.hints = {kind: Counter() for kind in (TOUCH, MISS, CHANGE)}
        self.misplaced = []
        for partition in range(partitions):
            for stream in streams.keys_of("hints", partition)[1:]:
                for _, entry in client.xrange(stream):
                    self._note(partition, decode_pack(entry[b"pack"]))

    def _note(self, partition, pack):
        self.misplaced += [key for key in pack.keys if partition_of(key, 6) != partition]
        for key, times in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
            self.hints[pack.kind][key] += times


def ledger(url):
    with redis.Redis.from_url(url) as client:
        return Ledger(client)


def names(*groups, size=100):
    return {f"p:{group}:{number}".encode(): 1 for group in groups for number in range(size)}


def eventually(condition, timeout=PATIENCE_S):
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def target_of(sender):
    (target,) = sender.stats()["targets"].values()
    return target


def run(program, *arguments, before=""):
    """Runs a program in a clean interpreter; its output. It may print nothing else."""
    source = before + PROGRAM + textwrap.dedent(program)
    command = [sys.executable, *STRICT, "-c", source, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# --- what arrives -------------------------------------------------------------------------------------------


def emit_all(buffer):
    emitted = {kind: Counter() for kind in (TOUCH, MISS, CHANGE)}
    for number in range(10_000):
        kind, key = (MISS, CHANGE, *[TOUCH] * 8)[number % 10], f"product:{number * 7919 % 5000}"
        buffer.add(kind, key)
        emitted[kind][key.encode()] += 1
    return emitted


@pytest.mark.usefixtures("patient_client")
def test_all_hints_arrive_each_in_its_partition(redis_url, buffer_to, sender):
    emitted = emit_all(buffer_to(redis_url + OPTIONS))
    sender.close(60)
    assert (sender.stats()["delivered"], sender.stats()["dropped"]) == (10_000, {})
    found = ledger(redis_url)
    assert found.hints == emitted
    assert found.misplaced == []


@pytest.mark.usefixtures("patient_client")
def test_all_hints_arrive_in_a_cluster(redis_cluster, buffer_to, sender):
    with_a_dead_seed = redis_cluster.url.replace("//", "//127.0.0.1:1,")
    emitted = emit_all(buffer_to(with_a_dead_seed + OPTIONS))
    sender.close(60)
    assert sender.stats()["delivered"] == 10_000
    nodes = [redis.cluster.ClusterNode("127.0.0.1", node.port) for node in redis_cluster.nodes]
    with redis.RedisCluster(startup_nodes=nodes) as client:
        assert Ledger(client).hints == emitted


def test_hints_arrive_where_a_slot_of_the_cluster_has_moved(redis_cluster, buffer_to, sender):
    buffer = buffer_to(redis_cluster.url + OPTIONS)
    buffer.add(CHANGE, "k:1")
    assert eventually(lambda: sender.stats()["delivered"] == 1)
    partition = partition_of(b"k:1", 6)
    owner = redis_cluster.owner(f"{{hints:{partition}}}")
    other = next(node for node in redis_cluster.primaries() if node is not owner)
    move = Migration(redis_cluster, redis.crc.key_slot(f"hints:{partition}".encode()), owner, other)
    move.begin()
    move.move_keys()
    move.finish()
    buffer.add(CHANGE, "k:1")
    assert eventually(lambda: sender.stats()["delivered"] == 2)


@pytest.mark.usefixtures("patient_client")
def test_hints_go_to_the_new_primary_after_a_failover(redis_sentinels, buffer_to, sender):
    emit = f"{redis_sentinels.url}{OPTIONS}"
    buffer = buffer_to(emit)
    buffer.add(CHANGE, "k:1")
    assert eventually(lambda: sender.stats()["delivered"] == 1)
    before = redis_sentinels.primary()
    after = redis_sentinels.failover()
    redis_sentinels.demote(before)
    buffer.add(CHANGE, "k:2")
    assert eventually(lambda: sender.stats()["delivered"] == 2)
    assert ledger(after.url).hints[CHANGE][b"k:2"] == 1


@pytest.mark.usefixtures("patient", "patient_client")
async def test_the_depot_of_an_updater_reads_what_a_client_has_sent(redis_url, buffer_to, sender):
    world = RedisWorld(redis_url, redis.asyncio.Redis.from_url(redis_url), partitions=4)
    depot = await world.depot()
    buffer = buffer_to(f"{redis_url}?stream=hints")
    buffer.fill("p:1", 12)
    buffer.add(CHANGE, "p:1")
    sender.close(60)
    partition = partition_of(b"p:1", 4)
    packs = [decode_pack(each.payload) for each in (await depot.read({partition: 0}, 10))[partition]]
    assert sorted((pack.kind, pack.keys, list(pack.tokens)) for pack in packs) == [
        (TOUCH, [b"p:1"], [12]),
        (CHANGE, [b"p:1"], []),
    ]
    await world.close()


def test_the_rights_that_a_client_needs_are_those_that_the_depot_names(redis_server, buffer_to, sender):
    rights = "~{hints* +@connection +evalsha +script|load +time +hget +hset +hincrby +xadd +xlen +xtrim"
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "clerk", "on", ">secret", "-@all", *rights.split())
        buffer = buffer_to(redis_server.url.replace("//", "//clerk:secret@") + OPTIONS)
        buffer.add(CHANGE, "p:1")
        assert eventually(lambda: sender.stats()["delivered"] == 1)
        admin.execute_command("ACL", "SETUSER", "clerk", "-xadd")
        buffer.add(CHANGE, "p:2")
        said = "this Redis user may not add to the streams"
        assert eventually(lambda: target_of(sender)["trouble"] == said)
        admin.execute_command("ACL", "SETUSER", "clerk", "+xadd")
        assert eventually(lambda: sender.stats()["delivered"] == 2)


def test_an_instrumented_process_leaves_no_hints_about_the_streams_themselves(redis_url):
    """The cache and the streams are in one Redis, and every client of redis-py in the process leaves hints."""
    printed = run(
        """
        import redis
        cu.instrument(emit=emit)
        client = redis.Redis.from_url(redis_url)
        for n in range(100): client.get(f'p:own:{n}')
        while cu.stats()['delivered'] < 100: time.sleep(0.01)
        time.sleep(0.5)
        print(cu.stats()['emitted'])
        """,
        redis_url, redis_url + OPTIONS, before=PATIENT,
    )  # fmt: skip
    assert int(printed) == 100
    assert ledger(redis_url).hints[MISS] == names("own")


# --- faults -------------------------------------------------------------------------------------------------


class Load:
    """A thread that changes ever new keys."""

    def __init__(self, buffer):
        self._buffer = buffer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = []

    def _run(self):
        for number in count():
            if self._ended.wait(0.001):
                return
            self._buffer.add(CHANGE, f"k:{number}")
            self.sent.append(b"k:%d" % number)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def kill_under_load(server, buffer, sender):
    """The keys that were sent, and how many hints Redis had acknowledged when it died."""
    with Load(buffer) as load:
        assert eventually(lambda: sender.stats()["delivered"] > 100)
        server.kill()
        assert eventually(lambda: target_of(sender)["trouble"])
        acknowledged = sender.stats()["delivered"]
        server.start()
        assert eventually(lambda: sender.stats()["delivered"] > acknowledged + 100)
    sender.close(60)
    stats = sender.stats()
    assert (stats["delivered"], stats["dropped"]) == (len(load.sent), {})
    return load.sent, acknowledged


def test_a_redis_killed_under_load_loses_only_what_it_had_acknowledged(redis_server, buffer_to, sender):
    sent, acknowledged = kill_under_load(redis_server, buffer_to(redis_server.url + OPTIONS), sender)
    lost = set(sent) - ledger(redis_server.url).hints[CHANGE].keys()
    assert len(lost) <= acknowledged
    assert lost == set(sent[: len(lost)])


def test_a_redis_that_writes_each_entry_to_its_disk_loses_nothing_when_it_is_killed(buffer_to, sender):
    with RedisServer(options=["--appendonly", "yes", "--appendfsync", "always"]) as server:
        sent, _ = kill_under_load(server, buffer_to(server.url + OPTIONS), sender)
        assert ledger(server.url).hints[CHANGE].keys() == set(sent)


def test_hints_wait_while_redis_is_at_its_maxmemory_and_what_the_outbox_drops_is_counted(
    redis_server, buffer_to, sender, monkeypatch
):
    monkeypatch.setattr(outbox, "KEYS_MAX", 1000)
    buffer = buffer_to(redis_server.url + OPTIONS)
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.config_set("maxmemory", 1)
        for number in range(100):
            buffer.add(CHANGE, f"k:{number}")
        for number in range(5000):
            buffer.touch(f"p:{number}")
        assert eventually(lambda: "maxmemory" in target_of(sender)["trouble"])
        assert eventually(lambda: sender.stats()["dropped"] == {"full": 4100})
        assert (sender.stats()["waiting"], sender.stats()["delivered"]) == (1000, 0)
        admin.config_set("maxmemory", 0)
        assert eventually(lambda: sender.stats()["delivered"] == 1000)
    assert len(ledger(redis_server.url).hints[CHANGE]) == 100, "changes go last"


def test_a_redis_that_hangs_costs_no_read_any_time_and_gets_the_hints_later(redis_url, redis_server, sender):
    import cacheupdater_client as cu

    emit = redis_server.url + OPTIONS
    with cu.Redis.from_url(redis_url, emit=emit) as client:
        client.get("p:0")
        assert eventually(lambda: cu.stats()["targets"][emit]["delivered"] == 1)
        redis_server.pause()

        def read():
            for number in range(200):
                client.get(f"p:{number}")

        soonest(read, 0.4)  # less than one answer of the streams' Redis would have to be waited for
        assert eventually(lambda: "time" in cu.stats()["targets"][emit]["trouble"].lower())
        redis_server.resume()
        assert eventually(lambda: cu.stats()["targets"][emit]["waiting"] == 0)
    assert cu.stats()["targets"][emit]["dropped"] == {}
    assert ledger(redis_server.url).hints[MISS].keys() == {b"p:%d" % number for number in range(200)}


# --- processes ----------------------------------------------------------------------------------------------


def test_threads_and_event_loops_deliver_all_at_exit(redis_url):
    run(
        """
        async def main(name):
            async with AsyncRedis.from_url(redis_url, emit=emit) as r:
                await asyncio.gather(*(r.get(f'p:{name}:{n}') for n in range(100)))
        other = threading.Thread(target=lambda: asyncio.run(main('thread')))
        other.start()
        asyncio.run(main('first'))
        other.join()
        asyncio.run(main('last'))
        """,
        redis_url, redis_url + OPTIONS, before=PATIENT,
    )  # fmt: skip
    assert ledger(redis_url).hints[MISS] == names("thread", "first", "last")


@pytest.mark.parametrize("pause", [0, 0.3])
def test_fork_delivers_parents_and_childrens_hints(redis_url, pause):
    """Forked before and after the first connection, which stays the parent's."""
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        for n in range(50): r.get(f'p:parent:{n}')
        time.sleep(float(sys.argv[3]))
        children = []
        for child in range(3):
            pid = os.fork()
            if not pid:
                for n in range(100): r.get(f'p:child{child}:{n}')
                cu.close(30)
                assert cu.stats()['dropped'] == {}, cu.stats()
                sys.exit(0)
            children.append(pid)
        for n in range(50, 100): r.get(f'p:parent:{n}')
        for pid in children: assert os.waitpid(pid, 0)[1] == 0
        cu.close(30)
        """,
        redis_url, redis_url + OPTIONS, str(pause), before=PATIENT,
    )  # fmt: skip
    assert ledger(redis_url).hints[MISS] == names("parent", "child0", "child1", "child2")


def test_greenlets_of_a_process_that_gevent_has_patched_deliver_all(redis_url):
    program = """
        def work(name):
            r = Redis.from_url(redis_url, emit=emit)
            for n in range(100): r.get(f'p:{name}:{n}')
        gevent.get_hub().threadpool.apply(work, ('thread',))
        gevent.joinall([gevent.spawn(work, 'greenlet')], raise_error=True)
        until = time.monotonic() + 30
        while cu.stats()['delivered'] < 200 and time.monotonic() < until: gevent.sleep(0.01)
        """
    patched = "import gevent.monkey\ngevent.monkey.patch_all()\nimport gevent\n"
    run(program, redis_url, redis_url + OPTIONS, before=patched + PATIENT)
    assert ledger(redis_url).hints[MISS] == names("thread", "greenlet")


@pytest.mark.parametrize("how", ["hung first", "hung", "dead"])
def test_exit_ends_within_its_bound_whatever_redis_does(redis_url, redis_server, how):
    program = """
        import signal
        r = Redis.from_url(redis_url, emit=emit)
        server, how = int(sys.argv[3]), sys.argv[4]
        if how != 'hung first':
            r.get('p:0')
            while not cu.stats()['delivered']: time.sleep(0.01)
            os.kill(server, signal.SIGSTOP if how == 'hung' else signal.SIGKILL)
        for n in range(1000): r.get(f'p:{n}')
        r.set('p:1', 1)
        time.sleep(0.1)
        print(time.monotonic())
        """

    def end():
        redis_server.resume()
        redis_server.kill()
        redis_server.start()
        if how == "hung first":
            redis_server.pause()
        printed = run(program, redis_url, redis_server.url + OPTIONS, str(redis_server.pid), how, "timed")
        began, ended = map(float, printed.split())
        return ended - began

    soonest(end, EXIT_S + 0.5)
