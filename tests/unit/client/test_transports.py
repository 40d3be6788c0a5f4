"""Links connect, greet, resend and give up without ever waiting, whatever the other end does."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from hints.server import HintServer
from suite.pace import PATIENCE_S, soonest

from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.mailbox import MAILBOX_FRAMES, mailbox
from cacheupdater_client.protocol.wire import (
    CHANGE,
    TOUCH,
    Hello,
    decode_pack,
    encode_ack,
    encode_hello,
)
from cacheupdater_client.transports import link_to
from cacheupdater_client.transports.stream import BACKOFF_MAX_S, HELLO_S, SILENCE_S


class Clock:
    """The time that the link is told."""

    def __init__(self):
        self.now = 100.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["unix", "tcp"])
def where(request, tmp_path):
    return tmp_path / "hints.sock" if request.param == "unix" else 0


@pytest.fixture
def links():
    """Makes links that are closed after the test."""
    made = []

    def make(url):
        made.append(link_to(url)())
        return made[-1]

    yield make
    for link in made:
        link.close()


def turns(link, outbox, clock, until, timeout=PATIENCE_S):
    """Takes turns, 10 ms of the link's time apart, until it is so."""
    deadline = time.monotonic() + timeout
    while not until() and time.monotonic() < deadline:
        link.turn(outbox, clock.now, 1)
        clock.now += 0.001
        time.sleep(0.001)
    return until()


def outbox_with(*keys):
    outbox = Outbox()
    outbox.add(CHANGE, dict.fromkeys(keys, 1))
    return outbox


def test_stream_delivers_and_is_acknowledged(where, links, clock):
    with HintServer(where) as server:
        outbox, link = outbox_with(b"p:1", b"p:2", b"secret"), links(server.url)
        assert turns(link, outbox, clock, lambda: not outbox)
        assert link.connected
        assert server.hints(CHANGE) == {b"p:1": 1, b"p:2": 1}
        assert outbox.dropped == {"undeclared": 1}


def test_stream_says_for_how_many_clients_it_stands_as_they_come_and_go_and_anew_on_each_connection(
    where, links, clock
):
    with HintServer(where, clients=64) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        for clients, heard in ((20, 20), (20, 20), (3, 3), (100, 64)):
            outbox.clients = clients
            assert turns(link, outbox, clock, lambda heard=heard: server.clients[-1:] == [heard])
        assert turns(link, outbox, clock, lambda: not outbox)
        server.drop_peers()
        outbox.add(CHANGE, {b"p:2": 1})
        assert turns(link, outbox, clock, lambda: not outbox)
        assert server.clients == [20, 3, 64, 64]
        assert server.hints(CHANGE) == {b"p:1": 1, b"p:2": 1}


def test_stream_says_nothing_of_clients_to_an_older_updater_nor_when_it_stands_for_one(where, links, clock):
    for server, clients in ((HintServer(where), 20), (HintServer(where, clients=64), 1)):
        with server:
            outbox, link = outbox_with(b"p:1"), links(server.url)
            outbox.clients = clients
            assert turns(link, outbox, clock, lambda outbox=outbox: not outbox)
            assert (server.clients, server.connections, server.hints()) == ([], 1, {b"p:1": 1})


def test_stream_does_not_connect_while_there_is_nothing_to_send(where, links, clock):
    with HintServer(where) as server:
        link = links(server.url)
        for _ in range(20):
            assert link.turn(Outbox(), clock.now, 1) is False
        assert server.connections == 0


def test_stream_turn_returns_at_once_when_nobody_listens(tmp_path, links, clock):
    link = links(f"unix://{tmp_path}/nobody.sock")
    outbox = outbox_with(b"p:1")

    def take_turns():
        for _ in range(200):
            link.turn(outbox, clock.now, 1)
            clock.now += 0.01

    soonest(take_turns, 1)
    assert outbox.waiting == 1


