"""The processes of a lane: readers and a writer that begin together at a gate. Their records are judged at the end.

It also measures the CPU time of each process of the run, because a figure from an overloaded machine is meaningless.
"""

from __future__ import annotations

import contextlib
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import psutil

from freshness_live.judge import Changes, judge
from freshness_live.reader import Reading, Reads, read
from freshness_live.servers import LOADER
from freshness_live.writer import Writing, write

if TYPE_CHECKING:
    from pathlib import Path

    from freshness_live.judge import Judged
    from freshness_live.servers import Servers
    from freshness_live.traffic import Traffic

GATE_S = 60.0  # cold starts of three processes on a busy machine; usually 1 s
END_S = 300.0  # for them to save their records: a writer may be behind on a busy machine
_SERVERS = {"postgres": "postgres", "redis-server": "redis"}  # processes by name


class Crowd:
    """The readers and the writer of one lane."""

    def __init__(
        self,
        traffic: Traffic,
        servers: Servers,
        folder: Path,
        *,
        emit: str | None,
        ttl: float | None,
        announce: bool = False,
    ) -> None:
        """`emit` and `ttl` as in `Reading`. `announce`: the writer calls `invalidate` after each commit."""
        spawn = get_context("spawn")
        self._gate = spawn.Barrier(traffic.readers + 2, timeout=GATE_S)
        self._seen = [folder / f"reads{number}.npz" for number in range(traffic.readers)]
        self._written = folder / "changes.npz"
        self.readers = []
        for number, file in enumerate(self._seen):
            told = Reading(traffic, number, servers.redis.url, emit, servers.database(LOADER), ttl)
            self.readers.append(spawn.Process(target=read, args=(told, file, self._gate), daemon=True))
        announced = (servers.redis.url, emit) if announce else None
        writing = Writing(traffic, servers.database(), announced)
        self.writer = spawn.Process(target=write, args=(writing, self._written, self._gate), daemon=True)

    def gather(self) -> None:
        """Returns when all wait at the gate."""
        for each in (*self.readers, self.writer):
            each.start()
        self._gate.wait()

    def begin(self) -> float:
        """Opens the gate. Returns the moment at which all have begun."""
        self._gate.wait()
        return time.monotonic()

    def join(self) -> None:
        """Waits until all have saved their records."""
        for each in (*self.readers, self.writer):
            each.join(END_S)
            if each.exitcode != 0:
                raise RuntimeError(f"a reader or writer has failed: exit code {each.exitcode}, see above")

    def end(self) -> None:
        """Ends the processes at once. Does nothing after `join`."""
        for each in (*self.readers, self.writer):
            if each.pid is not None:
                each.kill()
                each.join()

    def judged(self) -> tuple[Judged, Reads]:
        """The judged reads, after `join`."""
        with np.load(self._written) as written:
            changes = Changes(*(written[name] for name in Changes._fields))
        reads = Reads.load(self._seen)
        return judge(reads, changes), reads

    def cpu(self, updater: int | None) -> dict[str, float]:
        """The CPU seconds of each kind of process so far, postgres and redis included."""
        kinds: dict[int | None, str] = {each.pid: "readers" for each in self.readers}
        kinds |= {self.writer.pid: "writer", updater: "updater"}
        taken = dict.fromkeys(("updater", "readers", "writer", *_SERVERS.values()), 0.0)
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind = kinds.get(process.pid) or _SERVERS.get(process.name())
                if kind:
                    times = process.cpu_times()
                    taken[kind] += times.user + times.system
        return taken
