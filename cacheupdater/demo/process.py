"""An updater's process: `python -m cacheupdater run`, as an operator would start it, watched from outside.

The base class of the demonstrations' updaters, which write the configuration and read the metrics. The process ends with
ours, and Ctrl-C in the terminal does not reach it.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

from cacheupdater.demo import plan
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

_SCRAPE_TIMEOUT_S = 1.0  # an answer takes 5 ms


class UpdaterProcess:
    """One updater, however often it is started."""

    def __init__(self, config: Path, log: Path) -> None:
        self.log = log
        self._config = config
        self._port = free_port()  # of its pages
        self._listens = False  # to signals
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Starts it and returns at once; `ready` says when it accepts hints. Call from the main thread, which outlives it."""
        command = [sys.executable, "-P", "-m", "cacheupdater", "run", "-c", str(self._config)]
        with self.log.open("ab") as log:
            # a session of its own: Ctrl-C is for the conductor
            self._process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def ready(self, within: float) -> bool:
        """Waits at most so long for its ready line. Raises if it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], within)
        if not readable:
            return False
        if not self._process.stdout.readline().startswith(b"ready"):
            raise self._ended()
        self._listens = True
        return True

    def wait_ready(self) -> None:
        """Waits for the first start."""
        if not self.ready(plan.START_TIMEOUT_S):
            raise CacheUpdaterError(f"the updater is not ready after {plan.START_TIMEOUT_S:g} s")

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise self._ended()

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if that takes too long. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._listens = False
        self._process.send_signal(number)
        try:
            self._process.wait(plan.EOF_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def _page(self) -> str:
        """Its metrics. OSError if it does not answer."""
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=_SCRAPE_TIMEOUT_S) as page:
            text: str = page.read().decode()
        return text

    def _ended(self) -> CacheUpdaterError:
        said = self.log.read_text("utf-8", "replace")[-2000:]
        return CacheUpdaterError(f"the updater has ended; it says:\n{said}")
