"""One Kafka broker's process, whatever program that is: started where it always is, stopped, killed, frozen.

kafka_server makes its command line and its data and keeps as many of these as a cluster has. The process ends with the
one that started it (see `children`).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
import time
from typing import TYPE_CHECKING, Self

from cacheupdater.testing.children import dying_with_us

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_TIMEOUT_S = 60.0  # usually 2 s; three brokers on a busy machine take ten times that
STOP_TIMEOUT_S = 30.0  # usually 0.5 s; a broker that writes its classes down takes ten seconds


class Broker:
    """One process at its ports. After `stop` or `kill`, `start` brings it back there with its data."""

    def __init__(self, command: Sequence[str], port: int, log: Path, *, plain_port: int) -> None:
        """`plain_port` is asked whether the broker is there, without any login or certificate."""
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = list(command)
        self._plain_port = plain_port
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The broker's process, while it runs."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        if self.running:
            raise RuntimeError("the broker is running already")
        with self._log.open("ab") as log:
            # a session of its own: Ctrl-C in the terminal is for the program, which then stops its broker
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                dying_with_us(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> Self:
        """Returns when the broker answers."""
        self.launch()
        if not self.answers():
            self.kill()
            raise RuntimeError(f"the broker does not start; it says:\n{self.said()}")
        return self

    def answers(self) -> bool:
        """Polls until the broker speaks Kafka; False when it ended or is too slow."""
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

    def stop(self) -> None:
        """Ends the broker in order; kills it when it does not follow. Does nothing when it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()  # a frozen process notices SIGTERM only then
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Ends the broker at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freezes the broker: connections stay, connects succeed, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def _speaks_kafka(port: int) -> bool:
    """Asks which versions it knows (ApiVersions 0): every broker answers that."""
    with socket.create_connection(("127.0.0.1", port), 0.5) as peer:
        peer.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        return peer.recv(8)[4:] == struct.pack(">i", 1)
