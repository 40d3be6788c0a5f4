"""An outage: the updater is killed with SIGKILL, stays away for a while, and is started again.

The conductor makes one for the last part of a run and calls `turn` every few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.demo import plan

if TYPE_CHECKING:
    from cacheupdater.demo.screen import Screen
    from cacheupdater.demo.stage import Stage


class Outage:
    """Steps that run one after the other. Each returns whether it is done."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.hints_again: float | None = None
        """Seconds from the new updater's readiness to the first hints."""
        self._stage = stage
        self._screen = screen
        self._delivered = 0
        self._ready_at = 0.0
        self._steps = iter((self._kill, self._start, self._wait_ready, self._wait_hints))
        self._step = next(self._steps, None)
        self._due = 0.0

    @property
    def over(self) -> bool:
        """Whether the updater is back and gets hints."""
        return self._step is None

    def turn(self, now: float) -> None:
        """Runs the present step if it is due."""
        if self._step is not None and now >= self._due and self._step(now):
            self._step = next(self._steps, None)

    def _hints(self) -> int:
        return sum(application.delivered for application in self._stage.shop.applications)

    def _kill(self, now: float) -> bool:
        self._stage.follower.paused = True
        pid = self._stage.updater.pid
        self._stage.updater.kill()
        self._delivered = self._hints()
        self._due = now + plan.DOWN_S
        self._screen.say(f"kill -9 {pid}: the updater is dead; reads go on, the values are in Redis")
        return True

    def _start(self, now: float) -> bool:
        self._stage.updater.start()
        self._due = now
        self._screen.say(
            f"a new updater is started: pid {self._stage.updater.pid}; it has everything to learn"
        )
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
            f"ready; the clients have reconnected: hints reach it again {self.hints_again:.2f} s later"
        )
        return True
