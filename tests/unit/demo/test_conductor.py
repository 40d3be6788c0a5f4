"""The conductor's answer to the keys + and -: another budget for all four, within the ladder."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from cacheupdater.demo import conductor, plan
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.conductor import Conductor
from cacheupdater.demo.lanes import LANES, SERVED
from cacheupdater.demo.updater import Cost


class Updater:
    """Notes what it may spend."""

    def __init__(self):
        self.budget, self.every, self.told = plan.BUDGET, 2.0, []

    def spend(self, budget):
        self.budget = budget
        self.told.append(budget)

    def cost(self):
        return {lane.name: Cost() for lane in SERVED}


class Application:
    """Notes its TTL."""

    def __init__(self, lane):
        self.lane, self.ttl = lane, None

    def keep(self, ttl):
        self.ttl = ttl


class Keys:
    """A person who types this."""

    def __init__(self, text):
        self._text = iter([text])

    def pressed(self):
        return next(self._text, "")


@pytest.fixture
def perform():
    """What has happened after somebody has typed something."""

    def performed(typed):
        said = []
        shop = SimpleNamespace(applications=[Application(lane) for lane in LANES])
        stage = SimpleNamespace(updater=Updater(), shop=shop)
        conductor = Conductor(stage, SimpleNamespace(say=said.append), Keys(typed))
        conductor._steer()
        return stage, said

    return performed


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("", []),
        ("x\n", []),
        ("++", [42, 60]),
        ("==", [42, 60]),
        ("--", [21, 15]),
        ("+-", [42, 30]),
        ("+++++", [42, 60, 85, 120]),
    ],
)
def test_plus_and_minus_move_the_budget_within_its_ladder(perform, typed, told):
    stage, said = perform(typed)
    assert stage.updater.told == told
    assert len(said) == len(told)


def test_the_ttl_follows_the_budget_by_the_formula_and_the_screen_says_what_fixed_does(perform):
    stage, (said,) = perform("+")
    assert {application.ttl for application in stage.shop.applications} == {interval(42)}
    assert "fixed stays at 2.0 s until a restart" in said


class Clock:
    """Goes on while somebody sleeps, and far longer than it was told."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += 7 * seconds


class Screen:
    """Notes the budget of each frame, and what has happened before it."""

    def __init__(self):
        self.frames, self.said = [], []

    def show(self, phase, recent, *, budget):
        self.frames.append((budget, len(self.said)))

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def run(monkeypatch):
    """A run of five seconds, in which somebody types something at once: its screen and its outcome."""

    def ran(typed):
        clock, screen = Clock(), Screen()
        monkeypatch.setattr(conductor, "time", clock)
        follower = SimpleNamespace(since=clock.now, paused=True, said=SimpleQueue())
        shop = SimpleNamespace(applications=[], reads=list)
        stage = SimpleNamespace(updater=Updater(), shop=shop, follower=follower)
        return screen, Conductor(stage, screen, Keys(typed)).run(5.0)

    return ran


def test_the_first_part_lasts_as_long_as_planned_though_the_warm_up_ended_late(run):
    _, outcome = run("")
    assert outcome.usual.seconds >= 5.0


@pytest.mark.parametrize(("typed", "budget"), [("", 30), ("++", 60), ("--", 15)])
def test_each_frame_after_a_key_shows_the_new_budget_and_the_outcome_counts_with_it(run, typed, budget):
    screen, outcome = run(typed)
    assert screen.frames
    assert {shown for shown, events in screen.frames if events == len(typed)} == {budget}
    assert outcome.usual.allowed == pytest.approx(budget * outcome.usual.seconds)
    assert (outcome.budget, outcome.steered) == (max(budget, plan.BUDGET), bool(typed))
