"""Addresses of 127.0.0.1 and of the file system behind which nobody serves, each in another way.

A connection is refused, or accepted and never answered, or reset. Used in the place of Redis, of an updater and of Kafka.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_RESET = struct.pack(
    "ii", 1, 0
)  # SO_LINGER: `close` throws away what is on its way, and the peer gets a reset


@contextlib.contextmanager
def refusing():
    """A port that nobody else can take either."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        yield taken.getsockname()[1]


@contextlib.contextmanager
def hanging(path=None):
    """A port, or a unix socket at this path. The system accepts connections and commands; nobody reads them."""
    with socket.socket(socket.AF_UNIX) if path else socket.socket() as listening:
        listening.bind(str(path) if path else ("127.0.0.1", 0))
        listening.listen(1024)
        yield path or listening.getsockname()[1]


@contextlib.contextmanager
def resetting():
    """A port whose connections are reset when the first command arrives."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reset_all():
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listening.accept()
                    threading.Thread(target=reset, args=[peer], daemon=True).start()

        def reset(peer):
            with contextlib.suppress(OSError), peer:
                peer.recv(1)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

        threading.Thread(target=reset_all, daemon=True).start()
        yield listening.getsockname()[1]
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # ends `accept`
