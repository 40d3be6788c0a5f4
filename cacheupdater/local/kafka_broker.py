"""The process of one Kafka broker: started at fixed ports, stopped, killed, frozen.

`kafka_server` makes its command line and its data, and one of these for each broker of a cluster. The process ends with the
one that started it (see `children`).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING, Self

from cacheupdater.local.children import Child

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_TIMEOUT_S = 60.0  # usually 2 s; three brokers on a busy machine take ten times that


class Broker(Child):
    """One process at its ports. After `stop` or `kill`, `start` brings it back there with its data."""

    _STOP_TIMEOUT_S = 30.0  # usually 0.5 s; a broker that writes its classes down takes ten seconds

    def __init__(self, command: Sequence[str], port: int, log: Path, *, plain_port: int) -> None:
        """At `plain_port` the broker answers without any login or certificate: there we see whether it is up."""
        super().__init__()
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = list(command)
        self._plain_port = plain_port
        self._log = log

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        self._run(self._command, self._log)

    def start(self) -> Self:
        """Returns when the broker answers."""
        self.launch()
        if not self.answers():
            self.kill()
            raise RuntimeError(f"the broker does not start; it says:\n{self.said()}")
        return self

    def answers(self) -> bool:
        """Polls until the broker speaks Kafka; False if it ended or is too slow."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(OSError):
                if _speaks_kafka(self._plain_port):
                    return self.running  # or another program has the port, and ours ends
            time.sleep(0.02)
        return False

    def said(self) -> str:
        """The end of the broker's log."""
        return self._log.read_text("utf-8", "replace")[-2000:] if self._log.exists() else ""

    def restart(self) -> None:
        self.stop()
        self.start()


def _speaks_kafka(port: int) -> bool:
    """Whether the port answers ApiVersions 0, which every broker does."""
    with socket.create_connection(("127.0.0.1", port), 0.5) as peer:
        peer.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        return peer.recv(8)[4:] == struct.pack(">i", 1)
