"""The link to Kafka: acknowledgements in any order, refusals, growth, linger, and an end whatever hangs.

The test plays the producer behind the link. The loop is the real one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import socket
import threading
import time
import warnings

import pytest
from suite.pace import PATIENCE_S, soonest

from cacheupdater_client.outbox import WINDOW_FRAMES, Outbox
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, decode_pack, partition_of
from cacheupdater_client.transports import link_to
from cacheupdater_client.transports.kafka import (
    BATCH_BYTES,
    HOPE_S,
    STALL_S,
    KafkaLink,
)
from cacheupdater_client.transports.linger import ENOUGH, LINGER_S, PACE_S
from cacheupdater_client.transports.pump import LEAVE_S, Pump
from cacheupdater_client.transports.stream import BACKOFF_MAX_S


class FakeProducer:
    """Takes what it is given when the test says so; the one of the link's present connection is `made[-1]`."""

    def __init__(self, topic):
        self.topic = topic
        self.said = ""
        self.stopped = False

    @property
    def partitions(self):
        return self.topic.partitions

    async def start(self):
        await self.topic.starting()

    async def deliver(self, partition, packs):
        answer = asyncio.get_running_loop().create_future()
        self.topic.under_way.append((partition, packs, answer))
        self.topic.batches.append((partition, packs))
        for rule in self.topic.rules:
            verdict = rule(partition, packs)
            if isinstance(verdict, Exception):
                raise verdict
            if verdict is not None:
                self.topic.take(partition, packs, verdict)
                return verdict
        taken = await answer
        self.topic.take(partition, packs, taken)
        return taken

    async def stop(self):
        self.stopped = True
        await self.topic.stopping()


class FakeTopic:
    """What all producers of a test see."""

    def __init__(self, partitions=4):
        self.partitions = partitions
        self.under_way, self.batches, self.taken, self.made = [], [], [], []
        self.rules = [
            lambda *_: True
        ]  # what `deliver` answers at once: bool, an exception, or None for "not yet"
        self.starting = self.stopping = self.at_once

    async def at_once(self):
        """No wait."""

    async def never(self):
        await asyncio.Event().wait()

    def take(self, partition, packs, taken):
        if taken:
            self.taken += [(partition, decode_pack(pack)) for pack in packs]

    def __call__(self, _):
        self.made.append(FakeProducer(self))
        return self.made[-1]

    def hints(self):
        found = {}
        for _, pack in self.taken:
            for key, count in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
                found[key] = found.get(key, 0) + count
        return found


class Story:
    """A link, its outbox and a clock."""

    def __init__(self, topic):
        self.topic, self.outbox, self.now = topic, Outbox(), 100.0
        self.link = KafkaLink(None, make=topic)

    def turn(self, after=0.01):
        self.now += after
        return self.link.turn(self.outbox, self.now, 1)

    def turns(self, until, limit=200):
        for _ in range(limit):
            if until():
                return True
            self.turn()
        return until()

    def add(self, kind, *keys):
        self.outbox.add(kind, dict.fromkeys(keys, 1))

    def answer(self, at, taken=True):
        self.topic.under_way[at][2].set_result(taken)


@pytest.fixture
def topic():
    return FakeTopic()


@pytest.fixture
def story(topic):
    it = Story(topic)
    yield it
    it.link.close()


def names(size, prefix=b"p:"):
    return [prefix + b"%d" % number for number in range(size)]


def test_link_delivers_each_key_to_its_partition(story, topic):
    story.add(CHANGE, *names(500))
    assert story.turns(lambda: not story.outbox)
    assert story.link.connected
    assert topic.hints() == dict.fromkeys(names(500), 1)
    assert all(partition_of(key, 4) == partition for partition, pack in topic.taken for key in pack.keys)


def test_link_does_not_connect_while_there_is_nothing_to_send(story, topic):
    assert not any(story.turn() for _ in range(10))
    assert topic.made == []


def test_link_of_a_curious_outbox_learns_the_partitions_at_once(story, topic):
    story.outbox = Outbox(curious=True)
    assert story.turns(lambda: story.link.connected)
    assert story.outbox.hello.partitions == 4


