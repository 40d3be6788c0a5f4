"""The sender: one thread per process, which works while there are hints and never blocks the application."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from types import SimpleNamespace

import pytest
import redis
from hints.server import HintServer
from suite.pace import PATIENCE_S, soonest

from cacheupdater_client import calls, native, settings, telling
from cacheupdater_client import target as target_module
from cacheupdater_client.buffer import PLACES
from cacheupdater_client.protocol.mailbox import mailbox
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Hello
from cacheupdater_client.sender import Sender
from cacheupdater_client.target import DRAIN_S, HURRY_S
from cacheupdater_client.transports import links

sender_module = sys.modules["cacheupdater_client.sender"]
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


def make_event(_):
    return threading.Event()


def never(condition, for_s=0.1):
    """Whether it stays untrue for a while."""
    return not eventually(condition, for_s)


def test_sender_delivers_within_a_drain(buffer_to, tmp_path):
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        for _ in range(5):
            buffer.touch("p:1")
        buffer.add(MISS, "p:2")
        assert server.wait_until(lambda it: it.hints() == {b"p:1": 5, b"p:2": 1})


@pytest.mark.parametrize(
    ("kind", "leave"),
    [
        (CHANGE, lambda buffer, key: buffer.add(CHANGE, key)),
        (MISS, lambda buffer, key: buffer.awaited(key, 1)),
    ],
    ids=["a change", "a miss whose reader waits"],
)
def test_sender_brings_what_is_urgent_within_ten_milliseconds(buffer_to, tmp_path, kind, leave):
    with HintServer(tmp_path / "s") as server:
        buffer = buffer_to(server.url)
        buffer.touch("p:0")
        assert server.wait_until(lambda it: it.frames)
        numbers = count(1)

        def urgent():
            number = next(numbers)
            leave(buffer, f"p:{number}")
            assert server.wait_until(lambda it: b"p:%d" % number in it.hints(kind))

        soonest(urgent, HURRY_S, tries=100)


def test_sender_does_not_spin_when_changes_never_cease(buffer_to, sender, request):
    mailbox(request.node.name).open(Hello(1, []))
    buffer = buffer_to(f"memory://{request.node.name}")
    turns = []
    original = sender._turn
    sender._turn = lambda now: (turns.append(now) if sender._hurried else None) or original(now)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        buffer.add(CHANGE, "p:1")
    assert len(turns) > 2
    assert all(later - earlier >= 0.0099 for earlier, later in pairwise(turns))


def test_sender_lets_a_change_wait_only_when_another_was_sent_just_before(
    buffer_to, sender, request, monkeypatch
):
    mailbox(request.node.name).open(Hello(1, []))
    buffer, waits = buffer_to(f"memory://{request.node.name}"), []

    def sleep(seconds):
        # a change waits; a sender of another test may sleep too
        if sender._hurried and threading.get_ident() == sender._thread:
            waits.append(seconds)
        time.sleep(max(0, seconds))

    monkeypatch.setattr("cacheupdater_client.native.sleep", sleep)
    buffer.touch("p:0")
    assert eventually(lambda: sender.stats()["delivered"] == 1)  # a turn was taken just now
    buffer.add(CHANGE, "p:1")
    assert eventually(lambda: sender.stats()["delivered"] == 2)
    assert max(waits, default=0) <= 0
    buffer.add(CHANGE, "p:2")
    assert eventually(lambda: sender.stats()["delivered"] == 3)
    assert max(waits, default=0) <= HURRY_S


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

    class SlowLink(links.MemoryLink):
        def __init__(self, name):
            amid.wait(5)  # both threads have found no target
            super().__init__(name)

    monkeypatch.setattr(links, "MemoryLink", SlowLink)
    with ThreadPoolExecutor(2) as pool:
        buffers = list(pool.map(buffer_to, ["memory://nobody"] * 2))
    for buffer in buffers:
        buffer.touch("p:1")
    assert sender.stats()["targets"]["memory://nobody"]["emitted"] == 2
    assert buffer_to("memory://nobody") is buffers[0] is buffers[1]


def test_sender_makes_targets_in_a_child_that_was_forked_while_another_thread_made_one(buffer_to, sender):
    with ThreadPoolExecutor(1) as parent, ThreadPoolExecutor(1) as child:
        parent.submit(sender._naming.acquire).result()
        sender.begin_after_fork()
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
            sender.close(60)
            assert server.hints()[b"p:%d" % round_] == 1
        assert sender.stats()["dropped"] == {}
        assert sender.stats()["delivered"] == 3


def test_close_waits_for_its_own_hints_while_the_thread_of_an_earlier_close_goes(
    buffer_to, sender, request, monkeypatch
):
    """A thread that ends may be slow to go. It had rung for every caller that waits, of closes that began later too."""
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    target, rung, goes, asked, sends = buffer_to(f"memory://{request.node.name}"), *map(make_event, range(4))
    ring = native.Bell.ring

    def ring_and_linger(bell):
        ring(bell)
        if threading.current_thread().name == "cacheupdater-sender" and not rung.is_set():
            rung.set()
            goes.wait(PATIENCE_S)

    monkeypatch.setattr(native.Bell, "ring", ring_and_linger)
    target.touch("p:1")
    sender.close(PATIENCE_S)
    assert rung.is_set()
    take_turn = sender._turn

    def turn(now):
        asked.set()
        assert sends.wait(PATIENCE_S)
        return take_turn(now)

    sender._turn = turn
    target.touch("p:2")
    assert asked.wait(PATIENCE_S)
    with ThreadPoolExecutor(1) as callers:
        closed = callers.submit(sender.close, PATIENCE_S)
        assert eventually(lambda: sender._closers)
        goes.set()
        assert never(closed.done), "it returned before its hints were sent"
        sends.set()
        closed.result(PATIENCE_S)
        assert box.accepted == 2


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
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return False

    def close(self):
        pass


def test_close_bears_a_target_that_comes_up_meanwhile(buffer_to, sender):
    target = sender.target("memory://first", ())
    target._link = Peer(lambda: buffer_to("memory://later").touch("p:2"))
    target.buffer(ENCODER).touch("p:1")
    sender.close(60)
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
        closed = {"closed": next(tries)}
        assert eventually(lambda: sender.stats()["dropped"] == closed)  # by the thread, perhaps just after
        assert sender.stats()["emitted"] == closed["closed"]


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
        sender.close(60)
        assert server.hints() == {b"p:1": 1, b"p:2": 1}


def test_stats_balance(buffer_to, sender, request):
    box = mailbox(request.node.name)
    box.open(Hello(1, [b"p:"]))
    buffer = buffer_to(f"memory://{request.node.name}")
    for key in ("p:1", "p:1", "other", "", "p:" + "x" * 2000):
        buffer.touch(key)
    sender.close(60)
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
    token = sender._may_start.pop()
    buffer.touch("p:1")  # whoever waited here would wait for ever
    buffer.add(CHANGE, "p:1")
    assert len(buffer) == 2
    sender._may_start.append(token)


# --- ends that are interrupted ------------------------------------------------------------------------


class Interrupted(Exception):
    pass


@contextlib.contextmanager
def alarm(handler, seconds):
    """Calls `handler` in this thread so many seconds from now, as Ctrl-C would."""
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def raise_interrupted(*_):
    raise Interrupted


def test_close_that_is_interrupted_loses_no_hint_and_what_follows_is_sent(buffer_to, sender, request):
    """The updater takes what it gets, so each of all hints must arrive, or be counted, however often close is cut off."""
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    buffer, cut = buffer_to(f"memory://{request.node.name}"), 0
    for round_ in range(60):
        buffer.add_all(TOUCH, [f"{round_}:{number}" for number in range(3000)])
        try:
            with alarm(raise_interrupted, 0.0002 + 0.0001 * (round_ % 20)):
                sender.close(5)
        except Interrupted:
            cut += 1
        box.take()
    assert cut > 0
    buffer.touch("last")

    def settled():
        box.take()
        stats = sender.stats()
        return stats["delivered"] + sum(stats["dropped"].values()) == 60 * 3000 + 1

    assert eventually(settled)


def test_close_within_a_close_counts_once(buffer_to, sender, tmp_path):
    with HintServer(tmp_path / "s", acknowledges=False) as server:
        buffer_to(server.url).add_all(TOUCH, [f"p:{number}" for number in range(100)])
        with alarm(lambda *_: sender.close(0.1), 0.1):
            sender.close(0.3)
        assert eventually(lambda: not sender._running)
        assert sender.stats()["dropped"] == {"closed": 100}
        assert sender.stats()["emitted"] == 100


def test_exit_waits_once_however_often_it_is_asked(sender, monkeypatch):
    asked = []
    monkeypatch.setattr(sender, "close", lambda timeout: asked.append(timeout) or time.sleep(timeout))
    sender._exit_left = 0.1
    sender.close_at_exit()
    sender.close_at_exit()
    assert asked == [0.1, 0]


# --- where no thread can be had -----------------------------------------------------------------------


def test_hints_at_the_limit_of_threads_do_not_each_try_to_start_one(buffer_to, sender, request, monkeypatch):
    box, tried = mailbox(request.node.name), []
    box.open(Hello(1, []))

    def refuse(_):
        tried.append(1)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr("cacheupdater_client.native.start_thread", refuse)
        limit.setattr(sender_module, "START_S", 3600.0)
        buffer = buffer_to(f"memory://{request.node.name}")
        for number in range(100):
            buffer.touch(str(number))
    assert (len(tried), len(buffer)) == (1, 100)
    sender._start_at = 0.0  # an hour later
    buffer.touch("again")
    assert eventually(lambda: sender.stats()["delivered"] == 101)


def test_uwsgi_without_threads_is_told_once_and_sends_at_exit(sender, request, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "cacheupdater_client")
    monkeypatch.setattr(telling, "_said", set())
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt={b"processes": b"4"}))
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    choice = settings.choice_of(f"memory://{request.node.name}")
    buffer = sender.target(choice.url, ()).buffer(ENCODER)
    telling.tell(choice)
    telling.tell(choice)
    said = [record for record in caplog.records if "hints wait" not in record.message]  # of other senders
    assert [record.levelname for record in said] == ["INFO", "WARNING"]
    assert "--enable-threads" in said[1].message
    buffer.touch("p:1")
    assert not sender._running
    sender.close_at_exit()
    assert sender.stats()["delivered"] == 1


@pytest.mark.parametrize("opt", [{"enable-threads": True}, {b"threads": b"4"}, {b"enable-threads": b"true"}])
def test_uwsgi_with_threads_is_as_any_other(monkeypatch, opt):
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt=opt))
    assert native.no_threads() == ""


# --- clients that end ---------------------------------------------------------------------------------


def test_sockets_of_clients_that_are_gone_are_closed_and_their_hints_still_counted(
    sender, tmp_path, monkeypatch
):
    monkeypatch.setattr(target_module, "IDLE_TURNS", 1)
    monkeypatch.setattr(target_module, "DRAIN_S", 0.01)
    with HintServer(tmp_path / "s") as server:
        for number in range(30):
            sender.target(server.url, (b"p:%d:" % number,)).buffer(ENCODER).touch(f"p:{number}:1")
        assert server.wait_until(lambda it: len(it.hints()) == 30)
        assert eventually(lambda: sender.stats()["targets"] == {})
        assert eventually(
            lambda: not sender._known
        )  # the thread's own turn holds the last of them to its end
        assert sender.stats()["emitted"] == sender.stats()["delivered"] == 30


def test_client_that_lives_keeps_its_place_though_it_rests(sender, request, monkeypatch):
    monkeypatch.setattr(target_module, "IDLE_TURNS", 1)
    monkeypatch.setattr(target_module, "DRAIN_S", 0.01)
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    target = sender.target(f"memory://{request.node.name}", ())
    buffer = target.buffer(ENCODER)
    for round_ in range(1, 4):
        buffer.touch("p:1")
        assert eventually(lambda round_=round_: sender.stats()["delivered"] == round_)
        assert eventually(lambda: not target._busy)


# --- the conventional socket --------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(target_module, "LOOK_S", 0.01)
    monkeypatch.setattr(sender_module, "LOOK_S", 0.01)


def test_updater_that_starts_second_gets_the_hints_from_then_on(sender, tmp_path, often, caplog):
    caplog.set_level(logging.INFO, "cacheupdater_client")
    target = sender.target(f"unix://{tmp_path}/s", (), awaited=True)
    buffer = target.buffer(ENCODER)
    buffer.touch("p:early")
    assert eventually(lambda: target._asleep)
    for kind in (TOUCH, MISS, CHANGE):
        buffer.add_all(kind, [f"p:{number}" for number in range(1000)])
    buffer.touch("p:1")
    buffer.miss("p:1")
    assert (len(buffer), buffer.waits, sender.stats()["emitted"]) == (0, False, 0)
    assert "no updater listens" in sender.stats()["targets"][f"unix://{tmp_path}/s"]["trouble"]
    with HintServer(tmp_path / "s") as server:
        assert eventually(lambda: not target._asleep)
        buffer.touch("p:late")
        assert server.wait_until(lambda it: it.hints() == {b"p:late": 1})
    said = [record.message for record in caplog.records if str(tmp_path) in record.message]
    assert said == [f"hints go to unix://{tmp_path}/s from now on"]


def test_hint_for_a_socket_that_is_not_there_costs_one_step_and_one_append(sender, tmp_path, often):
    """As a touch that is kept does: P1 shows the time."""
    target = sender.target(f"unix://{tmp_path}/s", (), awaited=True)
    buffer, attended = target.buffer(ENCODER), []
    buffer.touch("p:1")
    assert eventually(lambda: target._asleep)
    buffer._attendant = SimpleNamespace(attend=attended.append, hurry=lambda: attended.append("hurry"))
    for number in range(3 * PLACES):
        buffer.touch(str(number))
    assert attended == []
    assert (len(buffer), buffer.dropped) == (0, {})


def test_forked_child_looks_for_the_socket_itself(sender, tmp_path, often):
    target = sender.target(f"unix://{tmp_path}/s", (), awaited=True)
    buffer = target.buffer(ENCODER)
    buffer.touch("p:1")
    assert eventually(lambda: target._asleep)
    sender.close(1)
    sender.begin_after_fork()
    with HintServer(tmp_path / "s") as server:
        buffer.touch("p:child")
        assert server.wait_until(lambda it: it.hints() == {b"p:child": 1})


def test_client_that_names_the_socket_does_not_wait_for_its_file(sender, tmp_path, often):
    url = f"unix://{tmp_path}/s"
    buffer = sender.target(url, (), awaited=True).buffer(ENCODER)
    assert sender.target(url, ()).buffer(ENCODER) is buffer
    buffer.touch("p:1")
    assert sender.stats()["waiting"] == 1
    with HintServer(tmp_path / "s") as server:
        assert server.wait_until(lambda it: it.hints() == {b"p:1": 1})


def test_sender_wakes_for_a_target_while_others_sleep(sender, buffer_to, tmp_path, request, monkeypatch):
    for module in (target_module, sender_module):
        monkeypatch.setattr(module, "LOOK_S", 3600.0)
    asleep = sender.target(f"unix://{tmp_path}/s", (), awaited=True)
    buffer = asleep.buffer(ENCODER)
    buffer.touch("p:1")
    assert eventually(lambda: asleep._asleep)
    box = mailbox(request.node.name)
    box.open(Hello(1, []))
    buffer_to(f"memory://{request.node.name}").touch("p:1")
    assert eventually(lambda: box.accepted == 1)


# --- what the log says --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("emit", "level", "says"),
    [
        ("memory://x", "INFO", "hints go to memory://x (emit)"),
        ("none", "INFO", "hints go nowhere: emit says none"),
        ("auto", "WARNING", "hints go nowhere: no updater listens at"),
    ],
)
def test_first_client_says_where_hints_go_and_the_second_nothing(
    emit, level, says, monkeypatch, caplog, tmp_path
):
    caplog.set_level(logging.INFO, "cacheupdater_client")
    monkeypatch.delenv("CACHEUPDATER_EMIT", raising=False)
    monkeypatch.setattr(telling, "_said", set())
    for module in (settings, telling):
        monkeypatch.setattr(module, "CONVENTIONAL_SOCKET", tmp_path / "s")
    for _ in range(2):
        calls.hints_for(ENCODER, emit, None)
    said = [record for record in caplog.records if "hints wait" not in record.message]  # of other senders
    assert [(record.levelname, record.message[: len(says)]) for record in said] == [(level, says)]


def test_hints_that_wait_for_long_have_a_line_and_one_when_they_go_again(
    buffer_to, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "cacheupdater_client")
    monkeypatch.setattr(target_module, "TROUBLE_S", 0.0)
    url = f"unix://{tmp_path}/s"

    def said():  # of this target: the process has other senders, whose hints may wait as well
        return [record for record in caplog.records if url in record.message]

    buffer_to(url).touch("p:1")
    assert eventually(said)
    with HintServer(tmp_path / "s") as server:
        assert server.wait_until(lambda it: it.hints() == {b"p:1": 1})
        assert eventually(lambda: len(said()) == 2)
    assert [record.levelname for record in said()] == ["WARNING", "INFO"]
    assert "does not take them" in said()[0].message
    assert "hints go to" in said()[1].message