def test_stream_comes_back_within_a_second_of_a_restart(where, links, clock):
    with HintServer(where) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: not outbox)
        where = server.where
    outbox.add(CHANGE, {b"p:2": 1})
    for _ in range(3000):  # a long outage: the back-off has grown as far as it goes
        link.turn(outbox, clock.now, 1)
        clock.now += 0.01
    with HintServer(where) as server:
        restarted = clock.now
        assert turns(link, outbox, clock, lambda: not outbox)
        assert clock.now - restarted < BACKOFF_MAX_S + 0.1
        assert server.hints() == {b"p:2": 1}


def test_stream_learns_what_a_restarted_updater_declares_though_the_last_declared_none_of_its_keys(
    where, links, clock
):
    with HintServer(where, prefixes=[b"products:"]) as server:
        outbox, link = outbox_with(b"product:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: link.connected)
        where = server.where
    with HintServer(where, prefixes=[b"product:"]) as server:

        def one_more_read():
            outbox.add(TOUCH, {b"product:2": 1})
            return server.hints(TOUCH).get(b"product:2")

        assert turns(link, outbox, clock, one_more_read), outbox.dropped


def test_stream_sends_again_what_a_crashed_updater_did_not_acknowledge(where, links, clock):
    with HintServer(where, acknowledges=False) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: server.frames == 1)
        server.acknowledges = True
        server.drop_peers()
        assert turns(link, outbox, clock, lambda: not outbox)
        assert server.hints() == {b"p:1": 2}


def test_stream_notices_a_closed_connection_before_it_writes(where, links, clock):
    with HintServer(where) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: not outbox)
        server.drop_peers()
        assert turns(link, outbox, clock, lambda: not link.connected)
        outbox.add(CHANGE, {b"p:2": 1})
        assert turns(link, outbox, clock, lambda: not outbox)
        assert server.hints() == {b"p:1": 1, b"p:2": 1}


def test_stream_leaves_a_peer_that_never_greets(where, links, clock):
    with HintServer(where, greets=False) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: server.connections == 1)
        assert link.turn(outbox, clock.now, 1)
        clock.now += HELLO_S + 0.1
        link.turn(outbox, clock.now, 1)
        clock.now += BACKOFF_MAX_S
        assert turns(link, outbox, clock, lambda: server.connections == 2)
        assert server.frames == 0


def test_stream_leaves_a_peer_that_falls_silent(where, links, clock):
    with HintServer(where, acknowledges=False) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: server.frames == 1)
        clock.now += SILENCE_S + 0.1
        link.turn(outbox, clock.now, 1)
        assert not link.connected
        assert turns(link, outbox, clock, lambda: server.frames == 2)


def test_stream_does_not_leave_an_idle_peer(where, links, clock):
    with HintServer(where) as server:
        outbox, link = outbox_with(b"p:1"), links(server.url)
        assert turns(link, outbox, clock, lambda: not outbox)
        clock.now += 10 * SILENCE_S
        outbox.add(CHANGE, {b"p:2": 1})
        assert turns(link, outbox, clock, lambda: not outbox)
        assert server.connections == 1


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 100,
        encode_hello(Hello(1, []))[:-1] + b"\xc1",
        encode_ack(5) * 10,
        encode_hello(Hello(1, [])) + encode_ack(99),
    ],
)
def test_stream_survives_a_peer_that_talks_nonsense(words, tmp_path, links, clock):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "rude.sock"))
        listener.listen()
        outbox, link = outbox_with(b"p:1"), links(f"unix://{tmp_path}/rude.sock")
        for _ in range(3):
            link.turn(outbox, clock.now, 1)
            peer, _ = listener.accept()
            peer.sendall(words)
            link.turn(outbox, clock.now, 1)
            peer.close()
            clock.now += HELLO_S + 0.1
            link.turn(outbox, clock.now, 1)
            clock.now += BACKOFF_MAX_S
        assert outbox.waiting == 1