def test_acknowledgements_out_of_order_free_the_longest_prefix(story, topic):
    topic.rules = [lambda *_: None]
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: len(topic.under_way) == 4)
    for at in (3, 1):
        story.answer(at)
        story.turn()
    assert story.outbox.delivered == 0
    story.answer(0)
    story.turn()
    first_two = sum(len(decode_pack(packs[0]).keys) for _, packs, _ in topic.under_way[:2])
    assert story.outbox.delivered == first_two
    story.answer(2)
    story.turn()
    assert not story.outbox
    assert story.outbox.delivered == 100


def test_failed_frame_brings_a_new_connection_and_all_that_was_not_acknowledged_again(story, topic):
    topic.rules = [lambda partition, _: ConnectionError("leader is gone") if partition == 2 else True]
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: story.link.trouble)
    assert story.link.trouble == "leader is gone"
    assert not story.link.connected
    assert story.outbox.waiting > 0
    topic.rules = [lambda *_: True]
    assert story.turns(lambda: not story.outbox)
    assert len(topic.made) == 2
    assert topic.made[0].stopped
    assert topic.hints().keys() == set(names(100))
    assert story.link.trouble == ""


def test_failures_back_off_no_further_than_to_a_second(story, topic):
    topic.rules = [lambda *_: PermissionError("not allowed")]
    story.add(CHANGE, b"p:1")
    for _ in range(1000):
        story.turn()
    attempts = len(topic.made)
    assert 10 < attempts < 40
    topic.rules = [lambda *_: True]
    healed = story.now
    assert story.turns(lambda: not story.outbox)
    assert story.now - healed < BACKOFF_MAX_S + 0.1
    assert story.outbox.dropped == {}


def test_frame_that_is_refused_for_ever_is_dropped_alone_and_counted(story, topic):
    def refuses_long(_, packs):
        return all(b"x" * 100 not in pack for pack in packs)

    topic.partitions = 1
    topic.rules = [refuses_long]
    story.add(CHANGE, b"p:1", b"p:2")
    story.turn()
    story.add(MISS, b"p:" + b"x" * 100)
    story.add(TOUCH, b"p:3")
    assert story.turns(lambda: not story.outbox)
    assert topic.hints() == {b"p:1": 1, b"p:2": 1, b"p:3": 1}
    assert story.outbox.dropped == {"refused": 1}
    assert (story.outbox.delivered, story.outbox.waiting) == (3, 0)
    assert len(topic.made) == 1
    assert any(len(packs) == 3 for _, packs in topic.batches)


def test_link_says_what_the_topic_refuses(story, topic):
    topic.rules = [lambda *_: False]
    story.add(CHANGE, b"p:1")
    assert story.turns(lambda: not story.outbox)
    assert "refuses" in story.link.trouble


def test_more_partitions_are_greeted_and_what_is_under_way_is_cut_anew(story, topic):
    topic.rules = [lambda *_: None]
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: len(topic.under_way) == 4)
    topic.rules, topic.partitions = [lambda *_: True], 7
    assert story.turns(lambda: not story.outbox)
    assert {partition for partition, _ in topic.taken} == set(range(7))
    assert all(partition_of(key, 7) == partition for partition, pack in topic.taken for key in pack.keys)
    assert topic.hints() == dict.fromkeys(names(100), 1)
    assert len(topic.made) == 1


def test_late_answers_to_an_older_plan_are_not_counted(story, topic):
    topic.rules = [lambda *_: None]
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: len(topic.under_way) == 4)
    topic.partitions = 2
    assert story.turns(lambda: len(topic.under_way) == 6)
    for at in range(4):
        story.answer(at)
    story.turn()
    assert story.outbox.delivered == 0
    for at in (4, 5):
        story.answer(at)
    assert story.turns(lambda: not story.outbox)


def test_topic_that_is_gone_costs_the_connection_and_no_hint(story, topic):
    story.add(CHANGE, b"p:1")
    assert story.turns(lambda: not story.outbox)
    topic.partitions = 0
    story.link._destination = type("Where", (), {"address": type("Address", (), {"topic": "hints"})})
    story.add(CHANGE, b"p:2")
    story.turn()
    assert story.link.trouble == "topic hints is gone"
    topic.partitions = 3
    assert story.turns(lambda: not story.outbox)


