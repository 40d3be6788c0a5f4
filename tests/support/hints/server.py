"""An updater's ear for tests of the client: greets, records every pack, acknowledges. On request it misbehaves.

Threads and blocking sockets, so that it shares only the wire format with the code under test.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from pathlib import Path

from suite.pace import PATIENCE_S

from cacheupdater_client.protocol.wire import (
    CHANGE,
    NO_PARTITION,
    SET,
    FrameReader,
    Hello,
    decode_clients,
    decode_pack,
    encode_ack,
    encode_hello,
    partition_of,
)


class HintServer:
    """Listens on a path (unix) or a port of 127.0.0.1 (tcp; 0 chooses one)."""

    def __init__(self, where, *, partitions=4, prefixes=(b"p:",), clients=1, greets=True, acknowledges=True):
        """With `clients` above one it hears for how many a collector stands; otherwise it is an older updater."""
        self.where = where
        self.hello = Hello(partitions, list(prefixes), clients)
        self.clients = []  # numbers that collectors have said
        self.greets, self.acknowledges = greets, acknowledges
        self.packs = []
        self.frames = 0
        self.connections = 0
        self._peers = []
        self._threads = []
        self._lock = threading.Lock()

    @property
    def url(self):
        return f"unix://{self.where}" if isinstance(self.where, Path) else f"tcp://127.0.0.1:{self.where}"

    def __enter__(self):
        if isinstance(self.where, Path):
            self.where.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self.where))
        else:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", self.where))
            self.where = self._listener.getsockname()[1]
        self._listener.listen(128)
        self._run(self._accept)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for peer in self._peers:
            peer.close()

    def _run(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self._peers.append(peer)
                self.connections += 1
                self._run(self._serve, peer)

    def _serve(self, peer):
        reader, accepted = FrameReader(), 0
        with contextlib.suppress(OSError):
            if self.greets:
                peer.sendall(encode_hello(self.hello))
            while data := peer.recv(65536):
                for partition, payload in reader.feed(data):
                    if partition == NO_PARTITION:
                        assert self.hello.clients > 1, "an older updater would end the connection"
                        self.clients.append(decode_clients(payload))
                        continue
                    pack = decode_pack(payload)
                    assert all(partition_of(key, self.hello.partitions) == partition for key in pack.keys)
                    with self._lock:
                        self.packs.append(pack)
                        self.frames += 1
                    accepted += 1
                if self.acknowledges:
                    peer.sendall(encode_ack(accepted))

    def drop_peers(self):
        """Closes every connection, as a crash would."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def hints(self, kind=None):
        """How often each key was hinted. A SET is a change, too."""
        counts = Counter()
        with self._lock:
            for pack in self.packs:
                if kind in (None, pack.kind) or (kind == CHANGE and pack.kind == SET):
                    for key, count in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
                        counts[key] += count
        return counts

    def wait_until(self, condition, timeout=PATIENCE_S):
        """Polls; returns whether the condition came true."""
        deadline = time.monotonic() + timeout
        while not (met := condition(self)) and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(met)
