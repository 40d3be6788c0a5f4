"""Child processes that end with the process that started them, however that process ends. So no orphan stays.

Code that starts a server or an updater passes its command line through `dying_with_us`. On Linux the kernel then ends the
child together with the thread that started it: start children from a thread that lives long, the main one. On other systems
the command stays unchanged, and only an orderly end of the parent ends the child.

`Child` is the base class of a Redis, a sentinel and a Kafka broker of one's own: one process at a time, which can be stopped,
killed, frozen and brought back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# the child asks to be killed with its parent (prctl 1, signal 9), then becomes the program
_DIE_WITH_PARENT = "import ctypes,os,sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The same command, but killed with this process. Its first word is a path: PATH is not searched."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *command]


class Child:
    """One server's process, of any program."""

    _STOP_TIMEOUT_S: float  # how long SIGTERM may take

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's process, while it runs."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Ends the server in order, and kills it if that takes too long. Does nothing if it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()  # a frozen process notices SIGTERM only then
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freezes the server: connections stay, connects succeed, nothing answers. Returns when the server stands still.

        A signal is only a wish: on a busy machine a server of many threads still answered requests after `kill` had returned.
        """
        self._signal(signal.SIGSTOP)
        if self._process is not None and hasattr(os, "waitid"):
            # Reports the stop once all threads have stopped; WNOWAIT leaves the exit code to `Popen`.
            # `Popen` collects a program that has ended whenever it looks, before it signals too: then nothing is left to wait for.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Ends `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _run(self, command: Sequence[str], log: Path) -> None:
        """Starts the process without waiting. Its output is appended to the log."""
        if self.running:
            raise RuntimeError("the server is running already")
        with log.open("ab") as said:
            # a session of its own: Ctrl-C in the terminal is for the program, which then stops its server
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
