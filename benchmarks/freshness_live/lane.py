"""One lane: a policy at a budget, from the inherited cache to the verdict.

`run` calls `measure` lane after lane; a test of the suite calls it with smaller traffic. While a lane runs, this process only
watches, so that the measured processes have the machine.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freshness_live.crowd import Crowd
from freshness_live.measured import judged_window, said
from freshness_live.servers import LOADER
from freshness_live.traffic import inherited
from freshness_live.updater import Updater, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from freshness_live.measured import Said, Window
    from freshness_live.servers import Servers
    from freshness_live.statements import Rows, Use
    from freshness_live.traffic import Traffic

LAST_S = 0.5  # before the end
PRICE, FIXED, TTL = POLICIES = ("price", "fixed", "ttl")
FEED, INVALIDATE = TOLD = (
    "price+feed",
    "price+invalidate",
)  # price, and changes are told: by the database, by the writer


@dataclass(frozen=True)
class Lane:
    """A policy at a budget."""

    policy: str
    budget: float  # rows per second
    traffic: Traffic
    restart: bool = False  # the updater is killed half way through, and started again

    @property
    def name(self) -> str:
        return f"{self.policy}{', killed once,' if self.restart else ''} at {self.budget:g} rows/s"

    @property
    def prices(self) -> bool:
        """Whether the policy is price."""
        return self.policy in {PRICE, *TOLD}

    @property
    def interval(self) -> float:
        """Seconds of `every`, or of the TTL, that cost just this budget."""
        return self.traffic.interval(self.budget)


@dataclass(frozen=True)
class Result:
    """The results of a lane. Shares, rates and times are those after the warm-up."""

    lane: Lane
    stale: float  # share of the reads
    reads: float  # per second
    missing: int  # reads for which Redis had nothing
    rows: float  # per second
    loads: Rows  # of the whole lane
    took: tuple[float, float]  # milliseconds of an MGET: median and p99, loads included
    cpu: dict[str, float]  # cores, by kind of process
    windows: tuple[Window, ...]  # what the sampler of `price` says, and the truth

    @property
    def use(self) -> Use:
        """The worst window; the burst is a second's rows."""
        return self.loads.worst(self.lane.budget, self.lane.budget)


def measure(lane: Lane, servers: Servers, *, look: float, tell: Callable[[str], None]) -> Result:
    """Measures one lane. Every `look` seconds the updater is asked about the reads of that time."""
    ttl = lane.interval if lane.policy == TTL else None
    cached = inherited(lane.traffic, lane.interval)
    servers.renew(lane.traffic.keys, feed=lane.policy == FEED)
    with tempfile.TemporaryDirectory(prefix="cacheupdater-live-") as name, ExitStack() as stack:
        updater = None if ttl else Updater(Path(name), _settings(lane, servers), over=look)
        if updater:
            stack.callback(updater.stop)
            updater.start()
        emit = updater.emit if updater else None
        announce = lane.policy == INVALIDATE
        crowd = Crowd(lane.traffic, servers, Path(name), emit=emit, ttl=ttl, announce=announce)
        stack.callback(crowd.end)
        crowd.gather()
        servers.fill(cached, ttl=ttl is not None, told=lane.policy in TOLD)
        watch = _Watch(lane, crowd, updater, tell)
        watch.until_the_end(look)
        crowd.join()
        return watch.result(servers)


def _settings(lane: Lane, servers: Servers) -> dict[str, object]:
    every = {"every": f"{lane.interval:.3f}s"}
    refresh = {"policy": PRICE} if lane.prices else every
    feed = lane.policy == FEED
    return settings(servers, servers.database(LOADER), budget=lane.budget, refresh=refresh, feed=feed)


class _Watch:
    """Watches a lane while it runs."""

    def __init__(
        self, lane: Lane, crowd: Crowd, updater: Updater | None, tell: Callable[[str], None]
    ) -> None:
        self._lane, self._crowd, self._updater, self._tell = lane, crowd, updater, tell
        self._said: list[Said] = []
        self._cpu: dict[str, float] = {}
        self._wall = time.time() - time.monotonic()  # noqa: TID251  the database's log tells Unix time
        self._start = crowd.begin()
        self._warm = self._start + lane.traffic.warm
        self._end = self._start + lane.traffic.seconds

    def until_the_end(self, look: float) -> None:
        """Waits for the end, with a look now and then."""
        self._sleep_until(self._warm)
        before = self._crowd.cpu(self._pid)
        if self._lane.restart and self._updater:
            self._sleep_until((self._start + self._end) / 2)
            self._updater.kill()
            self._updater.start()
            before["updater"] = 0.0  # another process
        self._look_around(self._end - LAST_S, look)  # while all still live
        after = self._crowd.cpu(self._pid)
        watched = self._end - LAST_S - self._warm
        self._cpu = {kind: (seconds - before[kind]) / watched for kind, seconds in after.items()}

    def _look_around(self, end: float, look: float) -> None:
        asked = self._updater if self._lane.policy == PRICE and not self._lane.restart else None
        start = time.monotonic()
        while asked and start + look <= end:
            self._sleep_until(start + look)
            now = time.monotonic()
            told = said(asked.page("/freshness"), start=now - look, end=now)
            self._said += [told] if told else []
            start += look
        self._sleep_until(end)

    def _sleep_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            ahead = self._end - time.monotonic()
            self._tell(f"{self._lane.name}: {ahead:.0f} s to go")
            time.sleep(min(left, 1.0))

    @property
    def _pid(self) -> int | None:
        return self._updater.pid if self._updater else None

    def result(self, servers: Servers) -> Result:
        """The results, after all processes have ended."""
        judged, reads = self._crowd.judged()
        rows = servers.log.rows()
        took = reads.took[(reads.began >= self._warm) & (reads.began < self._end)] * 1000
        span = self._warm, self._end
        return Result(
            lane=self._lane,
            stale=judged.share(*span),
            reads=judged.per_second(*span),
            missing=judged.missing(*span),
            rows=rows.between(self._warm + self._wall, self._end + self._wall),
            loads=rows,
            took=(float(np.median(took)), float(np.quantile(took, 0.99))),
            cpu=self._cpu,
            windows=tuple(judged_window(each, judged) for each in self._said),
        )
