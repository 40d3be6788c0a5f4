"""Applications send hints over real sockets: what arrives, what the updater answers, and what a broken peer costs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import socket
import stat
import struct
import sys

import pytest
import uvloop

from cacheupdater.adapters.listener_stream import PeerLimits, StreamListener, listener, socket_file
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.core.peers import CLIENTS_MAX
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import wire

HELLO = wire.Hello(4, [b"product:", b"basket:"], CLIENTS_MAX)
PACK = wire.encode_pack(wire.TOUCH, 0, [b"product:7"])
FRAME = wire.encode_frame(0, PACK)
SOON = 60.0  # s: whatever should happen has happened by then, on any machine


async def until(condition):
    """Wait for something that happens by itself."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110  what is waited for is on the other side of a socket
            await asyncio.sleep(0.002)


class Peer:
    """An application's end of a connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.replies, self.told = wire.ReplyReader(), []

    async def hear(self):
        """The next replies, in `told`; False at the end of the connection."""
        try:
            async with asyncio.timeout(SOON):
                data = await self.reader.read(65536)
        except ConnectionError:
            return False
        self.told += self.replies.feed(data)
        return bool(data)

    async def acknowledged(self, frames):
        while self.told[-1:] != [frames]:
            assert await self.hear(), f"the connection ended after {self.told}"

    async def ended(self):
        while await self.hear():
            pass

    def close(self):
        self.writer.transport.abort()


async def connect(address):
    scheme, _, rest = address.partition("://")
    if scheme == "unix":
        return Peer(*await asyncio.open_unix_connection(rest))
    host, _, port = rest.rpartition(":")
    return Peer(*await asyncio.open_connection(host, int(port)))


class World:
    """A listener, its queue, and the peers to close at the end."""

    def __init__(self, *, packs_max=4096, **limits):
        self.queue = MemoryQueue(HELLO.partitions, packs_max=packs_max)
        self.observer = RecordingObserver()
        self.listener = StreamListener(self.queue, HELLO, observer=self.observer, limits=PeerLimits(**limits))
        self.peers = []

    async def peer(self, which=0):
        self.peers.append(await connect(self.listener.addresses[which]))
        return self.peers[-1]

    async def taken(self, partition=0, count=1):
        """So many packs from the queue, committed as they come."""
        got = []
        while len(got) < count:
            async with asyncio.timeout(SOON):
                messages = await self.queue.fetch(partition, count - len(got))
            await self.queue.commit(partition, epoch=1, done=messages[-1].offset + 1)
            got += [message.payload for message in messages]
        return got

    def rejected(self, reason=None):
        return self.observer.total("intake_rejected", reason=reason)

    async def works(self):
        """Does a fresh, well-behaved peer get its hint through?"""
        peer = await self.peer()
        peer.writer.write(wire.encode_frame(3, PACK))
        await peer.acknowledged(1)
        peer.close()
        return await self.taken(3) == [PACK]


@contextlib.asynccontextmanager
async def world(*addresses, **settings):
    world = World(**settings)
    await anext(world.queue.assignments())
    await world.listener.start(addresses)
    try:
        yield world
    finally:
        for peer in world.peers:
            peer.close()
        await world.listener.close()
        await world.queue.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "hints.sock"


@pytest.fixture(params=["unix", "tcp"])
def address(request, path):
    return f"unix://{path}" if request.param == "unix" else "tcp://127.0.0.1:0"


# --- a good peer ------------------------------------------------------------------------------------------


async def test_a_peer_is_told_the_hello_at_once_and_how_many_frames_were_taken(address):
    async with world(address) as w:
        peer = await w.peer()
        await peer.hear()
        assert peer.told == [HELLO]
        assert w.observer.levels["peers", ""] == 1
        peer.writer.write(FRAME * 3)
        await peer.acknowledged(3)
        peer.writer.write(FRAME)
        await peer.acknowledged(4)
        assert await w.taken(count=4) == [PACK] * 4
        peer.writer.close()
        await until(lambda: w.observer.levels["peers", ""] == 0)
        assert w.rejected() == 0


async def test_a_peer_cannot_claim_that_a_feed_has_told_its_changes_whether_there_is_room_or_not(address):
    told = wire.encode_pack(wire.CHANGE, 0, [b"product:7"], tokens=[7])
    async with world(address, packs_max=1) as w:
        peer = await w.peer()
        peer.writer.write(wire.encode_frame(0, told) * 3)
        assert [wire.decode_pack(each).tokens for each in await w.taken(count=3)] == [()] * 3


async def test_frames_arrive_whole_wherever_the_stream_is_cut(address):
    rng = random.Random(3)
    packs = [rng.randbytes(rng.randrange(1, 2000)) for _ in range(50)] + [bytes(wire.PACK_BYTES_MAX)]
    stream = b"".join(wire.encode_frame(1, pack) for pack in packs)
    async with world(address) as w:
        peer = await w.peer()
        while stream:
            cut = rng.choice([1, 7, 500, 70_000])
            peer.writer.write(stream[:cut])
            stream = stream[cut:]
            await peer.writer.drain()
            await asyncio.sleep(0)
        await peer.acknowledged(len(packs))
        assert await w.taken(1, len(packs)) == packs


async def test_several_addresses_feed_one_queue(path):
    async with world(f"unix://{path}", "tcp://127.0.0.1:0") as w:
        for which in (0, 1):
            peer = await w.peer(which)
            peer.writer.write(FRAME)
            await peer.acknowledged(1)
        assert await w.taken(count=2) == [PACK] * 2


async def test_many_peers_at_once_all_get_through(path):
    async with world(f"unix://{path}") as w:
        peers = await asyncio.gather(*(w.peer() for _ in range(200)))
        for peer in peers:
            peer.writer.write(FRAME * 5)
        await asyncio.gather(*(peer.acknowledged(5) for peer in peers))
        assert len(await w.taken(count=1000)) == 1000


def test_all_of_it_works_under_uvloop_too(path):
    async def story():
        async with world(f"unix://{path}", packs_max=4) as w:
            peer = await w.peer()
            peer.writer.write(FRAME * 20)
            assert len(await w.taken(count=20)) == 20
            await peer.acknowledged(20)
            broken = await w.peer()
            broken.writer.write(b"\xff" * 100)
            await broken.ended()
            assert w.rejected("frame_out_of_range") == 1
            assert await w.works()
            with pytest.raises(Misconfigured, match="another process listens"):
                await World().listener.start([f"unix://{path}"])
        assert not path.exists()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


# --- a peer that stands for many ------------------------------------------------------------------------------


async def test_a_peer_stands_for_as_many_clients_as_it_said_last_and_no_acknowledgement_counts_that(address):
    async with world(address) as w:
        await w.peer()
        peer = await w.peer()
        peer.writer.write(wire.encode_clients(20) + FRAME * 2 + wire.encode_clients(3) + FRAME)
        await peer.acknowledged(3)
        assert [message.clients for message in await w.queue.fetch(0, 9)] == [20, 20, 3]
        w.listener._sweep()
        assert (w.observer.levels["peers", ""], w.observer.levels["clients", ""]) == (2, 4)
        peer.close()
        await until(lambda: w.observer.levels["clients", ""] == 1)


async def test_a_peer_that_lies_stands_for_no_more_clients_than_anybody_may(address):
    async with world(address) as w:
        peer = await w.peer()
        peer.writer.write(wire.encode_clients(2**64 - 1) + FRAME)
        await peer.acknowledged(1)
        assert [message.clients for message in await w.queue.fetch(0, 9)] == [CLIENTS_MAX]


async def test_a_peer_that_says_no_number_is_one_client_as_ever(address):
    """As clients and collectors do that are older than the updater."""
    async with world(address) as w:
        peer = await w.peer()
        peer.writer.write(FRAME)
        await peer.acknowledged(1)
        assert [message.clients for message in await w.queue.fetch(0, 9)] == [1]
        assert w.queue.clients == 1


# --- broken peers cost only themselves -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (struct.pack(">II", wire.FRAME_BYTES_MAX + 1, 0), "frame_out_of_range"),
        (struct.pack(">II", 4, 0), "frame_out_of_range"),
        (b"GET / HTTP/1.1\r\n\r\n", "frame_out_of_range"),
        (wire.encode_frame(HELLO.partitions, PACK), "partition_out_of_range"),
        (wire.encode_frame(wire.NO_PARTITION, PACK), "garbage"),
        (wire.encode_clients(0), "garbage"),
    ],
)
async def test_a_broken_frame_ends_its_connection_but_not_what_came_before_it(address, bytes_sent, reason):
    async with world(address) as w:
        peer, other = await w.peer(), await w.peer()
        peer.writer.write(FRAME * 2 + bytes_sent + FRAME)
        await peer.ended()
        assert peer.told[-1] == 2
        await until(lambda: w.rejected() == 1)
        assert w.rejected(reason) == 1
        assert await w.taken(count=2) == [PACK] * 2
        other.writer.write(FRAME)
        await other.acknowledged(1)
        assert w.queue.backlog(0) == 1


async def test_ten_thousand_random_byte_strings_harm_nobody(path):
    rng = random.Random(11)
    async with world(f"unix://{path}") as w:
        steady = await w.peer()
        for round_ in range(100):
            with contextlib.ExitStack() as batch:
                for _ in range(100):
                    sock = batch.enter_context(socket.socket(socket.AF_UNIX))
                    sock.connect(str(path))
                    sock.sendall(noise(rng))
                    sock.shutdown(socket.SHUT_WR)
                steady.writer.write(wire.encode_frame(3, PACK))
                await steady.acknowledged(round_ + 1)
                await until(lambda: w.observer.levels["peers", ""] == 1)
        assert w.rejected("frame_out_of_range") > 1000
        assert w.rejected("partition_out_of_range") > 1000
        assert w.rejected("cut_short") > 1000
        assert await w.taken(3, 100) == [PACK] * 100


def noise(rng):
    """Random bytes, often after a head that looks right; never more than a socket takes without a reader."""
    body = rng.randbytes(rng.randrange(1, 200))
    shape = rng.randrange(3)
    if shape == 0:
        return body
    partition = rng.choice([0, 1, 2, 4, 2**31])
    return struct.pack(">II", len(body) + 4 + (shape - 1) * rng.randrange(3), partition) + body


async def test_half_a_frame_and_then_silence_is_cut_off_in_time(address):
    async with world(address, stall=0.1) as w:
        stalled, idle = await w.peer(), await w.peer()
        stalled.writer.write(FRAME + FRAME[:-1])
        await stalled.acknowledged(1)
        await stalled.ended()
        assert w.rejected("stalled") == 1
        idle.writer.write(FRAME)  # saying nothing is no fault
        await idle.acknowledged(1)


async def test_half_a_frame_and_then_gone_is_counted(address):
    async with world(address) as w:
        peer = await w.peer()
        peer.writer.write(FRAME + FRAME[:5])
        await peer.acknowledged(1)
        peer.writer.close()
        await until(lambda: w.rejected("cut_short") == 1)
        assert await w.taken() == [PACK]


async def test_a_process_that_is_killed_half_way_loses_only_its_cut_frame(path):
    program = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.sendall(bytes.fromhex(sys.argv[2])); time.sleep(60)"
    )
    async with world(f"unix://{path}") as w:
        sent = (FRAME * 10 + FRAME[:-3]).hex()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(path), sent)
        await until(lambda: w.queue.backlog(0) == 10)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await until(lambda: w.rejected("cut_short") == 1)
        assert await w.works()


async def test_a_peer_that_never_reads_costs_a_bounded_buffer_and_ends_when_it_stops(path):
    async with world(f"unix://{path}", stall=0.2) as w:
        deaf = await w.peer()
        await deaf.hear()
        deaf.writer.transport.pause_reading()
        draining = asyncio.ensure_future(w.taken(count=5000))
        for _ in range(5000):
            deaf.writer.write(FRAME)
            await asyncio.sleep(0)
            (ours,) = w.listener._peers
            assert ours._transport.get_write_buffer_size() <= 8192
        assert len(await draining) == 5000
        assert not ours._writable
        assert await w.works()
        await until(lambda: w.rejected("stalled") == 1)


async def test_peers_above_the_cap_are_refused_and_counted_until_one_leaves(address):
    async with world(address, peers=3) as w:
        first, *_ = [await w.peer() for _ in range(3)]
        await until(lambda: w.observer.levels["peers", ""] == 3)
        refused = await w.peer()
        await refused.ended()
        assert refused.told == []
        assert w.rejected("too_many_peers") == 1
        first.close()
        await until(lambda: w.observer.levels["peers", ""] == 2)
        assert await w.works()


async def test_a_peer_that_leaves_gives_its_number_back(address):
    async with world(address) as w:
        before = w.queue.newcomer()
        peer = await w.peer()
        peer.writer.write(FRAME)
        await peer.acknowledged(1)
        peer.close()
        await until(lambda: w.observer.levels["peers", ""] == 0)
        assert list(w.queue._free) == [before + 1]
        again = await w.peer()
        await again.hear()
        assert not w.queue._free


@pytest.mark.parametrize("whole", [False, True], ids=["cut", "waiting"])
async def test_frames_that_are_cut_or_wait_for_room_take_a_bounded_memory_and_who_holds_most_goes(
    path, whole
):
    """A thousand connections could make an updater hold 600 MB, which a container does not have."""
    large = wire.encode_frame(0, b"x" * 100_000)
    async with world(f"unix://{path}", packs_max=2, bytes=1_000_000) as w:
        assert all(w.queue.offer(0, PACK) for _ in range(2))
        small = await w.peer()
        small.writer.write(FRAME)
        for _ in range(40):
            peer = await w.peer()
            peer.writer.write(large if whole else large[:-1])
        await until(lambda: w.rejected("crowded") >= 10)
        await until(lambda: w.listener.kept <= 1_000_000)
        assert await w.taken(count=2) == [PACK] * 2
        await small.acknowledged(1)


# --- a full queue -------------------------------------------------------------------------------------------


async def test_a_full_queue_pauses_only_who_feeds_it_and_acknowledges_only_what_it_took(address):
    packs = [struct.pack(">I", n) * 5000 for n in range(400)]  # 8 MB: no socket buffer holds that
    async with world(address, packs_max=2) as w:
        peer = await w.peer()
        for pack in packs:
            peer.writer.write(wire.encode_frame(0, pack))
        await peer.acknowledged(2)
        assert await w.works()
        assert w.queue.backlog(0) == 2
        assert peer.writer.transport.get_write_buffer_size() > 0
        assert await w.taken(count=len(packs)) == packs
        await peer.acknowledged(len(packs))
        acks = peer.told[1:]
        assert acks == sorted(acks)


async def test_a_peer_that_vanishes_while_it_waits_for_room_frees_its_place_at_once(path):
    async with world(f"unix://{path}", packs_max=1, peers=1, stall=0.2) as w:
        peer = await w.peer()
        peer.writer.write(FRAME * 5)
        await peer.acknowledged(1)
        peer.close()
        await until(
            lambda: w.observer.levels["peers", ""] == 0
        )  # nothing is read from it: a repeated word tells
        assert w.queue.backlog(0) == 1  # what was not acknowledged comes again from a client that lives
        assert await w.taken() == [PACK]
        assert await w.works()


class Passing(MemoryQueue):
    """A queue that passes packs on, and owes all acknowledgements until then."""

    debt = 0

    def offer(self, partition, payload, peer):
        self.debt += 1
        return super().offer(partition, payload, peer)

    def owed(self, peer):
        return self.debt


@contextlib.asynccontextmanager
async def owing(address, monkeypatch, **settings):
    monkeypatch.setattr(sys.modules[__name__], "MemoryQueue", Passing)
    async with world(address, **settings) as w:
        peer = await w.peer()
        peer.writer.write(FRAME * 3)
        await w.taken(0, 3)
        yield w, peer
        w.queue.debt = 0


async def test_frames_are_acknowledged_when_the_queue_owes_them_no_more(address, monkeypatch):
    async with owing(address, monkeypatch) as (w, peer):
        w.listener.acknowledge()
        assert await peer.hear()
        assert peer.told == [HELLO]
        w.queue.debt = 1
        w.listener.acknowledge()
        await peer.acknowledged(2)
        w.queue.debt = 0
        w.listener.acknowledge()
        await peer.acknowledged(3)


async def test_a_peer_that_is_owed_an_acknowledgement_is_told_again_and_again_what_was_taken(
    address, monkeypatch
):
    async with owing(address, monkeypatch, stall=0.04) as (_, peer):
        while peer.told.count(0) < 3:
            assert await peer.hear()


async def test_a_closing_listener_waits_for_acknowledgements_that_are_owed(address, monkeypatch):
    async with owing(address, monkeypatch, grace=SOON) as (w, peer):
        closing = asyncio.ensure_future(w.listener.close())
        _, late = await asyncio.wait([closing], timeout=20 * listener.QUIET_S)
        assert late
        w.queue.debt = 0
        w.listener.acknowledge()
        await closing
        await peer.acknowledged(3)
        await peer.ended()


async def test_a_peer_that_waits_for_room_is_told_again_and_again_what_was_taken(address):
    async with world(address, packs_max=1, stall=0.1) as w:
        peer = await w.peer()
        peer.writer.write(FRAME * 5)
        async with asyncio.timeout(SOON):
            while len(peer.told) < 5:
                assert await peer.hear()
        assert peer.told[:5] == [HELLO, 1, 1, 1, 1]
        assert await w.taken(count=5) == [PACK] * 5
        await peer.acknowledged(5)


async def test_a_broken_frame_behind_a_full_queue_is_found_once_there_is_room(path):
    async with world(f"unix://{path}", packs_max=1) as w:
        peer = await w.peer()
        peer.writer.write(FRAME * 3 + wire.encode_frame(99, PACK))
        assert await w.taken(count=3) == [PACK] * 3
        await peer.ended()
        assert w.rejected("partition_out_of_range") == 1


# --- the socket file ------------------------------------------------------------------------------------------


async def test_the_socket_is_for_the_group_and_goes_with_the_listener(path):
    async with world(f"unix://{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert path.parent.is_dir()
    assert not path.exists()


async def test_a_dead_socket_file_is_replaced(path):
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with world(f"unix://{path}") as w:
        assert await w.works()


async def test_a_living_socket_of_another_is_left_alone(path):
    async with world(f"unix://{path}") as w:
        with pytest.raises(Misconfigured, match="another process listens on"):
            await World().listener.start([f"unix://{path}"])
        assert await w.works()


async def test_a_living_socket_with_a_full_backlog_is_not_taken_for_dead(path):
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as stack:
        busy.bind(str(path))
        busy.listen(0)
        with contextlib.suppress(BlockingIOError):
            for _ in range(5):
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.setblocking(False)
                sock.connect(str(path))
        with pytest.raises(Misconfigured, match="another process listens on"):
            await World().listener.start([f"unix://{path}"])
        assert path.exists()


def lock_of(path):
    return path.with_name(f".{path.name}.lock")


async def test_two_that_start_at_once_wait_for_each_other(path):
    path.parent.mkdir()
    lock = os.open(lock_of(path), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # what the other holds between looking and listening
    late = World()
    await anext(late.queue.assignments())
    starting = asyncio.ensure_future(late.listener.start([f"unix://{path}"]))
    await asyncio.sleep(0)
    assert not starting.done()
    lock_of(path).unlink()  # as the other does when it has begun to listen
    os.close(lock)
    await starting
    assert await late.works()
    await late.listener.close()


async def test_nothing_is_left_of_the_lock(path):
    async with world(f"unix://{path}"):
        assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_whoever_may_only_look_into_the_folder_cannot_keep_an_updater_from_it(path):
    path.parent.mkdir()
    stranger = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_EX)
    try:
        async with world(f"unix://{path}") as w:
            assert await w.works()
    finally:
        os.close(stranger)


async def test_a_lock_of_one_that_was_killed_holds_up_nobody(path):
    path.parent.mkdir()
    lock_of(path).touch(0o600)
    async with world(f"unix://{path}") as w:
        assert await w.works()


def link_to_a_victim(lock):
    lock.with_name("victim").write_text("precious")
    lock.symlink_to(lock.with_name("victim"))


def readable_by_others(lock):
    lock.touch()
    lock.chmod(0o644)


def anothers(lock):
    lock.touch(0o600)
    os.chown(lock, 65534, 65534)


@pytest.mark.parametrize("plant", [link_to_a_victim, readable_by_others, os.mkfifo, os.mkdir, anothers])
async def test_what_others_put_in_the_place_of_the_lock_is_told_of_and_left_alone(path, plant, monkeypatch):
    """Starting again may help, when it was another's lock after all: so it is no mistake of the configuration."""
    if plant is anothers and os.geteuid():
        pytest.skip("only root can make another's file")
    monkeypatch.setattr(socket_file, "LOCK_S", 0.1)
    path.parent.mkdir()
    plant(lock_of(path))
    with pytest.raises(Unavailable, match="is another user's"):
        await World().listener.start([f"unix://{path}"])
    assert lock_of(path).name in os.listdir(path.parent)  # noqa: PTH208  pathlib's is refused in coroutines
    if plant is link_to_a_victim:
        assert path.with_name("victim").read_text() == "precious"