def test_touches_linger_until_there_are_enough(story, topic):
    story.add(TOUCH, b"p:first")
    assert story.turns(lambda: not story.outbox)
    began = story.now
    for number in range(20):
        story.add(TOUCH, b"p:%d" % number)
        story.turn()
    assert story.outbox.delivered == 1
    story.add(TOUCH, *names(4 * ENOUGH))
    assert story.turns(lambda: not story.outbox)
    assert story.now - began < LINGER_S
    assert len(topic.batches) == 1 + 4
    assert story.now - began >= PACE_S


def test_touches_that_stay_few_go_after_the_linger(story):
    story.add(TOUCH, b"p:first")
    assert story.turns(lambda: not story.outbox)
    story.add(TOUCH, b"p:1")
    began = story.now
    assert story.turns(lambda: not story.outbox)
    assert LINGER_S - 0.1 <= story.now - began <= LINGER_S + 0.02


@pytest.mark.parametrize("kind", [CHANGE, MISS])
def test_changes_and_misses_do_not_linger(story, kind):
    story.add(TOUCH, b"p:first")
    assert story.turns(lambda: not story.outbox)
    story.add(TOUCH, b"p:1")
    story.add(kind, b"p:2")
    story.turn()
    assert (story.outbox.delivered, story.outbox.touches) == (2, 1)


def test_nothing_lingers_while_the_sender_is_closed(story):
    story.add(TOUCH, b"p:first")
    assert story.turns(lambda: not story.outbox)
    story.add(TOUCH, b"p:1")
    story.outbox.last_call = True
    story.turn()
    assert not story.outbox


def test_backlog_of_touches_flows_at_the_quick_pace(story, topic):
    topic.partitions = 1
    story.outbox.add(TOUCH, dict.fromkeys(names(99_000), 1))
    began = story.now
    assert story.turns(lambda: not story.outbox)
    assert story.now - began < PACE_S
    assert topic.hints() == dict.fromkeys(names(99_000), 1)


def test_window_bounds_what_the_producer_is_given(story, topic):
    topic.rules = [lambda *_: None]
    for round_ in range(40):
        story.add(CHANGE, *names(2000, b"%d:" % round_))
        story.turn()
    assert sum(len(packs) for _, packs in topic.batches) == WINDOW_FRAMES
    assert story.outbox.waiting == 80_000


def test_frames_of_a_partition_go_together_up_to_a_size(story, topic):
    topic.partitions = 1
    story.outbox.add(CHANGE, dict.fromkeys(names(9000, b"p:" + b"x" * 10), 1))
    assert story.turns(lambda: not story.outbox)
    sizes = [sum(map(len, packs)) for _, packs in topic.batches]
    assert max(sizes) <= BATCH_BYTES
    assert max(len(packs) for _, packs in topic.batches) > 1


def test_turn_ends_soon_whatever_hangs(story, topic):
    topic.rules = [lambda *_: None]
    topic.starting = topic.never
    story.add(CHANGE, b"p:1")

    def take_turns():
        for _ in range(20):
            story.turn()

    soonest(take_turns, 1)
    assert story.outbox.waiting == 1


def test_link_does_not_hurry_for_a_broker_that_hangs(story, topic):
    topic.rules = [lambda *_: None]
    story.add(CHANGE, b"p:1")
    assert story.turns(lambda: topic.under_way)
    assert story.turn()
    story.now += HOPE_S
    assert not story.turn()
    assert story.link.connected


def test_link_leaves_a_broker_that_hangs_for_long(story, topic):
    topic.rules = [lambda *_: None]
    story.add(CHANGE, b"p:1")
    assert story.turns(lambda: topic.under_way)
    story.now += STALL_S
    story.turn()
    assert story.link.trouble == "the brokers do not answer"
    topic.rules = [lambda *_: True]
    assert story.turns(lambda: not story.outbox)


def test_close_ends_within_its_bound_whatever_hangs(story, topic):
    topic.rules, topic.stopping = [lambda *_: None], topic.never
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: topic.under_way)
    soonest(story.link.close, PATIENCE_S / 2, tries=1)
    assert topic.made[0].stopped
    assert all(answer.cancelled() for _, _, answer in topic.under_way)