def test_stream_stops_at_a_peer_that_does_not_read(tmp_path, links, clock):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "slow.sock"))
        listener.listen()
        outbox, link = Outbox(), links(f"unix://{tmp_path}/slow.sock")
        outbox.add(TOUCH, {b"%d" % number + b"x" * 100: 1 for number in range(60_000)})
        link.turn(outbox, clock.now, 1)
        peer, _ = listener.accept()
        with peer:
            peer.sendall(encode_hello(Hello(1, [])))
            assert link.turn(outbox, clock.now, 1)  # it took something: perhaps it takes more at once

            def take_turns():
                for _ in range(50):
                    assert not link.turn(outbox, clock.now, 1)

            soonest(take_turns, 1)
        assert outbox.waiting == 60_000


def test_stream_waits_for_an_updater_whose_queue_is_full(tmp_path, links, clock):
    """It accepts nothing for minutes, but says its last number again: no turns in haste, no frame sent twice."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "full.sock"))
        listener.listen()
        outbox, link = Outbox(), links(f"unix://{tmp_path}/full.sock")
        outbox.add(TOUCH, {b"%d" % number: 1 for number in range(100_000)})
        link.turn(outbox, clock.now, 1)
        peer, _ = listener.accept()
        with peer:
            peer.setblocking(False)
            peer.sendall(encode_hello(Hello(1, [])))
            for _ in range(100):
                link.turn(outbox, clock.now, 1)
                drain(peer)
            for accepted in (0, 3, 3, 3):
                drain(peer)
                peer.sendall(encode_ack(accepted))
                link.turn(outbox, clock.now, 1)
                clock.now += SILENCE_S - 1
                assert link.turn(outbox, clock.now, 1) is False
                assert link.connected
            assert outbox.under_way
            clock.now += 1.1
            link.turn(outbox, clock.now, 1)
            assert not link.connected


def drain(peer):
    """Reads all that has come."""
    with contextlib.suppress(BlockingIOError):
        while peer.recv(1 << 20):
            pass


def test_memory_delivers_to_an_updater_in_this_process(links, clock, request):
    outbox, link, box = (
        outbox_with(b"p:1", b"secret"),
        links(f"memory://{request.node.name}"),
        mailbox(request.node.name),
    )
    assert link.turn(outbox, clock.now, 1) is False
    assert outbox.waiting == 2
    box.open(Hello(4, [b"p:"]))
    link.turn(outbox, clock.now, 1)
    assert [decode_pack(pack).keys for _, pack in box.take()] == [[b"p:1"]]
    assert not outbox


def test_memory_waits_while_the_mailbox_is_full(links, clock, request):
    outbox, link, box = Outbox(), links(f"memory://{request.node.name}"), mailbox(request.node.name)
    box.open(Hello(1, []))
    for number in range(MAILBOX_FRAMES + 5):
        outbox.add(CHANGE, {b"%d" % number: 1})
        link.turn(outbox, clock.now, 1)
    assert outbox.waiting == 5
    assert link.turn(outbox, clock.now, 1) is False
    assert len(box.take()) == MAILBOX_FRAMES
    link.turn(outbox, clock.now, 1)
    assert not outbox
    assert sum(len(decode_pack(pack).keys) for _, pack in box.take()) == 5


def test_memory_greets_anew_when_another_updater_opens_the_mailbox(links, clock, request):
    outbox, link, box = Outbox(), links(f"memory://{request.node.name}"), mailbox(request.node.name)
    for partitions in (2, 5):
        box.open(Hello(partitions, []))
        outbox.add(TOUCH, {b"%d" % number: 1 for number in range(100)})
        link.turn(outbox, clock.now, 1)
        assert {partition for partition, _ in box.take()} == set(range(partitions))
        box.close()
        link.turn(outbox, clock.now, 1)
        assert not link.connected


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "/run/x.sock",
        "unix://",
        "unix://host/x",
        "tcp://host",
        "tcp://:1",
        "tcp://h:99999",
        "x",
    ],
)
def test_target_that_cannot_be_one_is_refused_with_the_list_of_those_that_can(url):
    with pytest.raises(
        ValueError,
        match=r"unix:///path/to/socket, tcp://host:port, kafka://host:port/topic, redis://host:port/0\?stream=name, memory://name, none or auto",
    ):
        link_to(url)
