"""The door of an updater that collects: when it is open, what its clients hear, and that it always closes."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hints.peer import HintPeer
from hints.server import HintServer

from cacheupdater.collector import Collector, Settings
from cacheupdater.collector import collector as module
from cacheupdater.core.peers import CLIENTS_MAX
from cacheupdater.errors import Misconfigured
from cacheupdater.pipeline.notices import Notices
from cacheupdater.service.collecting_door import CollectingDoor
from cacheupdater.service.shared_doors import SharedDoor
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.wire import CHANGE, TOUCH, Hello

SOON = 60.0  # s: whatever should happen has happened by then, on any machine


class Shared:
    """A queue that others share, as far as a door looks at it."""

    partitions = 4

    def __init__(self):
        self.joined = True


class Story:
    """A door whose hints go to a server that records them."""

    def __init__(self, folder, queue, **settings):
        self.socket, self.queue, self.observer = folder / "own", Shared(), RecordingObserver()
        collector = Collector(
            Settings([f"unix://{self.socket}"], queue, **settings),
            observer=self.observer,
            notices=Notices(asyncio.get_running_loop().time),
        )
        self.door = CollectingDoor(SharedDoor(self.queue, "the queue", owner=None, session=10.0), collector)

    @asynccontextmanager
    async def running(self):
        async with asyncio.timeout(SOON):
            task = asyncio.ensure_future(self.door.run())
            try:
                yield await self.door.open()
            finally:
                await self.door.close()
                assert task.done(), "closed before all was forwarded"
                await task


@pytest.fixture
def folder():
    """Not tmp_path, for a socket's whole path may have a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as name:
        yield Path(name)


@pytest.fixture
def up(folder):
    with HintServer(folder / "up", prefixes=[]) as up:
        yield up


async def test_it_is_open_when_the_queue_is_shared_and_clients_are_heard(folder, up):
    story = Story(folder, up.url)
    story.queue.joined = False
    assert story.door.conditions == {"queue": False, "forwarding": False}
    asyncio.get_running_loop().call_later(0.05, setattr, story.queue, "joined", True)
    async with story.running() as where:
        assert where == f"unix://{story.socket} the queue"
        assert story.door.conditions == {"queue": True, "forwarding": True}
        with await asyncio.to_thread(HintPeer, story.socket) as peer:
            assert story.door.clients is None, (
                "others fill the queue too: no warning may say that nobody is connected"
            )
            await asyncio.to_thread(peer.hint, CHANGE, b"p:1")
        assert up.hints(CHANGE) == {b"p:1": 1}
    assert story.door.conditions["forwarding"] is False
    assert not story.socket.exists()


async def test_clients_hear_which_keys_are_refreshed_and_of_every_change_of_them(folder, up):
    story = Story(folder, up.url)
    story.door.declare([b"p:"])
    async with story.running():
        with await asyncio.to_thread(HintPeer, story.socket) as peer:
            assert peer.hello == Hello(4, [b"p:"], CLIENTS_MAX)
            await asyncio.to_thread(peer.hint, CHANGE, b"p:1", b"q:1")
            story.door.declare([b"p:", b"q:"])
            assert await asyncio.to_thread(peer.closed)
        with await asyncio.to_thread(HintPeer, story.socket) as peer:
            assert peer.hello == Hello(4, [b"p:", b"q:"], CLIENTS_MAX)
            await asyncio.to_thread(peer.hint, CHANGE, b"q:2")
    assert up.hints(CHANGE) == {b"p:1": 1, b"q:2": 1}


async def test_what_clients_have_handed_in_is_forwarded_before_it_is_closed(folder, up):
    story = Story(folder, up.url)
    async with story.running():
        with await asyncio.to_thread(HintPeer, story.socket) as peer:
            await asyncio.to_thread(peer.hint, TOUCH, *(b"p:%d" % number for number in range(500)))
    assert len(up.hints(TOUCH)) == 500


async def test_it_closes_in_time_when_the_queue_takes_nothing(folder, up, monkeypatch, caplog):
    monkeypatch.setattr(module, "DRAIN_S", 0.2)
    story = Story(folder, up.url)
    async with story.running():
        up.acknowledges = False
        with await asyncio.to_thread(HintPeer, story.socket) as peer:
            await asyncio.to_thread(peer.hint, TOUCH, b"p:1")
    assert "1 hints could not be forwarded in time" in caplog.text


async def test_an_address_that_cannot_be_listened_on_ends_the_updater(folder, up):
    story = Story(folder, up.url)
    story.socket.write_text("somebody's file")
    async with asyncio.timeout(SOON):
        with pytest.raises(Misconfigured, match="is no socket"):
            await story.door.run()
        await story.door.close()


async def test_a_door_that_never_began_closes_at_once(folder, up):
    async with asyncio.timeout(SOON):
        await Story(folder, up.url).door.close()
