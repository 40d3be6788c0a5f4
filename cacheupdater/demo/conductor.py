"""The course of the demonstration once everything runs: collect reads, measure them, show them, and kill the updater.

`main` sets the stage and calls `Conductor.run` once. Everything happens in its one loop, in the main thread.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.demo import plan
from cacheupdater.demo.lanes import LANES, OURS, TOLD
from cacheupdater.demo.ledger import Account, Ledger
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.demo.follow import Follower
    from cacheupdater.demo.lanes import Application, Lane
    from cacheupdater.demo.screen import Screen
    from cacheupdater.demo.shop import BackOffice
    from cacheupdater.demo.updater import Cost, Updater

_TURN_S = 0.05  # between two looks at what has come in


@dataclass(frozen=True, slots=True)
class Stage:
    """Everybody on it."""

    ledger: Ledger
    office: BackOffice
    follower: Follower
    updater: Updater
    applications: Sequence[Application]


class Outcome(NamedTuple):
    """What the conductor brings home."""

    accounts: dict[Lane, Account]
    seconds: float
    killed: bool
    hints_again: float | None  # seconds from the new updater's readiness to the first hints


class Books:
    """The accounts: of this second, of the last few, and of everything since the warm-up."""

    def __init__(self, costs: dict[str, Cost], now: float) -> None:
        self.total = _blank()
        self.began = now
        self._slice = _blank()
        self._recent: deque[tuple[float, dict[Lane, Account]]] = deque(
            maxlen=round(plan.WINDOW_S / plan.REFRESH_S)
        )
        self._since = now
        self._costs = costs

    def slice(self, lane: Lane) -> Account:
        """Where reads are counted now."""
        return self._slice[lane]

    def turn_over(self, costs: dict[str, Cost], now: float) -> None:
        """The present second has ended."""
        for lane in (OURS, TOLD):
            spent = costs[lane.name].minus(self._costs[lane.name])
            self._slice[lane].charge(spent.rows, spent.statements)
        for lane in LANES:
            self.total[lane].merge(self._slice[lane])
        self._recent.append((now - self._since, self._slice))
        self._costs, self._slice, self._since = costs, _blank(), now

    def forget(self, now: float) -> None:
        """The warm-up is over: what was counted so far does not count."""
        self.total = _blank()
        self.began = now

    def recent(self) -> tuple[dict[Lane, Account], float]:
        """The last few seconds, and how many they are."""
        window = _blank()
        for _, accounts in self._recent:
            for lane in LANES:
                window[lane].merge(accounts[lane])
        return window, max(sum(seconds for seconds, _ in self._recent), 1e-9)


class Outage:
    """The updater is killed at a given time, stays away for a while, and is started again."""

    def __init__(self, stage: Stage, screen: Screen, at: float) -> None:
        self.hints_again: float | None = None
        self._stage = stage
        self._screen = screen
        self._delivered = 0
        self._ready_at = 0.0
        self._steps = iter((self._kill, self._start, self._wait_ready, self._wait_hints))
        self._step = next(self._steps, None)
        self._due = at

    @property
    def over(self) -> bool:
        """The updater is back, and hints reach it."""
        return self._step is None

    def turn(self, now: float) -> None:
        """Does what is due."""
        if self._step is not None and now >= self._due and self._step(now):
            self._step = next(self._steps, None)

    def _hints(self) -> int:
        return sum(application.delivered for application in self._stage.applications)

    def _kill(self, now: float) -> bool:
        self._stage.follower.paused = True
        pid = self._stage.updater.pid
        self._stage.updater.kill()
        self._delivered = self._hints()
        self._due = now + plan.DOWN_S
        self._screen.say(
            f"kill -9 {pid}: the updater is dead. Reads go on: the values are in Redis, and nobody waits for an updater"
        )
        return True

    def _start(self, now: float) -> bool:
        self._stage.updater.start()
        self._due = now
        self._screen.say(f"a new updater is started: pid {self._stage.updater.pid}")
        return True

    def _wait_ready(self, now: float) -> bool:
        if not self._stage.updater.ready(within=0.0):
            return False
        self._ready_at = now
        return True

    def _wait_hints(self, now: float) -> bool:
        if self._hints() <= self._delivered:
            return False
        self.hints_again = now - self._ready_at
        self._stage.follower.paused = False
        self._screen.say(
            f"it is ready, and hints reach it again {self.hints_again:.2f} s later: the clients have reconnected by themselves"
        )
        return True


class Conductor:
    """One performance."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self._stage = stage
        self._screen = screen
        self._books = Books(stage.updater.cost(), time.monotonic())
        self._refresh_at = time.monotonic() + plan.REFRESH_S

    def run(self, duration: float) -> Outcome:
        """Warm-up and `duration` seconds that count."""
        opening = self._stage.follower.since
        measured_from = opening + plan.WARM_UP_S
        self._play(until=measured_from, phase="warm-up")
        self._turn_over()
        self._books.forget(time.monotonic())
        self._stage.follower.paused = False
        ends = measured_from + duration
        outage = None
        if duration >= plan.SHORTEST_WITH_KILL_S:
            outage = Outage(self._stage, self._screen, measured_from + duration / 2)
        self._play(until=ends, phase="", outage=outage)
        self._turn_over()
        seconds = time.monotonic() - self._books.began
        hints_again = outage.hints_again if outage else None
        return Outcome(self._books.total, seconds, killed=outage is not None, hints_again=hints_again)

    def _play(self, *, until: float, phase: str, outage: Outage | None = None) -> None:
        """A started outage is waited for: at most as long as a start may take."""
        while (now := time.monotonic()) < until or (
            outage is not None and not outage.over and now < until + plan.START_TIMEOUT_S
        ):
            self._collect()
            if outage is not None:
                outage.turn(now)
            if now >= self._refresh_at:
                self._refresh_at = now + plan.REFRESH_S
                self._turn_over()
                self._screen.show(phase or f"{max(0.0, until - now):.0f} s left", *self._books.recent())
            time.sleep(_TURN_S)
        self._collect()

    def _collect(self) -> None:
        """What the applications have read since the last look."""
        if self._stage.office.failure is not None:
            raise CacheUpdaterError("the back office has failed") from self._stage.office.failure
        for application in self._stage.applications:
            account = self._books.slice(application.lane)
            for read in application.reads():
                account.add(read, self._stage.ledger.judge(read))
        while not self._stage.follower.said.empty():
            self._screen.say(self._stage.follower.said.get())

    def _turn_over(self) -> None:
        self._books.turn_over(self._stage.updater.cost(), time.monotonic())


def _blank() -> dict[Lane, Account]:
    return {lane: Account() for lane in LANES}
