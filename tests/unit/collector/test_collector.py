"""The collector as a whole, within a test's own loop: how it begins, and that it always ends."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hints.peer import HintPeer
from hints.server import HintServer

from cacheupdater.collector import Collector, Settings
from cacheupdater.collector import collector as module
from cacheupdater.core.peers import CLIENTS_MAX
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.wire import CHANGE, TOUCH, Hello

SOON = 60.0  # s: whatever should happen has happened by then, on any machine


@pytest.fixture
def folder():
    """Not tmp_path, for a socket's whole path may have a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as name:
        yield Path(name)


class Running:
    """A collector that runs in this loop."""

    def __init__(self, folder, queue, **settings):
        self.socket = folder / "own"
        self._collector = Collector(Settings([f"unix://{self.socket}"], queue, **settings))
        self._ready, self._stop = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._collector.run(lambda _: self._ready.set(), self._stop))

    async def ready(self):
        async with asyncio.timeout(SOON):
            await self._ready.wait()

    async def stop(self):
        """The exit code."""
        self._stop.set()
        async with asyncio.timeout(SOON):
            return await self._task

    async def failed(self):
        async with asyncio.timeout(SOON):
            await self._task


async def test_a_collector_that_never_found_its_queue_ends_when_it_is_told_to(folder):
    running = Running(folder, f"unix://{folder}/nobody")
    await asyncio.sleep(0.2)
    assert await running.stop() == 0


async def test_a_collector_whose_queue_takes_nothing_ends_in_time_and_says_what_it_gives_up(
    folder, monkeypatch, caplog
):
    monkeypatch.setattr(module, "DRAIN_S", 0.2)
    with HintServer(folder / "up") as updater:
        running = Running(folder, updater.url)
        await running.ready()
        updater.acknowledges = False
        with await asyncio.to_thread(HintPeer, running.socket) as peer:
            await asyncio.to_thread(peer.hint, TOUCH, b"p:1", b"p:2")
            assert await running.stop() == 0
    assert "2 hints could not be forwarded in time" in caplog.text


async def test_clients_hear_of_new_partitions_and_their_changes_still_arrive(folder):
    with HintServer(folder / "up", partitions=2) as updater:
        running = Running(folder, updater.url)
        await running.ready()
        with await asyncio.to_thread(HintPeer, running.socket) as peer:
            assert peer.hello == Hello(2, [b"p:"], CLIENTS_MAX)
            updater.hello = Hello(5, [b"p:", b"q:"])
            updater.drop_peers()
            assert await asyncio.to_thread(peer.closed)
        with await asyncio.to_thread(HintPeer, running.socket) as peer:
            assert peer.hello == Hello(5, [b"p:", b"q:"], CLIENTS_MAX)
            await asyncio.to_thread(peer.hint, CHANGE, b"q:1")
        assert updater.hints(CHANGE) == {b"q:1": 1}
        assert await running.stop() == 0


async def test_an_address_that_cannot_be_had_is_a_mistake_of_the_configuration(folder):
    (folder / "own").mkdir()
    with HintServer(folder / "up") as updater, pytest.raises(Misconfigured, match="listen"):
        await Running(folder, updater.url).failed()


async def test_an_admin_port_that_is_taken_is_a_mistake_of_the_configuration(folder):
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Misconfigured, match="admin"):
        await Running(folder, f"unix://{folder}/nobody", admin=f"127.0.0.1:{port}").failed()
    server.close()
