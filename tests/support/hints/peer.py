"""A sender of hints under a test's control: it can send anything, also what no client would send."""

from __future__ import annotations

import contextlib
import socket

from cacheupdater_client.protocol.wire import Hello, ReplyReader, encode_frame, encode_pack, partition_of


class HintPeer:
    """One connection to an updater's unix socket."""

    def __init__(self, path, timeout=5.0):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))
        self._replies = ReplyReader()
        self.sent = self.accepted = 0
        self.hello = None
        while self.hello is None:
            self._read()

    def _read(self):
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("the updater closed the connection")
        for reply in self._replies.feed(data):
            if isinstance(reply, Hello):
                self.hello = reply
            else:
                self.accepted = reply

    def hint(self, kind, *keys):
        """One pack per partition; returns when the updater has accepted all of them."""
        shares = {}
        for key in keys:
            shares.setdefault(partition_of(key, self.hello.partitions), []).append(key)
        for partition, share in shares.items():
            self.pack(encode_pack(kind, 0, share), partition)
        self.wait()

    def hint_unheard(self, kind, *keys):
        """One pack to the only partition; returns when the kernel has taken it."""
        self.pack(encode_pack(kind, 0, keys))

    def pack(self, payload, partition=0):
        """One frame with any payload."""
        self.raw(encode_frame(partition, payload))
        self.sent += 1

    def raw(self, data):
        """Any bytes."""
        self._socket.sendall(data)

    def wait(self):
        """Waits until every frame is accepted."""
        while self.accepted < self.sent:
            self._read()

    def closed(self):
        """Whether the updater ends this connection within the timeout."""
        with contextlib.suppress(TimeoutError):
            try:
                while True:
                    self._read()
            except ConnectionError:
                return True
        return False

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread that waits in `raw` for room ends, too
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
