"""Free ports for servers that tests and demonstrations start, and start again on the same port.

The ports lie below those that the system gives to outgoing connections. A port from the system itself may belong to such a
connection before the server listens, or while it is down. Nothing is reserved: another process may draw the same port.
"""

from __future__ import annotations

import random
import socket

_PORTS = range(11_000, 20_000)  # nodes of clusters have the ports from 20,000 to 42,000, with their buses
_ATTEMPTS = 100
_SYSTEM = random.SystemRandom()  # processes with one seed must not draw the same ports


def free_port() -> int:
    """A port on which nobody listens now."""
    for _ in range(_ATTEMPTS):
        port = _SYSTEM.choice(_PORTS)
        if is_free(port):
            return port
    raise RuntimeError(
        f"no free port from {_PORTS[0]} to {_PORTS[-1]}: do servers of earlier runs still run?"
    )


def free_ports(number: int) -> list[int]:
    """So many different ones."""
    ports: set[int] = set()
    while len(ports) < number:
        ports.add(free_port())
    return list(ports)


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
