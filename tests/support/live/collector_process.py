"""A real collector in a process of its own, as an operator would start it: `python -m cacheupdater collect`."""

from __future__ import annotations

from pathlib import Path

from live.updater_process import Updater
from live.warm import COMMAND


class CollectorProcess(Updater):
    """One collector, however often it is started; its socket, port and log stay the same."""

    def __init__(self, folder, queue, *arguments, settings=None, program=COMMAND):
        """`queue` is the URL behind it. With `settings` it reads them from a file, and gets neither URL nor addresses."""
        super().__init__(folder, settings or {}, program=program, arguments=arguments)
        self._queue = queue
        self._settings = settings

    @property
    def resident(self):
        """Bytes of memory that it uses now."""
        return self._memory("VmRSS")

    @property
    def own(self):
        """Bytes of memory without pages of files. The kernel chooses how many such pages it maps: 1 MiB more or less."""
        return self._memory("RssAnon")

    def _memory(self, name):
        status = Path(f"/proc/{self.pid}/status").read_text()
        [said] = [line for line in status.splitlines() if line.startswith(name)]
        return int(said.split()[1]) * 1024

    def _asked(self):
        if self._settings is not None:
            return "collect", "-c", str(self.file)
        places = "--listen", self.emit, "--admin", f"127.0.0.1:{self.port}"
        return "collect", "--queue", self._queue, *places


class DrainProcess(CollectorProcess):
    """One drain, however often it is started."""

    def __init__(self, folder, old, new, *, program=COMMAND):
        """`old` is the URL as updaters write it, `new` as collectors write it."""
        super().__init__(folder, new, program=program)
        self._old = old

    def _asked(self):
        return "collect", "--drain", self._old, "--queue", self._queue, "--admin", f"127.0.0.1:{self.port}"
