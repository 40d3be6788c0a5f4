"""The loads that the database served, by its own log: their times and numbers of rows.

PostgreSQL logs the statements of one role with their parameters as it begins to run them. The keys of a load are one array,
so its length is the number of rows. The figures rely on no count of our own.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

import asyncpg
import numpy as np

LOGGED = ("ALTER SYSTEM SET log_line_prefix = '%n '", "SELECT pg_reload_conf()")
WINDOWS = (1.0, 10.0, 60.0)  # seconds
ON_THE_WAY_S = 0.05  # a load is paid before it is sent; on a busy machine it may be logged so much later

_LOAD = re.compile(rb"^(\d+\.\d+) DETAIL: +[Pp]arameters: \$1 = '\{([\d,]+)\}'$", re.MULTILINE)


class Use(NamedTuple):
    """One window's use of the budget."""

    share: float
    window: float  # seconds
    at: float  # seconds from the first load to the window's end


class Rows(NamedTuple):
    """Loads in the order in which they began."""

    times: np.ndarray  # seconds of Unix time; the log says milliseconds
    counts: np.ndarray

    def between(self, start: float, end: float) -> float:
        """Rows per second."""
        within = (self.times >= start) & (self.times < end)
        return float(self.counts[within].sum()) / (end - start)

    def worst(self, rate: float, burst: float, *, late: float = ON_THE_WAY_S) -> Use:
        """The window that uses most of its allowance, which is `rate` * seconds + `burst`.

        Rows may come up to `late` seconds late, and so closer together than they were paid.
        """
        total = np.concatenate(([0], np.cumsum(self.counts)))
        worst = Use(0.0, WINDOWS[0], 0.0)
        for window in WINDOWS if len(self.times) else ():
            first = np.searchsorted(self.times, self.times - window, side="right")
            inside = total[1:] - total[first]
            last = int(inside.argmax())
            share = float(inside[last]) / (rate * (window + late) + burst)
            worst = max(worst, Use(share, window, float(self.times[last] - self.times[0])))
        return worst


class Log:
    """The server's log file, read from a mark on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._mark = 0

    @classmethod
    def of(cls, url: str) -> Log:
        """The log of this server, found by asking PostgreSQL."""

        async def ask() -> str:
            connection = await asyncpg.connect(url.replace("+asyncpg", ""))
            try:
                return str(await connection.fetchval("SHOW data_directory"))
            finally:
                await connection.close()

        return cls(Path(asyncio.run(ask())).parent / "log")

    def mark(self) -> None:
        """Only lines from now on count."""
        self._mark = self._file.stat().st_size

    def rows(self) -> Rows:
        """All loads since the mark."""
        with self._file.open("rb") as file:
            file.seek(self._mark)
            found = _LOAD.findall(file.read())
        times = np.array([float(at) for at, _ in found])
        counts = np.array([keys.count(b",") + 1 for _, keys in found], dtype=np.int64)
        order = np.argsort(times, kind="stable")
        return Rows(times[order], counts[order])
