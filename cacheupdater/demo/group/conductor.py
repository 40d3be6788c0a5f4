"""Runs this demonstration once all processes are up: two updaters share the work, one is killed, another one comes.

`main` starts the processes and calls `Conductor.run` once. Everything happens in its one loop, in the main thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cacheupdater.demo import plan as numbers
from cacheupdater.demo.group import plan
from cacheupdater.demo.group.books import Books
from cacheupdater.demo.group.member import owned, shared
from cacheupdater.demo.group.stage import Outcome, Rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.demo.group.member import Member
    from cacheupdater.demo.group.screen import Screen
    from cacheupdater.demo.group.stage import Stage


class Conductor:
    """One run of the demonstration."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self._stage = stage
        self._screen = screen
        self._outcome = Outcome()
        self._books = Books(time.monotonic())
        self._turned_at = self._heeded_at = time.monotonic()
        self._ownerless = 0.0  # seconds in which some partition had no owner

    def run(self, duration: float) -> Outcome:
        """The warm-up, then `duration` seconds that count (more on a busy machine), then a phase without changes."""
        self._wait(plan.WARM_UP_S, "warm-up")
        opened = time.monotonic()
        self._begin("as usual, two updaters")
        self._wait(plan.KILL_AT * duration, "as usual")
        self._kill()
        self._wait(opened + plan.START_AT * duration - time.monotonic(), "one has all the work")
        self._enter()
        left = opened + duration - time.monotonic()
        self._wait(max(left, plan.FOLLOW_UP_S), "two again")
        self._turn_over()
        outcome, books = self._outcome, self._books
        outcome.parts, outcome.seconds = list(books.parts), list(books.seconds)
        self._come_to_rest()
        outcome.shares = {each.name: len(each.owned) for each in self._alive}
        outcome.announced, outcome.delays = self._stage.announced.total, self._stage.announced.delays
        return outcome

    # --- what happens ---------------------------------------------------------------------------------------

    def _kill(self) -> None:
        victim, other, _ = self._stage.members
        pid, killed = victim.pid, time.monotonic()
        orphans = victim.kill()
        self._outcome.orphans = len(orphans)
        self._begin(f"{len(orphans)} partitions, no owner")
        self._screen.say(f"kill -9 {pid}: {victim.name} is dead, and {len(orphans)} partitions have no owner")
        self._screen.say(f"{other.name} notices when the session of {plan.SESSION_S} s has ended")

        def phase(now: float) -> str:
            without = plan.PARTITIONS - self._owned
            return f"{now - killed:.1f} s after the kill, {without} partitions without an owner"

        if self._play(phase, over=lambda _: self._owned == plan.PARTITIONS, most=plan.OWNED_TIMEOUT_S):
            after = self._outcome.owned_after = time.monotonic() - killed
            self._screen.say(
                f"all {plan.PARTITIONS} partitions have an owner again, {after:.1f} s after the kill"
            )
        self._begin("one has all the work")

    def _enter(self) -> None:
        """Starts a new updater. The next part begins when it has its share of the partitions."""
        new, before = self._stage.members[-1], self._ownerless
        new.start()
        self._screen.say(f"a new updater, {new.name}, is started: pid {new.pid}")
        self._play(
            lambda _: f"{new.name} starts", over=lambda _: new.ready(0.0), most=numbers.START_TIMEOUT_S
        )
        phase = f"{new.name} joins the group"
        if self._play(lambda _: phase, over=lambda _: shared(self._alive), most=plan.OWNED_TIMEOUT_S):
            took = self._outcome.joined_in = self._ownerless - before
            self._screen.say(f"{new.name} has {len(new.owned)} partitions; changing hands took {took:.1f} s")
        self._begin("two again")

    def _come_to_rest(self) -> None:
        """Stops the changes. Shoppers read on, so that all that they read is refreshed once more."""
        self._stage.shop.office.stop()
        self._begin("at rest")
        began, announced = time.monotonic(), self._stage.announced
        self._screen.say("the back office stops: no more changes")

        def rested(_: float) -> bool:
            return announced.lost == 0 and announced.stale() == 0

        self._play(lambda _: "coming to rest", over=rested, most=plan.REST_S)
        self._outcome.rest = Rest(announced.stale(), announced.lost, time.monotonic() - began)

    # --- how it is played -----------------------------------------------------------------------------------

    @property
    def _alive(self) -> list[Member]:
        return [each for each in self._stage.members if each.pid is not None]

    @property
    def _owned(self) -> int:
        return owned(self._alive)

    def _begin(self, title: str) -> None:
        self._turn_over()
        self._books.begin(title)

    def _wait(self, seconds: float, phase: str) -> None:
        until = time.monotonic() + seconds
        self._play(lambda now: f"{phase}, {max(0.0, until - now):.0f} s", over=lambda now: now >= until)

    def _play(
        self, phase: Callable[[float], str], *, over: Callable[[float], bool], most: float = float("inf")
    ) -> bool:
        """Runs until `over`; False if `most` seconds were not enough."""
        until = time.monotonic() + most
        while not over(now := time.monotonic()):
            if now >= until:
                return False
            self._collect()
            self._stage.announced.look(time.monotonic())
            if now >= self._turned_at + numbers.REFRESH_S:
                self._turn_over()
                self._screen.show(phase(now), self._stage.members, self._books)
            time.sleep(numbers.TURN_S)
        return True

    def _collect(self) -> None:
        """Counts what the applications have read since the last look, and notes which updater owns which partitions."""
        for page, read, verdict in self._stage.shop.reads():
            self._books.present.add(page, read, verdict)
        self._heed_owners(time.monotonic())

    def _heed_owners(self, now: float) -> None:
        for member in self._alive:
            member.listen()
        if self._owned < plan.PARTITIONS:
            self._ownerless += now - self._heeded_at
        self._heeded_at = now

    def _turn_over(self) -> None:
        now = time.monotonic()
        self._collect()
        for member in self._stage.members:
            self._books.present.refreshes += member.measure(now - self._turned_at)
        self._turned_at = now
        self._books.turn_over(now)
