"""The course of the demonstration with fake updaters: its outcome if they work well, and if they do not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cacheupdater.demo.group import plan
from cacheupdater.demo.group.conductor import Conductor
from cacheupdater.demo.group.member import Member
from cacheupdater.demo.group.stage import Stage
from cacheupdater.errors import CacheUpdaterError

HALVES = set(range(6)), set(range(6, 12))


class Actor:
    """A member that is asked often before anything becomes of it."""

    def __init__(self, name, owned=()):
        self.name, self.owned, self.pid, self.last_pid = name, set(owned), 1, 1
        self.dead, self.rate, self.then, self.asked = False, 0.0, None, 0

    def kill(self):
        orphans, self.owned, self.pid, self.dead = self.owned, set(), None, True
        return orphans

    def start(self):
        self.pid = 1

    def ready(self, _within):
        return True

    def listen(self):
        if self.then:
            self.asked += 1
            self.then(self.asked)

    def measure(self, _seconds):
        return 10


class Still:
    """Reads and announces nothing."""

    total, delays, lost = 0, (), 0

    def look(self, _now):
        """Nothing to see."""

    def stale(self):
        return 0

    def stop(self):
        """Is still."""


@pytest.fixture
def stage(monkeypatch):
    for name, seconds in (("WARM_UP_S", 0.0), ("FOLLOW_UP_S", 0.1), ("OWNED_TIMEOUT_S", 20.0)):
        monkeypatch.setattr(plan, name, seconds)
    monkeypatch.setattr("cacheupdater.demo.group.conductor.numbers.REFRESH_S", 0.1)
    members = [Actor("A", HALVES[0]), Actor("B", HALVES[1]), Actor("C")]
    members[2].pid = None
    shop = SimpleNamespace(office=Still(), reads=tuple)
    return Stage(shop, Still(), members)


@pytest.fixture
def perform(stage):
    def performed():
        said = []
        screen = SimpleNamespace(say=said.append, show=lambda phase, *_: said.append(phase))
        return Conductor(stage, screen).run(0.3), said

    return performed


def takes_over(stage):
    """B hears of the death after a few looks, and shares with C a few looks after that has come."""
    dead, survivor, new = stage.members

    looks = iter(range(100_000))

    def heard(_asked):
        if dead.dead and new.pid is None and next(looks) > 3:
            survivor.owned = set(range(12))

    def joins(asked):
        survivor.owned, new.owned = HALVES if asked > 3 else (set(), set())

    survivor.then, new.then = heard, joins


def test_a_survivor_that_takes_over_and_a_new_one_that_gets_its_share(stage, perform):
    takes_over(stage)
    outcome, said = perform()
    assert outcome.orphans == 6
    assert outcome.owned_after > 0.1
    assert outcome.joined_in > 0.1
    assert outcome.shares == {"B": 6, "C": 6}
    assert [part.title for part in outcome.parts] == [
        "as usual, two updaters",
        "6 partitions, no owner",
        "one has all the work",
        "two again",
    ]
    assert any("A is dead, and 6 partitions have no owner" in line for line in said)
    assert any("all 12 partitions have an owner again" in line for line in said)
    assert all(part.refreshes for part in outcome.parts)


def test_partitions_that_nobody_takes_over_are_waited_for_a_while_and_told(perform, monkeypatch):
    monkeypatch.setattr(plan, "OWNED_TIMEOUT_S", 0.2)
    outcome, _ = perform()
    assert outcome.owned_after is None
    assert outcome.joined_in is None
    assert outcome.shares == {"B": 6, "C": 0}


def test_values_that_stay_stale_are_brought_home(stage, perform, monkeypatch):
    takes_over(stage)
    monkeypatch.setattr(plan, "REST_S", 0.2)
    stage.announced.lost = 3
    outcome, _ = perform()
    assert outcome.rest.lost == 3


def test_an_updater_that_ends_by_itself_ends_the_demonstration(stage, perform, tmp_path):
    def ends(_asked):
        raise CacheUpdaterError("the updater has ended")

    stage.members[1].then = ends
    with pytest.raises(CacheUpdaterError, match="has ended"):
        perform()


def test_actors_are_asked_what_members_can_answer():
    assert all(hasattr(Member, name) for name in ("kill", "start", "ready", "listen", "measure", "pid"))
