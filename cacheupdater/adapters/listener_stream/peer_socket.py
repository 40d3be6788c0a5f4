"""What the system knows of a peer's connection, and whether it still looks after the peer.

The listener asks once for each connection. Nothing is kept here, and nothing waits.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

_CREDENTIALS_BYTES = 12  # of Linux: process, user and group
KEEPALIVE_S = 60  # a TCP peer whose machine has vanished is noticed after this and a few probes


def origin_of(sock: socket.socket) -> Hashable:
    """The process at the other end, or its machine; None if the system does not know it."""
    try:
        if sock.family != socket.AF_UNIX:
            return str(sock.getpeername()[0])
        if hasattr(socket, "SO_PEERCRED"):
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    except OSError:
        pass  # the peer has gone already
    return None


def keep_alive(sock: socket.socket) -> None:
    if sock.family == socket.AF_UNIX:
        return  # the kernel knows when the other process has gone
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # systems without it use their own two hours
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
