"""Free ports for servers that tests and demonstrations start, and start again on the same port.

The ports lie below those that the system gives to outgoing connections. A port from the system itself may belong to such a
connection before the server listens, or while it is down. Nothing is reserved, but each process draws its ports from a part of
its own, one after the other. So of two processes that run tests side by side, neither draws the port of the other's server while
that server is down.
"""

from __future__ import annotations

import os
import random
import socket
from itertools import count, islice
from typing import TYPE_CHECKING

from cacheupdater.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

_PORTS = range(
    11_000, 20_000
)  # nodes of clusters have the ports from 20,000 to 22,700, and their buses those 10,000 above
_SYSTEM = random.SystemRandom()  # processes with one seed must not draw the same ports
_PART = 100  # ports of one process; there are 90 parts, and the process's number says which one
_turn = count(_SYSTEM.randrange(_PART))


def free_port() -> int:
    """A port on which nobody listens now."""
    [port] = free_ports(1)
    return port


def free_ports(number: int) -> list[int]:
    """So many different ones."""
    found = list(islice(filter(is_free, _drawn()), number))
    if len(found) < number:
        raise RuntimeError(
            f"{counted(number, 'free port is', 'free ports are')} asked for, and there are {len(found)} from"
            f" {_PORTS[0]} to {_PORTS[-1]}:"
            " do servers of earlier runs still run?"
        )
    return found


def _drawn() -> Iterator[int]:
    """First the ports of this process, in turn, then all others by chance."""
    own = _PORTS[os.getpid() * _PART % len(_PORTS) :][:_PART]
    for _ in own:
        yield own[next(_turn) % len(own)]
    others = [port for port in _PORTS if port not in own]
    yield from _SYSTEM.sample(others, len(others))


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