async def test_a_file_that_is_no_socket_is_left_alone(path):
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(Misconfigured, match="is no socket"):
        await World().listener.start([f"unix://{path}"])
    assert path.read_text() == "precious"


async def test_a_successors_socket_file_is_not_removed(path):
    async with world(f"unix://{path}"):
        path.unlink()
        path.write_text("the successor's")
    assert path.exists()


@pytest.mark.parametrize(
    "address",
    [
        *(
            "http://127.0.0.1:1",
            "tcp://127.0.0.1",
            "tcp://:7171",
            "tcp://127.0.0.1:port",
            "unix://",
            "unix://host/path",
        ),
        *("tcp://127.0.0.1:99999", "tcp://192.0.2.1:7171", "unix:///" + "long/" * 30 + "sock", "hints.sock"),
    ],
)
async def test_an_address_that_cannot_work_is_named_and_nothing_stays_open(
    address, path, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    if address.startswith("unix:///long"):
        address = f"unix://{tmp_path}/{address[8:]}"
    listener = World().listener
    with pytest.raises(Misconfigured, match=r"^listen: "):
        await listener.start([f"unix://{path}", address])
    assert not path.exists()


# --- closing ----------------------------------------------------------------------------------------------------


async def test_close_takes_and_acknowledges_what_is_in_flight(address):
    async with world(address) as w:
        peers = [await w.peer() for _ in range(5)]
        await until(lambda: w.observer.levels["peers", ""] == 5)
        for peer in peers:
            peer.writer.write(FRAME * 500)
        await w.listener.close()
        for peer in peers:
            await peer.acknowledged(500)
            await peer.ended()
        assert w.queue.backlog(0) == 2500
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await connect(w.listener.addresses[0])


async def test_close_is_bounded_when_a_peer_never_stops_and_another_waits_for_room(path):
    async with world(f"unix://{path}", packs_max=8, grace=0.2) as w:
        waits, talks = await w.peer(), await w.peer()
        waits.writer.write(FRAME * 50)
        await waits.acknowledged(8)
        talking = asyncio.ensure_future(talk(talks))
        async with asyncio.timeout(SOON):
            await w.listener.close()
        await waits.ended()
        await talking
        assert w.queue.backlog(0) == 8
        assert not w.listener._peers


async def talk(peer):
    with contextlib.suppress(ConnectionError):
        while not peer.writer.transport.is_closing():
            peer.writer.write(FRAME)
            await peer.writer.drain()
            await asyncio.sleep(0.001)


async def test_close_after_the_queue_has_closed_acknowledges_nothing_more(path):
    async with world(f"unix://{path}", packs_max=1) as w:
        peer = await w.peer()
        peer.writer.write(FRAME * 3)
        await peer.acknowledged(1)
        await w.queue.close()
        await peer.ended()
        assert peer.told == [HELLO, 1]
