"""Hints by HTTP over real sockets: what is answered, and what a bad sender costs."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from cacheupdater.collector import http_listener as module
from cacheupdater.collector.gathered import Gathered
from cacheupdater.collector.http_listener import BODY_BYTES_MAX, HttpListener
from cacheupdater.errors import Misconfigured
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import Hello

SOON = 30.0  # s: whatever should happen has happened by then, on any machine
TOUCHED = b'{"key": "p:1", "kind": "touch"}\n'
CHANGED = b'{"key": "p:1", "kind": "change"}\n'


class World:
    """A listener, and the queue behind it."""

    def __init__(self):
        self.gathered = Gathered(RecordingObserver())
        self.listener = HttpListener(self.gathered)
        self.outbox = Outbox()
        self.outbox.greet(Hello(1, []))

    async def connect(self):
        host, _, port = self.listener.addresses[0].removeprefix("http://").rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))

    async def ask(self, raw):
        """The status, the headers, and the body as JSON."""
        reader, writer = await self.connect()
        writer.write(raw)
        async with asyncio.timeout(SOON):
            said = await reader.read()
        writer.close()
        head, _, body = said.partition(b"\r\n\r\n")
        status, *headers = head.decode().split("\r\n")
        return int(status.split()[1]), dict(each.split(": ") for each in headers), json.loads(body)

    async def post(self, body, **more):
        return await self.ask(request(body, **more))

    async def until(self, condition):
        async with asyncio.timeout(SOON):
            while not condition():  # noqa: ASYNC110  what is waited for is on the other side of a socket
                await asyncio.sleep(0.002)

    def forward(self):
        """All hints reach the queue."""
        sent, kinds = 0, []
        self.gathered.hand_over(self.outbox, all_kinds=True)
        while frame := self.outbox.next_frame(1):
            sent += 1
            kinds.append(frame)
        self.outbox.acknowledge(sent)
        for frame in kinds:
            self.gathered.settle(frame.kind, frame.keys)
        self.gathered.look(self.outbox)
        self.listener.acknowledge()


def request(body, *, method="POST", path="/v1/hints", host="localhost:8080", more="", length=None):
    length = len(body) if length is None else length
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{more}\r\n".encode() + body
    )


@contextlib.asynccontextmanager
async def world(address="http://127.0.0.1:0"):
    world = World()
    await world.listener.start([address])
    try:
        yield world
    finally:
        await world.listener.close()


async def test_touches_are_taken_at_once():
    async with world() as w:
        status, _, said = await w.post(TOUCHED * 3)
        assert (status, said) == (202, {"taken": 3})
        assert w.gathered.hints == 3


@pytest.mark.parametrize("kind", ["change", "miss"])
async def test_changes_and_misses_are_taken_when_the_queue_has_them(kind, monkeypatch):
    monkeypatch.setattr(module, "FORWARD_S", 10 * SOON)
    async with world() as w:
        asking = asyncio.ensure_future(w.post(TOUCHED + b'{"key": "p:1", "kind": "%s"}' % kind.encode()))
        await w.until(lambda: w.gathered.hints == 2)
        assert not asking.done()
        w.forward()
        assert (await asking)[::2] == (202, {"taken": 2})


async def test_a_sender_tries_again_when_the_queue_is_away_and_no_hint_is_lost(monkeypatch):
    monkeypatch.setattr(module, "FORWARD_S", 0.05)
    async with world() as w:
        status, headers, said = await w.post(CHANGED)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "send them again" in said["error"]
        assert w.gathered.hints == 1


async def test_a_sender_tries_again_when_there_is_no_room():
    async with world() as w:
        w.gathered.close()
        assert (await w.post(TOUCHED))[0] == 503


async def test_a_bad_line_is_named_and_nothing_of_its_request_is_taken():
    async with world() as w:
        status, _, said = await w.post(TOUCHED + CHANGED + b"product:7\n")
        assert (status, said["taken"]) == (400, 0)
        assert said["error"].startswith("line 3: ")
        assert w.gathered.hints == 0


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(TOUCHED, method="GET"), 405),
        (request(TOUCHED, path="/v1/hint"), 404),
        (request(TOUCHED, host="shop.example"), 403),
        (request(TOUCHED, more="Origin: https://shop.example\r\n"), 403),
        (request(TOUCHED, length=BODY_BYTES_MAX + 1), 413),
        (request(TOUCHED, length="9" * 5000), 413),
        (request(TOUCHED, length="-1"), 411),
        (b"POST /v1/hints HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"hello\r\n\r\n", 400),
        (b"POST /v1/hints HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 400),
    ],
)
async def test_other_requests_are_refused_and_nothing_is_taken(raw, status):
    async with world() as w:
        assert (await w.ask(raw))[0] == status
        assert w.gathered.hints == 0
        assert (await w.post(TOUCHED))[0] == 202


async def test_a_sender_that_waits_for_the_go_ahead_gets_it():
    async with world() as w:
        reader, writer = await w.connect()
        writer.write(request(b"", length=len(TOUCHED), more="Expect: 100-continue\r\n"))
        async with asyncio.timeout(SOON):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(TOUCHED)
            assert (await reader.read()).startswith(b"HTTP/1.1 202")
        writer.close()


async def test_a_sender_that_does_not_finish_its_request_is_left(monkeypatch):
    monkeypatch.setattr(module, "REQUEST_S", 0.05)
    async with world() as w:
        reader, writer = await w.connect()
        writer.write(request(TOUCHED, length=1000))
        async with asyncio.timeout(SOON):
            assert await reader.read() == b""
        writer.close()


async def test_silent_connections_make_room_for_those_that_send(monkeypatch):
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 4)
    monkeypatch.setattr(module, "REQUEST_S", 10 * SOON)
    async with world() as w:
        silent = [await w.connect() for _ in range(20)]
        assert (await w.post(TOUCHED))[0] == 202
        async with asyncio.timeout(SOON):
            for reader, _ in silent[:16]:
                assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


async def test_requests_of_one_program_after_another_are_one_peer():
    async with world() as w:
        for _ in range(5):
            await w.post(TOUCHED)
        assert w.gathered.newcomer("elsewhere") == 2


@pytest.mark.parametrize("address", ["http://192.0.2.1:0", "http://shop.example:0"])
async def test_hints_by_http_come_from_this_machine_only(address):
    with pytest.raises(Misconfigured, match="loopback"):
        async with world(address):
            pass


async def test_a_port_that_is_taken_is_named():
    async with world() as w:
        with pytest.raises(Misconfigured, match="cannot listen"):
            await HttpListener(w.gathered).start(w.listener.addresses)
