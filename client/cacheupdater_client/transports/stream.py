"""unix:// and tcp://: frames down a socket, a hello and acknowledgements back.

The socket is non-blocking and every turn ends at once: connecting, the wait for the hello and a peer that reads slowly are
states that later turns look at again. A collector says here for how many clients it stands, to an updater that believes more
than one. A fault costs the connection, never a frame: the outbox keeps frames that are not acknowledged. A new attempt follows
after 50 ms, then after twice as long each time, up to a second.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater_client.native import original
from cacheupdater_client.protocol.wire import Hello, Malformed, ReplyReader, encode_clients, encode_frame

if TYPE_CHECKING:
    from cacheupdater_client.outbox import Outbox

CONNECT_S = 1.0  # an updater is near; one that takes longer is down
HELLO_S = 1.0  # the updater speaks first, at once
SILENCE_S = 10.0  # frames under way and no acknowledgement for so long: the peer has vanished
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 0.8  # and a turn of 0.1 s: an updater that was restarted gets its hints within a second
_READ_BYTES = 65536
_READS_PER_TURN = 64  # 4 MiB, the largest hello; a peer that talks without end gets no more of a turn
_UNDER_WAY = {errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK}
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)  # the application may have set SIGPIPE to kill


def _socket(*kind: int) -> socket.socket:
    made: socket.socket = original("socket", "socket")(*kind)
    return made


class UnixAddress(NamedTuple):
    """A socket file."""

    path: str

    def open(self) -> tuple[socket.socket, str]:
        """An unconnected socket, and where to connect it."""
        return _socket(socket.AF_UNIX, socket.SOCK_STREAM), self.path


class TcpAddress(NamedTuple):
    """A host name or number, and a port."""

    host: str
    port: int

    def open(self) -> tuple[socket.socket, tuple[object, ...]]:
        """As UnixAddress. Looks the name up, in the sender's thread: nothing else here may take long."""
        found = original("socket", "getaddrinfo")(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = random.choice(found)  # noqa: S311  spreads load, guards nothing
        peer = _socket(family, kind, protocol)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer, address


class StreamLink:
    """One connection at a time to one address."""

    def __init__(self, address: UnixAddress | TcpAddress) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._where: object = None
        self._connecting = False
        self._replies = ReplyReader()
        self._unsent = memoryview(b"")
        self._clients_said = self._clients_most = 1  # on this connection: by us, and by the updater's hello
        self._deadline = 0.0  # of the connect, then of the hello, then of the next acknowledgement
        self._retry_at = 0.0
        self._backoff = BACKOFF_FIRST_S
        self.connected = False  # the hello has come
        self.trouble = ""

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """Connects, reads and writes, as far as possible without waiting."""
        try:
            return self._turn(outbox, now, now_ms)
        except (OSError, Malformed) as e:
            self.close()
            self.trouble = str(e) or type(e).__name__
            # between half and whole, so that many processes do not come back in step
            self._retry_at = now + self._backoff * random.uniform(0.5, 1.0)  # noqa: S311  as above
            self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
            return False

    def _turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        if self._socket is None:
            if now < self._retry_at or not outbox.calls:
                return False
            self._open(now)
        if self._connecting and not self._finish_connecting(now):
            return True
        delivered = outbox.delivered
        self._receive(outbox, now)
        if not self.connected:
            self._check_deadline(now)
            return True
        moved = self._send(outbox, now, now_ms) or outbox.delivered > delivered
        if outbox.under_way:
            self._check_deadline(now)
        # a peer that took nothing now may take nothing for long: the usual pace will do
        return moved and (bool(self._unsent) or outbox.blocked)

    def _open(self, now: float) -> None:
        self._socket, self._where = self._address.open()
        self._socket.setblocking(False)
        self._replies = ReplyReader()
        self._unsent = memoryview(b"")
        self._clients_said = self._clients_most = 1
        self._connecting = True
        self._deadline = now + CONNECT_S

    def _finish_connecting(self, now: float) -> bool:
        assert self._socket is not None
        answer = self._socket.connect_ex(self._where)  # type: ignore[arg-type]  # as the address gave it
        if isinstance(self._address, TcpAddress) and answer in _UNDER_WAY:
            self._check_deadline(now)
            return False
        if answer not in {0, errno.EISCONN}:
            raise OSError(answer, os.strerror(answer))
        self._connecting = False
        self._deadline = now + HELLO_S
        return True

    def _check_deadline(self, now: float) -> None:
        if now > self._deadline:
            raise TimeoutError("the updater does not answer")

    def _receive(self, outbox: Outbox, now: float) -> None:
        """Reads all that has come. So the end of a stream is noticed before anything is written to a dead peer."""
        assert self._socket is not None
        for _ in range(_READS_PER_TURN):
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionResetError("the updater closed the connection")
            for reply in self._replies.feed(data):
                # also for a repeated number: with it an updater whose queue is full shows that it is alive
                self._deadline = now + SILENCE_S
                if isinstance(reply, Hello):
                    outbox.greet(reply)
                    self._clients_most = reply.clients
                    self.connected, self.trouble = True, ""
                    self._backoff = BACKOFF_FIRST_S
                elif self.connected:
                    outbox.acknowledge(reply)

    def _send(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """True if the peer took something; the rest stays in `_unsent`. Ends after a window of frames."""
        assert self._socket is not None
        moved = False
        while True:
            if not self._unsent:
                self._unsent = self._clients_anew(outbox.clients) or self._next_frame(outbox, now, now_ms)
                if not self._unsent:
                    return moved
            try:
                sent = self._socket.send(self._unsent, _NO_SIGNAL)
            except BlockingIOError:
                return moved
            moved = True
            self._unsent = self._unsent[sent:]

    def _clients_anew(self, clients: int) -> memoryview:
        """What says for how many clients we stand, if the updater listens to that and last heard another number."""
        clients = min(clients, self._clients_most)
        if clients == self._clients_said:
            return memoryview(b"")
        self._clients_said = clients
        return memoryview(encode_clients(clients))

    def _next_frame(self, outbox: Outbox, now: float, now_ms: int) -> memoryview:
        idle = not outbox.under_way
        frame = outbox.next_frame(now_ms)
        if frame is None:
            return memoryview(b"")
        if idle:
            self._deadline = now + SILENCE_S
        return memoryview(encode_frame(frame.partition, frame.pack))

    def close(self) -> None:
        """Leaves the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._connecting = self.connected = False