async def test_link_works_in_a_thread_whose_event_loop_runs(topic):
    """`close` called within a coroutine takes turns there."""
    story = Story(topic)
    story.add(CHANGE, *names(100))
    assert story.turns(lambda: not story.outbox)
    story.link.close()
    assert topic.made[0].stopped
    assert asyncio.current_task() is not None


def test_forked_child_leaves_the_connection_alone(story, topic):
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    topic.rules = [lambda *_: None]
    story.add(CHANGE, b"p:1")
    assert story.turns(lambda: topic.under_way)
    story.link._pump._loop.add_reader(ours.fileno(), lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a fork beside threads
        child = os.fork()
    if not child:
        failed = 1
        try:
            story.link.close()
            failed = int(topic.made[0].stopped or ours.send(b"child") != 5)
        except BrokenPipeError:  # as it should be: the child's copy is dead
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0
    ours.send(b"parent")
    assert theirs.recv(100) == b"parent"
    story.answer(0)
    assert story.turns(lambda: not story.outbox)
    story.link._pump._loop.remove_reader(ours.fileno())
    ours.close()
    theirs.close()


def test_pump_looks_up_names_in_threads_that_nobody_waits_for():
    pump, seen = Pump(), []

    async def look_up():
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: seen.append(threading.current_thread().daemon))
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    pump.start(look_up())
    pump.run(5)
    assert seen == [True]
    assert (pump.busy, pump.error) == (False, None)

    async def nothing():
        pass

    pump.close(nothing)


def test_pump_cuts_its_connections_though_the_process_stood_still_while_it_left():
    """All times of the end have passed at once. A connection that stays open would print a warning when it is collected."""
    pump, opened = Pump(), []
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def connect():
            loop = asyncio.get_running_loop()
            opened.append((await loop.create_connection(asyncio.Protocol, *server.getsockname()))[0])

        async def stands_still():
            time.sleep(4 * LEAVE_S)  # noqa: ASYNC251  as a process that is not given the processor
            await asyncio.sleep(PATIENCE_S)

        pump.start(connect())
        pump.run(PATIENCE_S)
        pump.close(stands_still)
    [transport] = opened
    assert transport.get_extra_info("socket").fileno() == -1


def test_pump_leaves_a_lookup_that_hangs_behind(capfd, caplog):
    pump, looking, found = Pump(), threading.Event(), threading.Event()

    def hang():
        looking.set()
        found.wait(PATIENCE_S)

    async def look_up():
        await asyncio.get_running_loop().run_in_executor(None, hang)

    async def nothing():
        pass

    pump.start(look_up())
    pump.run(0.01)
    assert looking.wait(5)
    soonest(lambda: pump.close(nothing), PATIENCE_S / 2, tries=1)
    found.set()
    time.sleep(0.05)  # the thread has an answer for a loop that is closed
    assert capfd.readouterr().err == ""
    ours = (
        record for record in caplog.records if record.name == "asyncio"
    )  # a sender of another test may warn
    assert [record for record in ours if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("kafka://host/t", "host:9092"),
        ("kafka://h:1/", "names no topic"),
        ("kafka://h:1/t?group=g", "an unknown option; there are acks"),
        ("kafka://h:1/t?acks=2", "0, 1, all"),
        ("kafka://h:1/t?compression=lz4", "zstd, none"),
        ("kafka://h:1/t?sasl=PLAIN&username=u&password_file=f", "tls=true"),
    ],
)
def test_wrong_url_is_refused_when_the_client_is_made(url, told):
    with pytest.raises(ValueError, match=told) as caught:
        link_to(url)
    assert "emit='kafka://" in str(caught.value)


@pytest.mark.parametrize("missing", ["aiokafka", "cramjam"])
def test_missing_library_is_named_with_what_installs_it(missing, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(ValueError, match=r"pip install 'aiokafka\[zstd\]>=0.14,<0.15' 'zstandard>=0.23'"):
        link_to("kafka://h:1/t")


def test_brokers_may_be_named_by_more_than_one_ipv6_address(monkeypatch):
    """Newer Pythons' urlsplit takes such an address for a broken one."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: find(name) or True
    )  # in the base install too
    assert link_to("kafka://[::1]:9092,[::2]:9092/t")
