"""Where applications on this machine hand in their hints: `unix:///path` and `tcp://host:port`.

The service makes one `StreamListener` beside a memory queue, starts it when partitions are ready and closes it
first of all. Each connection is a peer, which stands for one client, or for as many as it says. The listener says hello at once,
cuts the stream into frames, puts the frames on the queue unchanged, and acknowledges how many were taken. A queue that only
passes packs on may owe an acknowledgement until it has passed the pack on (`owed`, `acknowledge`). A peer for which the queue has no room is not read until there
is room. A peer's mistake costs only its own connection, with a counted reason. The listener does not look into packs
(intake decodes them) and remembers nothing beyond a connection: a client sends again what was not acknowledged. So it may
close a connection where the frames that are cut or wait for room would together take too much memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

from cacheupdater.adapters.listener_stream.peer_socket import keep_alive, origin_of
from cacheupdater.adapters.listener_stream.socket_file import BACKLOG, bound_at
from cacheupdater.core.peers import CLIENTS_MAX, NOBODY
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from cacheupdater.ports import Observer

# one read: some 4000 hints; this and a cut frame of 257 KiB are the most that one peer may occupy
READ_BYTES = 64 * 1024
# a peer with more unread bytes gets no acknowledgement until it has read; acknowledgements add up anyway
UNSENT_BYTES_MAX = 4 * 1024
# A peer that waits for room gets its last acknowledgement again: a client takes 10 s of silence for our death. The repeated
# write also shows whether the peer is still there, for nothing is read from it meanwhile.
REASSURE_EVERY_S = 2.5
# after so many seconds of silence during a close, nothing is in flight; local sockets take microseconds
QUIET_S = 0.02


class Inlet(Protocol):
    """The side of a queue that listeners see."""

    def newcomer(self, origin: Hashable = None) -> int: ...

    def gone(self, peer: int, origin: Hashable = None) -> None: ...

    @property
    def clients(self) -> int:
        """For how many clients all peers stand."""
        ...

    def stand(self, peer: int, clients: int) -> None:
        """From now on this peer stands for so many clients, or for as many as are believed."""
        ...

    def owed(self, peer: int) -> int:
        """How many of the peer's frames, counted from the last that was taken, may not be acknowledged yet."""
        ...

    def offer(self, partition: int, payload: bytes, peer: int) -> bool: ...

    async def put(self, partition: int, payload: bytes, peer: int) -> None: ...


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What one listener allows."""

    peers: int = 1024  # connections; at most half of what the process may open
    stall: float = 10.0  # s: within this a peer must end a begun frame, and read what we send
    # of all frames together that are cut or wait for room: a thousand of the largest would be 600 MB
    bytes: int = 32 * 1024 * 1024
    grace: float = 1.0  # s: how long closing waits for peers that keep sending


class StreamListener:
    """The listener on all addresses of `listen:`, with one cap on their peers."""

    def __init__(
        self, inlet: Inlet, hello: wire.Hello, *, observer: Observer, limits: PeerLimits | None = None
    ) -> None:
        self.inlet = inlet
        self.hello = _encoded(hello)
        self.partitions = hello.partitions
        self.limits = limits or PeerLimits()
        self.addresses: list[str] = []  # as bound: with the chosen port where the address says 0
        # Shared by all peers: the loop fills it and hands it to the peer in one step, so a peer keeps only cut frames.
        self.buffer = bytearray(READ_BYTES)
        self._observer = observer
        self._peers: set[_Peer] = set()
        self.kept = 0  # bytes of frames that are cut or wait for room
        self._peers_max = min(self.limits.peers, _open_files_max() // 2)
        self._servers: list[asyncio.AbstractServer] = []
        # socket file and its inode: the file of a successor must not be removed
        self._files: list[tuple[Path, int]] = []
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def peers(self) -> int:
        """How many peers are connected now."""
        return len(self._peers)

    async def start(self, addresses: Sequence[str]) -> None:
        """Listen on all addresses. If one fails, listen on none and raise Misconfigured."""
        try:
            for address in addresses:
                await self._listen(address)
        except BaseException:
            await self.close()
            raise
        self._sweep()

    async def close(self) -> None:
        """Stop accepting, take what is in flight, then close all connections."""
        for server in self._servers:
            server.close()
        await self._until_quiet()
        self._peers_max = 0  # a connection that was accepted just before the end may still turn up
        if self._sweeper:
            self._sweeper.cancel()
        for peer in list(self._peers):
            peer.leave()
        if self._peers:
            await asyncio.sleep(QUIET_S)  # last acknowledgements go out
        for peer in list(self._peers):
            peer.abort()
        for path, inode in self._files:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
        self._servers, self._files = [], []

    def greet(self, hello: wire.Hello) -> None:
        """From now on this is the hello. Peers that have another one are left, and get it when they come back at once: a client
        takes a hello only at the beginning of a connection. What was not acknowledged is sent again."""
        self.hello = _encoded(hello)
        for peer in list(self._peers):
            peer.leave()

    def acknowledge(self) -> None:
        """Tell all peers which of their frames are on the queue by now: the queue owed them some."""
        for peer in list(self._peers):
            peer.acknowledge()

    def reject(self, reason: str) -> None:
        """Count a rejected frame or connection."""
        self._observer.count("intake_rejected", 1, reason=reason)

    def admit(self, peer: _Peer) -> bool:
        """Whether there is room for one more peer; if so, counts it."""
        if len(self._peers) >= self._peers_max:
            return False
        self._peers.add(peer)
        return True

    def tell(self) -> None:
        """Report how many peers there are, and for how many clients they stand."""
        self._observer.level("peers", len(self._peers))
        self._observer.level("clients", self.inlet.clients)

    def keep(self, peer: _Peer, size: int) -> None:
        """Notes that this peer's frames take `size` bytes now. If all peers take too much, those that take most are dropped."""
        self.kept += size - peer.kept
        peer.kept = size
        while self.kept > self.limits.bytes:
            max(self._peers, key=lambda each: each.kept).drop("crowded")

    def forget(self, peer: _Peer) -> None:
        """The peer's connection is gone."""
        self.keep(peer, 0)
        self._peers.discard(peer)
        self.tell()

    async def _listen(self, address: str) -> None:
        parts = urlsplit(address)
        try:
            if parts.scheme == "unix" and parts.path and not parts.netloc:
                await self._listen_unix(Path(parts.path))
            elif parts.scheme == "tcp" and parts.hostname and parts.port is not None:
                await self._listen_tcp(parts.hostname, parts.port)
            else:
                raise Misconfigured(f"listen: {address!r} is neither unix:///path nor tcp://host:port")
        except (OSError, ValueError) as e:  # ValueError: a port that is no number
            raise Misconfigured(f"listen: cannot listen on {address}: {e}") from e

    async def _listen_unix(self, path: Path) -> None:
        sock = await bound_at(path)
        self._files.append((path, path.stat().st_ino))  # noqa: ASYNC240  once, at the start, on a local path
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: _Peer(self), sock=sock, backlog=BACKLOG))
        self.addresses.append(f"unix://{path}")

    async def _listen_tcp(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Peer(self), host, port, backlog=BACKLOG)
        self._servers.append(server)
        name = f"[{host}]" if ":" in host else host
        self.addresses.append(f"tcp://{name}:{server.sockets[0].getsockname()[1]}")

    def _sweep(self) -> None:
        """Drops stalled peers, and reassures waiting ones. It runs now and then, so that the hot path reads no clock."""
        loop = asyncio.get_running_loop()
        self.tell()  # a peer may say another number with each frame
        for peer in list(self._peers):
            peer.check(loop.time())
            peer.reassure()
        self._sweeper = loop.call_later(min(self.limits.stall / 4, REASSURE_EVERY_S), self._sweep)

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.grace
        while loop.time() < deadline:
            for peer in self._peers:
                peer.heard = False
            await asyncio.sleep(QUIET_S)
            if not any(peer.heard or peer.waiting or peer.owed for peer in self._peers):
                return


