"""Runs the demonstration once all processes are up: collects, measures and shows reads, and disturbs the updater.

`main` starts the processes and calls `Conductor.run` once. Everything happens in its one loop, in the main thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cacheupdater.demo import plan
from cacheupdater.demo.books import Books, Part
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.outage import Outage
from cacheupdater.demo.stage import Outcome

if TYPE_CHECKING:
    from cacheupdater.demo.keys import Keys
    from cacheupdater.demo.screen import Screen
    from cacheupdater.demo.stage import Stage


class Conductor:
    """One run of the demonstration."""

    def __init__(self, stage: Stage, screen: Screen, keys: Keys) -> None:
        self._stage = stage
        self._screen = screen
        self._keys = keys
        self._most = stage.updater.budget
        self._steered = False
        self._books = Books(stage.updater.cost(), time.monotonic())
        self._refresh_at = time.monotonic() + plan.REFRESH_S

    def run(self, duration: float) -> Outcome:
        """The warm-up, then `duration` seconds that count, split by `plan.SHARES`."""
        self._play(until=self._stage.follower.since + plan.WARM_UP_S, phase="warm-up")
        usual = self._begin()
        begins = time.monotonic()  # the warm-up ends late; the first part must not be shorter for that
        self._stage.follower.paused = False
        if duration < plan.SHORTEST_WITH_KILL_S:
            self._play(until=begins + duration, phase="as usual")
            self._turn_over()
            return self._outcome(usual)
        share_usual, share_still = plan.SHARES
        self._play(until=begins + share_usual * duration, phase="as usual")
        still = self._begin()
        self._stage.shop.office.hot = False
        self._screen.say(f"the {plan.HOT} hottest products stand still now; all others change alike")
        self._play(until=begins + (share_usual + share_still) * duration, phase="hot ones still")
        self._stage.shop.office.hot = True
        outage, killed = self._begin(), Outage(self._stage, self._screen)
        self._play(until=begins + duration, phase="kill -9", outage=killed)
        self._turn_over()
        return self._outcome(usual, still, outage, hints_again=killed.hints_again)

    def _outcome(
        self,
        usual: Part,
        still: Part | None = None,
        outage: Part | None = None,
        *,
        hints_again: float | None = None,
    ) -> Outcome:
        return Outcome(usual, still, outage, hints_again, self._most, self._steered)

    def _begin(self) -> Part:
        self._turn_over()
        return self._books.begin()

    def _play(self, *, until: float, phase: str, outage: Outage | None = None) -> None:
        """Runs until `until`. If an outage is not over then, waits for it, at most as long as a start may take."""
        while (now := time.monotonic()) < until or (
            outage is not None and not outage.over and now < until + plan.START_TIMEOUT_S
        ):
            self._collect()
            if outage is not None:
                outage.turn(now)
            self._steer()
            if now >= self._refresh_at:
                self._refresh_at = now + plan.REFRESH_S
                self._turn_over()
                left = f"{until - now:.0f} s left" if now < until else "until it is back"
                self._screen.show(f"{phase}, {left}", self._books.recent(), budget=self._stage.updater.budget)
            time.sleep(plan.TURN_S)
        self._collect()

    def _steer(self) -> None:
        """Changes the budget of all four applications, if a key was pressed."""
        for key in self._keys.pressed():
            at = plan.BUDGETS.index(self._stage.updater.budget) + {"+": 1, "=": 1, "-": -1}.get(key, 0)
            budget = plan.BUDGETS[min(max(at, 0), len(plan.BUDGETS) - 1)]
            if budget != self._stage.updater.budget:
                self._spend(budget)

    def _spend(self, budget: int) -> None:
        self._turn_over()  # rows spent so far belong to the old budget
        self._steered = True
        self._most = max(self._most, budget)
        updater, ttl = self._stage.updater, interval(budget)
        updater.spend(budget)
        for application in self._stage.shop.applications:
            application.keep(ttl)
        self._screen.say(
            f"{budget} rows/s (SIGHUP); TTL {ttl:.1f} s; fixed stays at {updater.every:.1f} s until a restart"
        )

    def _collect(self) -> None:
        """Counts what the applications have read since the last look."""
        for lane, read, verdict in self._stage.shop.reads():
            self._books.slice(lane).add(read, verdict)
        while not self._stage.follower.said.empty():
            self._screen.say(self._stage.follower.said.get())

    def _turn_over(self) -> None:
        updater = self._stage.updater
        self._books.turn_over(updater.cost(), time.monotonic(), budget=updater.budget)
