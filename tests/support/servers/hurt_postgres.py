"""A proxy to PostgreSQL that can be hurt: its answers come late, it refuses, hangs or cuts, and then it is well again.

It notes when somebody came to it or asked it something, how many connections were open, and which rows it gave
when. A request to cancel is no load: it has a connection of its own, and is counted nowhere.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from urllib.parse import urlsplit, urlunsplit

from cacheupdater.local.ports import free_port

LATE_S = 2.0
PIECE = 65_536
CANCEL = struct.pack("!ii", 16, 80877102)  # how such a request begins
FAREWELL, ROW, COMPLETE = b"X", b"D", b"C"
HEADER = 5
CUT = struct.pack("ii", 1, 0)  # a socket that lingers for no time resets its connection


class HurtPostgres:
    """Serves until the end of the block."""

    def __init__(self, url, *, columns):
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._port = free_port()  # no outgoing connection gets it while the server is away
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._columns = columns
        self._trouble = ""
        self._pairs = {}  # each client's socket -> its server's
        self._lock = threading.Lock()
        self.contacts = []  # when somebody came or asked
        self.open = []  # (when, 1 or -1): a connection more, or less
        self.loads = []  # (when, rows) of each statement that was answered with rows of `columns`
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self._port}"))

    def __enter__(self):
        self._accept()
        return self

    def __exit__(self, *_):
        self.hurt("refused")

    def hurt(self, trouble):
        """From now on there is this trouble: `slow`, `refused`, `hanging`, `reset`, or none."""
        self._trouble = trouble
        if trouble not in {"slow", "hanging"}:
            with self._lock:
                for pair in [*self._pairs.items()]:
                    _cut(*pair)
        if trouble == "refused":
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        elif self._listening.fileno() < 0:
            self._listening = socket.create_server(("127.0.0.1", self._port))
            self._accept()

    def _accept(self):
        threading.Thread(target=self._accept_from, args=[self._listening], daemon=True).start()

    def _accept_from(self, listening):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                if self._trouble == "reset":
                    self.contacts.append(time.monotonic())
                    _cut(client)
                else:
                    threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client):
        """Passes on what the client sends. Ends when the client has gone, or was cut."""
        with client, socket.create_connection(self._to) as server, contextlib.suppress(OSError):
            piece = client.recv(PIECE)
            if piece.startswith(CANCEL):
                server.sendall(piece)
                server.recv(PIECE)
                return
            with self._lock:
                self._pairs[client] = server
                self.open.append((time.monotonic(), 1))
            if self._trouble in {"refused", "reset"}:  # it began before this pair was known
                _cut(client, server)
            threading.Thread(target=self._answer, args=[client, server], daemon=True).start()
            try:
                while piece:
                    if not piece.startswith(FAREWELL):
                        self.contacts.append(time.monotonic())
                    if self._trouble != "hanging":
                        server.sendall(piece)
                    piece = client.recv(PIECE)
            finally:
                with self._lock:
                    del self._pairs[client]
                    self.open.append((time.monotonic(), -1))

    def _answer(self, client, server):
        answers = Answers(self._columns)
        with contextlib.suppress(OSError):
            while piece := server.recv(PIECE):
                if self._trouble == "slow":
                    time.sleep(LATE_S)
                if self._trouble != "hanging":
                    client.sendall(piece)
                    self.loads += [(time.monotonic(), rows) for rows in answers.take(piece)]
            client.shutdown(socket.SHUT_RDWR)


class Answers:
    """The frames that a server sends: a letter, their length, and what they hold."""

    def __init__(self, columns):
        self._row = struct.pack("!h", columns)
        self._begun = b""
        self._rows = 0

    def take(self, piece):
        """How many rows each statement had that is complete now."""
        complete = []
        self._begun += piece
        while len(self._begun) >= HEADER and len(self._begun) > (size := self._size()):
            frame, self._begun = self._begun[: size + 1], self._begun[size + 1 :]
            if frame.startswith(ROW):
                self._rows += frame.startswith(self._row, HEADER)
            elif frame.startswith(COMPLETE):
                complete.append(self._rows)
                self._rows = 0
        return [rows for rows in complete if rows]

    def _size(self):
        return struct.unpack_from("!i", self._begun, 1)[0]


def _cut(*sockets):
    for each in sockets:
        with contextlib.suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT)
            each.shutdown(socket.SHUT_RDWR)
            each.close()