class _Peer(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, listener: StreamListener) -> None:
        self.heard = False
        self.kept = 0  # bytes, as the listener counts them
        self.waiting: asyncio.Task[None] | None = None  # for room on the queue; reading is paused meanwhile
        self._listener = listener
        self._number = NOBODY  # until the peer is admitted
        self._origin: Hashable = None
        self._transport: asyncio.Transport
        self._reader = wire.FrameReader()
        self._rest = 0  # bytes that are not yet a whole frame
        self._taken = self._told = 0  # frames: on the queue, acknowledged
        self._writable = True
        self._gone = False
        self._progress = (0, 0.0)  # taken frames, and when the number was last seen to change

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not derived from it
        if not self._listener.admit(self):
            self.drop("too_many_peers")
            return
        sock = transport.get_extra_info("socket")
        self._origin = origin_of(sock)
        self._number = self._listener.inlet.newcomer(self._origin)
        self._listener.inlet.stand(self._number, 1)
        self._listener.tell()
        self._progress = (0, asyncio.get_running_loop().time())
        keep_alive(sock)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._transport.write(self._listener.hello)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002  the size is ours
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = True
        self._rest += nbytes
        frames = self._reader.feed(bytes(memoryview(self._listener.buffer)[:nbytes]))
        refused = self._offer(frames)
        self._keep(refused)
        if refused and not self._transport.is_closing():
            self._transport.pause_reading()
            self.waiting = asyncio.get_running_loop().create_task(self._wait(refused, frames))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the reason does not matter
        self._gone = True
        if self.waiting:
            self.waiting.cancel()  # the waiting frames were not acknowledged: a client that lives sends them again
        elif self._rest:
            self._listener.reject("cut_short")
        if self._number != NOBODY:
            self._listener.inlet.gone(self._number, self._origin)
        self._listener.forget(self)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.acknowledge()

    @property
    def owed(self) -> int:
        """Taken frames that may not be acknowledged yet."""
        return self._listener.inlet.owed(self._number)

    def check(self, now: float) -> None:
        """Drops a peer that has completed no frame for too long, and owes the end of a frame or does not read our answers."""
        taken, since = self._progress
        owes = (self._rest and not self.waiting) or not self._writable
        if not owes or self._gone or taken != self._taken:
            self._progress = (self._taken, now)
        elif now - since > self._listener.limits.stall:
            self.drop("stalled")

    def reassure(self) -> None:
        """Repeat the last acknowledgement to a peer that waits."""
        if (self.waiting or self.owed) and self._writable and not self._transport.is_closing():
            self._transport.write(wire.encode_ack(self._told))

    def leave(self) -> None:
        """Close the connection after the data that was written has gone out."""
        if self.waiting:
            self.waiting.cancel()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _offer(self, frames: Iterator[tuple[int, bytes]]) -> tuple[int, bytes] | None:
        """Put frames on the queue and acknowledge them. Returns the first frame for which there is no room."""
        offer, partitions = self._listener.inlet.offer, self._listener.partitions
        refused = None
        try:
            for partition, pack in frames:
                self._rest -= len(pack) + wire.FRAME_HEAD_BYTES
                if partition >= partitions:
                    self._hear(partition, pack)
                    continue
                announced = wire.as_announced(pack)
                if not offer(partition, announced, self._number):
                    refused = partition, announced
                    break
                self._taken += 1
        except wire.Malformed as e:
            self.acknowledge()
            self.drop(e.reason)
        else:
            self.acknowledge()
        return refused

    def _hear(self, partition: int, said: bytes) -> None:
        """A frame that holds no pack. From its next pack on the peer stands for as many clients as it says."""
        if partition != wire.NO_PARTITION:
            raise wire.Malformed("partition_out_of_range", str(partition))
        self._listener.inlet.stand(self._number, wire.decode_clients(said))

    async def _wait(self, refused: tuple[int, bytes] | None, frames: Iterator[tuple[int, bytes]]) -> None:
        """Put the frames one by one as room comes, then read again."""
        try:
            while refused:
                await self._listener.inlet.put(*refused, self._number)
                self._taken += 1
                refused = self._offer(frames)
                self._keep(refused)
        except Unavailable:
            self._transport.abort()  # the frame is not acknowledged, so the client sends it to our successor
        finally:
            self.waiting = None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _keep(self, refused: tuple[int, bytes] | None) -> None:
        """Count the bytes that this peer takes. A pack that waits for room is in memory twice: as it came, and cut out."""
        size = self._rest + (2 * len(refused[1]) if refused else 0)
        if size != self.kept and not self._gone:
            self._listener.keep(self, size)

    def acknowledge(self) -> None:
        """Say how many frames are on the queue, if there are more than before."""
        accepted = self._taken - self.owed
        if self._writable and accepted > self._told and not self._transport.is_closing():
            self._told = accepted
            self._transport.write(wire.encode_ack(self._told))

    def drop(self, reason: str) -> None:
        """Close the connection at once. The client sends again what was not acknowledged."""
        self._rest = 0
        self._listener.keep(self, 0)
        self._listener.reject(reason)
        self._transport.abort()


def _encoded(hello: wire.Hello) -> bytes:
    return wire.encode_hello(hello._replace(clients=CLIENTS_MAX))


def _open_files_max() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit
