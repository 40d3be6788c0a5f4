"""Free ports for servers that tests and demonstrations start, and start again on the same port.

The ports lie below those that the system gives to outgoing connections. A port from the system itself may belong to such a
connection before the server listens, or while it is down. Nothing is reserved: another process may draw the same port.
"""

from __future__ import annotations

import random
import socket
from itertools import islice

from cacheupdater.core.words import counted

_PORTS = range(
    11_000, 20_000
)  # nodes of clusters have the ports from 20,000 to 22,700, and their buses those 10,000 above
_SYSTEM = random.SystemRandom()  # processes with one seed must not draw the same ports


def free_port() -> int:
    """A port on which nobody listens now."""
    [port] = free_ports(1)
    return port


def free_ports(number: int) -> list[int]:
    """So many different ones."""
    drawn = _SYSTEM.sample(_PORTS, len(_PORTS))
    found = list(islice(filter(is_free, drawn), number))
    if len(found) < number:
        raise RuntimeError(
            f"{counted(number, 'free port is', 'free ports are')} asked for, and there are {len(found)} from"
            f" {_PORTS[0]} to {_PORTS[-1]}:"
            " do servers of earlier runs still run?"
        )
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
