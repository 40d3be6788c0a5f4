"""A collector with a spill, as an operator runs it: real processes and disks, kill -9, a queue that goes and comes back."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from brokers.records import records_of
from hints.peer import HintPeer
from hints.server import HintServer
from live.collector_process import CollectorProcess
from live.updater_process import ROOT, eventually

from cacheupdater.adapters.spill_files import SpillFiles
from cacheupdater.local import kafka_topics
from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port
from cacheupdater_client.protocol.wire import CHANGE, TOUCH, decode_pack, encode_pack

MIB = 1024 * 1024
SUPPORT = Path(__file__).parents[1] / "support"
KEYS = 20  # of a pack
PACKS = 50
PORTION = 0.9  # of the seconds until a queue counts as away: some kills come before that, and some after


@pytest.fixture
def collector(sockets):
    """A collector with a spill, and the port of its queue."""
    port = free_port()
    made = CollectorProcess(
        sockets / "c", f"tcp://127.0.0.1:{port}", "--spill", str(sockets / "spill"), "--spill-rate", "20000/s"
    )
    made.queue_port = port
    yield made
    made.kill()
    print(f"--- log ---\n{made.log[-8000:]}")


def keys(number):
    return [b"p:%d:%d" % (number, each) for each in range(KEYS)]


def segments(sockets):
    return list((sockets / "spill").glob("*.segment"))


def test_changes_of_an_outage_arrive_though_the_collector_is_killed_meanwhile(sockets, collector):
    queue = HintServer(collector.queue_port)
    with queue:
        collector.start()
    with HintPeer(collector.socket, timeout=60) as peer:
        for number in range(PACKS):
            peer.hint_unheard(CHANGE, *keys(number))
        peer.wait()  # acknowledged, with no queue
    assert collector.metric("spill_hints") == PACKS * KEYS
    assert collector.metric("spill_bytes") == sum(each.stat().st_size for each in segments(sockets)) > 0
    assert collector.resident <= 40 * MIB
    collector.kill()
    collector.launch()
    assert not queue.hints(CHANGE)
    with queue:
        wanted = {key for number in range(PACKS) for key in keys(number)}
        assert queue.wait_until(lambda q: set(q.hints(CHANGE)) == wanted)
        eventually(lambda: not segments(sockets))
        collector.wait_ready()
        eventually(lambda: collector.metric("replayed_total") == PACKS * KEYS)
        assert collector.metric("spill_hints") == collector.metric("spill_bytes") == 0


def test_a_second_collector_on_the_same_directory_is_told_so(sockets, collector):
    first = SpillFiles(str(sockets / "spill"))
    collector.launch()
    assert collector.wait() == 78
    assert "another collector uses" in collector.log
    first.close()


@pytest.fixture
def small_disk(sockets):
    """A file system of 256 KiB, at the directory of the spill."""
    folder = sockets / "spill"
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)


def test_a_disk_that_is_full_costs_no_change_and_the_collector_goes_on(sockets, small_disk, collector):
    queue = HintServer(collector.queue_port)
    with queue:
        collector.start()
    large = [[b"p:%d:%d:" % (number, each) + b"x" * 900 for each in range(100)] for number in range(10)]
    with HintPeer(collector.socket, timeout=60) as peer:
        for some in large:
            peer.hint_unheard(CHANGE, *some)
        eventually(lambda: any("spill_failed" in each for each in collector.troubles))
        eventually(lambda: collector.metric("troubles", event="spill_failed") == 1)
        with queue:
            assert queue.wait_until(lambda q: set(q.hints(CHANGE)) == {key for some in large for key in some})
            peer.wait()
    assert small_disk.exists()


@pytest.mark.prove  # a broker of its own that dies: 20 s
def test_changes_are_taken_while_kafka_is_dead_and_arrive_after_its_return(own_kafka, sockets, needs_apache):
    kafka_topics.done(kafka_topics.create(own_kafka.admin, "hints", partitions=3))
    made = CollectorProcess(
        sockets / "k", f"kafka://{own_kafka.bootstrap}/hints", "--spill", str(sockets / "spill")
    ).start()
    try:
        own_kafka.kill()
        with HintPeer(made.socket, timeout=60) as peer:
            for number in range(PACKS):
                peer.hint_unheard(CHANGE, *keys(number))
            peer.wait()
        made.kill()
        own_kafka.start()
        made.start()
        eventually(lambda: made.metric("replayed_total") >= PACKS * KEYS)
        eventually(lambda: not segments(sockets))
    finally:
        made.kill()
        print(made.log[-8000:])
    found = [decode_pack(value) for _, _, value in asyncio.run(records_of(own_kafka.bootstrap, "hints"))]
    wanted = {key for number in range(PACKS) for key in keys(number)}
    assert {key for pack in found for key in pack.keys} == wanted


class Client:
    """Sends changes and touches through one collector after another, and sends again what was not acknowledged."""

    def __init__(self, rng):
        self._rng = rng
        self._number = 0
        self._owed = []  # keys of changes
        self.changes, self.touches = set(), set()  # acknowledged

    def send(self, socket, seconds):
        """Sends for so long. Call `hear` once the collector is dead."""
        self._peer, self._frames = HintPeer(socket, timeout=60), []
        ends = time.monotonic() + seconds
        again, self._owed = self._owed, []
        for some in again:
            self._frame(CHANGE, some)
        while time.monotonic() < ends:
            self._number += 1
            self._frame(CHANGE, keys(self._number))
            if self._rng.random() < 0.3:
                self._frame(TOUCH, [b"p:t%d" % self._number])
            time.sleep(0.01)

    def _frame(self, kind, some):
        self._frames.append((kind, some))
        self._peer.pack(encode_pack(kind, 0, some))

    def hear(self):
        with self._peer as peer:
            assert peer.closed()
        for at, (kind, some) in enumerate(self._frames):
            if at >= peer.accepted:
                self._owed += [some] if kind == CHANGE else []
            else:
                (self.changes if kind == CHANGE else self.touches).update(some)


@pytest.mark.prove  # whole collectors, a second or two each
@pytest.mark.timeout(3600)
def test_kill_9_in_the_spill_and_in_the_replay_costs_only_touches_that_were_in_memory(
    sockets, collector, amount
):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    queue, client, kills = HintServer(collector.queue_port), Client(rng), amount(3, 15)
    spilled = replayed = 0
    for number in range(kills):
        with queue:
            collector.start()  # the replay begins
            if number % 2:
                time.sleep(rng.random() * 0.3)
                collector.kill()
                replayed += bool(segments(sockets))
                continue
        client.send(collector.socket, PORTION + rng.random())
        collector.kill()
        client.hear()
        spilled += bool(segments(sockets))
    with queue:
        collector.start()
        client.send(collector.socket, 0.1)
        eventually(lambda: not segments(sockets))
        eventually(lambda: collector.metric("waiting") == 0)
        collector.terminate()
        assert collector.wait() == 0
    client.hear()
    arrived = set(queue.hints(CHANGE))
    lost = len(client.touches - set(queue.hints(TOUCH)))
    print(
        f"{kills} kills, {spilled} with segments in the spill, {replayed} in the replay;"
        f" {len(client.changes)} changes acknowledged, {len(client.changes - arrived)} lost;"
        f" {len(client.touches)} touches acknowledged, {lost} lost with the memory that held them"
    )
    assert client.changes <= arrived
    assert spilled


class Killed:
    """A process of `hints.spilling`, which is killed within some milliseconds of its first line."""

    def __init__(self, what, folder, first, seconds):
        paths = os.pathsep.join(map(str, (SUPPORT, ROOT, ROOT / "client")))
        environment = {**os.environ, "PYTHONPATH": paths}  # noqa: TID251  a child inherits it
        command = [sys.executable, "-m", "hints.spilling", what, str(folder), str(first)]
        with subprocess.Popen(dying_with_us(command), stdout=subprocess.PIPE, env=environment) as process:
            self._said = process.stdout.readline()
            time.sleep(seconds)
            process.kill()
            self._said += process.stdout.read()

    @property
    def done(self):
        return b"done" in self._said

    @property
    def numbers(self):
        """What it has said, without a line that is torn."""
        return {int(line) for line in self._said.split(b"\n")[:-1] if line.isdigit()}


@pytest.mark.timeout(3600)
def test_kill_9_at_any_byte_of_the_files_costs_no_change_that_was_acknowledged(tmp_path, amount):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, folder, kills = random.Random(seed), tmp_path / "spill", amount(2, 200)
    acknowledged, arrived, torn, halves = set(), set(), 0, 0
    for number in range(kills):
        if number % 2:
            replayed = Killed("replay", folder, 0, rng.random() * 0.02)
            arrived |= replayed.numbers
            halves += not replayed.done
        else:
            acknowledged |= Killed("spill", folder, number * 1_000_000, rng.random() * 0.05).numbers
            torn += any(each.stat().st_size for each in folder.glob("*.segment"))
    while not (last := Killed("replay", folder, 0, 0.2)).done:
        arrived |= last.numbers
    arrived |= last.numbers
    lost = len(acknowledged - arrived)
    print(
        f"{kills} kills, {torn} that left segments, {halves} in the middle of a replay:"
        f" {len(acknowledged)} changes acknowledged, {lost} lost"
    )
    assert acknowledged
    assert not lost
