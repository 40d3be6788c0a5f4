"""The sender: one thread in a process, at work when there are hints, never in the application's way."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise

import pytest
import redis
from hint_server import HintServer
from pace import PATIENCE_S, soonest

from cacheupdater_client import transports
from cacheupdater_client.sender import DRAIN_S, Sender
from cacheupdater_client.wire import CHANGE, MISS, Hello, mailbox

ENCODER = redis.Redis().get_encoder()


@pytest.fixture
def sender():
    sender = Sender()
    yield sender
    sender.close(1)


@pytest.fixture
def buffer_to(sender):
    return lambda url, only=(): sender.target(url, only).buffer(ENCODER)


def eventually(condition, timeout=PATIENCE_S):
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def test_sender_delivers_within_a_drain(buffer_to, tmp_path):
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        for _ in range(5):
            buffer.touch("p:1")
        buffer.add(MISS, "p:2")
        assert server.wait_until(lambda it: it.hints() == {b"p:1": 5, b"p:2": 1})


def test_sender_brings_a_change_at_once(buffer_to, tmp_path):
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        buffer.touch("p:0")
        assert server.wait_until(lambda it: it.frames)
        numbers = count(1)

        def change():
            number = next(numbers)
            buffer.add(CHANGE, f"p:{number}")
            assert server.wait_until(lambda it: b"p:%d" % number in it.hints(CHANGE))

        soonest(change, DRAIN_S / 4, tries=100)


def test_sender_does_not_spin_when_changes_never_cease(buffer_to, sender, request):
    mailbox(request.node.name).open(Hello(1, []))
    buffer = buffer_to(f"memory://{request.node.name}")
    turns = []
    original = sender._turn
    sender._turn = lambda now: turns.append(now) or original(now)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        buffer.add(CHANGE, "p:1")
    assert all(later - earlier >= 0.0099 for earlier, later in pairwise(turns))


def test_sender_has_one_thread_for_all_targets(buffer_to, tmp_path):
    before = threading.active_count()
    with HintServer(tmp_path / "a") as a, HintServer(tmp_path / "b") as b:
        others = threading.active_count()
        for server in (a, b):
            buffer_to(server.url).touch("p:1")
        assert a.wait_until(lambda it: it.hints())
        assert b.wait_until(lambda it: it.hints())
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("cacheupdater-sender") <= 1 + before - 1
        assert others >= before


def test_sender_shares_a_buffer_among_clients_of_one_target(buffer_to):
    assert buffer_to("memory://shared") is buffer_to("memory://shared")
    assert buffer_to("memory://shared") is not buffer_to("memory://shared", (b"p:",))


def test_sender_has_one_target_for_clients_that_are_made_at_the_same_time(buffer_to, sender, monkeypatch):
    amid = threading.Barrier(2)

    class SlowLink(transports.MemoryLink):
        def __init__(self, name):
            amid.wait(5)  # both threads have found no target
            super().__init__(name)

    monkeypatch.setattr(transports, "MemoryLink", SlowLink)
    with ThreadPoolExecutor(2) as pool:
        buffers = list(pool.map(buffer_to, ["memory://nobody"] * 2))
    for buffer in buffers:
        buffer.touch("p:1")
    assert sender.stats()["targets"]["memory://nobody"]["emitted"] == 2
    assert buffer_to("memory://nobody") is buffers[0] is buffers[1]


def test_sender_makes_targets_in_a_child_that_was_forked_while_another_thread_made_one(buffer_to, sender):
    with ThreadPoolExecutor(1) as parent, ThreadPoolExecutor(1) as child:
        parent.submit(sender._naming.acquire).result()
        sender.reborn()
        assert child.submit(buffer_to, "memory://nobody").result(5) is not None


def test_sender_goes_on_when_one_target_is_down(buffer_to, tmp_path):
    with HintServer(tmp_path / "up") as server:
        buffer_to(f"unix://{tmp_path}/down").touch("p:1")
        buffer = buffer_to(server.url)
        for number in range(5):
            buffer.add(CHANGE, f"p:{number}")
            assert server.wait_until(lambda it, number=number: b"p:%d" % number in it.hints())


def test_sender_starts_again_after_its_thread_has_died(buffer_to, sender, request, caplog):
    caplog.set_level(logging.CRITICAL)
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    buffer = buffer_to(f"memory://{request.node.name}")
    buffer.touch("p:1")
    assert eventually(lambda: box.accepted == 1)

    def die(_):
        raise SystemExit

    sender._turn, turn = die, sender._turn
    assert eventually(lambda: not sender._running)
    sender._turn = turn
    buffer.touch("p:2")
    assert eventually(lambda: box.accepted == 2)


def test_sender_survives_a_fault_of_a_link(buffer_to, sender, request):
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    target = sender.target(f"memory://{request.node.name}", ())
    buffer = target.buffer(ENCODER)
    link, target._link = target._link, None
    buffer.touch("p:1")
    time.sleep(2 * DRAIN_S)
    target._link = link
    assert eventually(lambda: box.accepted == 1)


def test_close_sends_what_waits_and_the_next_hint_starts_again(buffer_to, sender, tmp_path):
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        for round_ in range(3):
            buffer.touch(f"p:{round_}")
            sender.close(5)
            assert server.hints()[b"p:%d" % round_] == 1
        assert sender.stats()["dropped"] == {}
        assert sender.stats()["delivered"] == 3


def test_close_returns_at_once_when_nobody_listens_and_counts(buffer_to, sender, tmp_path):
    buffer = buffer_to(f"unix://{tmp_path}/nobody")
    for number in range(100):
        buffer.touch(str(number))
    soonest(lambda: sender.close(60), 10, tries=1)
    assert sender.stats()["dropped"] == {"closed": 100}


class Peer:
    """A link that delivers nothing, and does something while it is asked whether it is connected."""

    trouble = ""

    def __init__(self, meanwhile):
        self._meanwhile = meanwhile

    def turn(self, *_):
        return False

    @property
    def connected(self):
        self._meanwhile()
        return False

    def close(self):
        pass


def test_close_bears_a_target_that_comes_up_meanwhile(buffer_to, sender):
    target = sender.target("memory://first", ())
    target._link = Peer(lambda: buffer_to("memory://later").touch("p:2"))
    target.buffer(ENCODER).touch("p:1")
    sender.close(5)
    assert target.stats()["dropped"] == {"closed": 1}


def test_close_leaves_a_lookup_that_hangs_and_its_hints_go_out_when_it_ends(buffer_to, sender, request):
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    target = sender.target(f"memory://{request.node.name}", ())
    looking, found, take_turn = threading.Event(), threading.Event(), target._link.turn

    def look_up(*args):
        looking.set()
        found.wait(5)
        return take_turn(*args)

    target._link.turn = look_up
    target.buffer(ENCODER).touch("p:1")
    assert looking.wait(5)
    sender.close(0.05)
    stats = sender.stats()
    found.set()
    assert (stats["waiting"], stats["dropped"]) == (1, {})
    assert eventually(lambda: box.accepted == 1)


def test_close_waits_no_longer_than_told_for_a_peer_that_hangs(buffer_to, sender, tmp_path):
    with HintServer(tmp_path / "s", acknowledges=False) as server:
        buffer, tries = buffer_to(server.url), count()

        def close():
            next(tries)
            buffer.touch("p:1")
            began = time.monotonic()
            sender.close(0.3)
            return time.monotonic() - began

        soonest(close, 0.8)
        stats = sender.stats()
    assert stats["dropped"] == {"closed": stats["emitted"]} == {"closed": next(tries)}


def test_hints_are_sent_by_close_where_no_thread_can_be_started(buffer_to, sender, tmp_path, monkeypatch):
    """As at the interpreter's shutdown since Python 3.12."""

    def refuse(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        monkeypatch.undo()
        monkeypatch.setattr(sender, "_start", lambda: None)
        buffer.touch("p:1")
        buffer.touch("p:2")
        monkeypatch.undo()
        sender.close(5)
        assert server.hints() == {b"p:1": 1, b"p:2": 1}


def test_stats_balance(buffer_to, sender, request):
    box = mailbox(request.node.name)
    box.open(Hello(1, [b"p:"]))
    buffer = buffer_to(f"memory://{request.node.name}")
    for key in ("p:1", "p:1", "other", "", "p:" + "x" * 2000):
        buffer.touch(key)
    sender.close(1)
    stats = sender.stats()
    assert stats["emitted"] == 5
    assert stats["delivered"] == 2
    assert stats["dropped"] == {"undeclared": 1, "unencodable": 1, "oversized": 1}


def test_stats_bear_a_reason_that_another_thread_adds_meanwhile(buffer_to, sender):
    buffer = buffer_to("memory://nobody")

    class Interrupted(int):
        """A count that lets the other thread run when it is looked at."""

        def __gt__(self, other):
            buffer.dropped["oversized"] += 1
            return int(self) > other

    buffer.dropped["unencodable"] = Interrupted(1)
    buffer.touch("p:1")
    assert sender.stats()["dropped"]["unencodable"] == 1


def test_hint_costs_no_wait_while_another_thread_starts_the_sender(buffer_to, sender):
    buffer = buffer_to("memory://nobody")
    with sender._starting:
        buffer.touch("p:1")  # whoever waited here would wait for ever
        buffer.add(CHANGE, "p:1")
    assert len(buffer) == 2
