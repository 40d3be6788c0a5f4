"""After a budget or a load has changed by a factor of four, spending is near its new level within seconds."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from stories.price import Desk, World, keys

KEYS = 500
READS = 250.0  # per second
CHANGES = 5.0
BUDGETS = (10.0, 40.0)  # twice and eight times the changes
SETTLED = 20.0  # seconds after which spending is where it stays
SETTINGS = {  # of all made worlds: Zipf, sigma of the change rates, their pairing with the reads, share that never changes
    "A": (1.0, 1.5, 0.0, 0.0),
    "B": (1.0, 1.5, 0.7, 0.0),
    "C": (1.0, 1.5, -0.7, 0.0),
    "D": (1.0, 0.0, 0.0, 0.0),
    "E": (1.0, 1.5, 0.0, 0.8),
    "F": (1.0, 1.5, 0.0, 0.0),  # and its changes come in bursts
    "G": (1.2, 2.5, 0.0, 0.0),
    "H": (0.7, 1.5, 0.0, 0.0),
    "shift": (1.0, 1.5, 0.0, 0.5),  # and some of its rates are drawn anew
}
LIVED = 60.0  # seconds before the change
BURST, GAP = 5.0, 3.0  # changes of a burst, and seconds between them, on average
SHIFTS, REDRAWN = (0.45 * LIVED, 0.7 * LIVED), 0.3  # when rates are drawn anew, and of what share of the keys


def worlds():
    """Each world with both budgets. `make test` takes every fifth of these, and `make prove` all others."""
    for number, (name, budget) in enumerate(itertools.product(SETTINGS, BUDGETS)):
        marks = pytest.mark.prove if number % 5 else ()
        yield pytest.param((name, budget), marks=marks, id=f"{name}-{budget:g}")


@pytest.fixture(scope="module", params=worlds())
def lived(request):
    """A small world that has lived for a minute."""
    name, budget = request.param
    made = world(*SETTINGS[name], budget=budget)
    if name == "F":
        made.after = Bursts(made)
    if name == "shift":
        made.after = Shifts(made)
    return made.play(LIVED, step=0.1)


def world(zipf, sigma, pairing, static, *, budget):
    """Of the made worlds: how reads and changes are spread over the keys."""
    rng = np.random.default_rng(7)
    mu = np.arange(1, KEYS + 1) ** -zipf
    lam = rates(rng, sigma, static, pairing=pairing, popular=np.log(mu))
    desk = Desk(rate=budget, least=0.02)
    return World(desk, keys(KEYS), mu * READS / mu.sum(), lam, seed=2)


def rates(rng, sigma, static, *, pairing=0.0, popular=None):
    logarithm = np.sqrt(1 - pairing**2) * rng.standard_normal(KEYS)
    if pairing:
        logarithm += pairing * (popular - popular.mean()) / popular.std()
    lam = np.exp(sigma * logarithm)
    lam[rng.random(KEYS) < static] = 0.0
    return lam * CHANGES / lam.sum()


class Bursts:
    """Changes this world in bursts, in the place of its own changes. It is called after each step."""

    def __init__(self, of):
        self._world, self._rate, self._before = of, of.rate / BURST, 0.0
        self._rng = np.random.default_rng(3)
        self._due = []  # moments of changes, and their keys
        of.rate = np.zeros(KEYS)

    def __call__(self, now):
        begun = self._rng.poisson(self._rate * (now - self._before))
        for place in np.repeat(np.arange(KEYS), begun):
            gaps = self._rng.exponential(GAP, self._rng.geometric(1 / BURST))
            self._due += [(at, place) for at in now + np.cumsum(gaps) - gaps[0]]
        for _, place in (each for each in self._due if each[0] <= now):
            self._world.version[place] += 1
        self._due = [each for each in self._due if each[0] > now]
        self._before = now


class Shifts:
    """Draws some of this world's change rates anew, twice. It is called after each step."""

    def __init__(self, of):
        self._world, self._left = of, list(SHIFTS)
        self._rng = np.random.default_rng(4)

    def __call__(self, now):
        if self._left and now >= self._left[0]:
            self._left.pop(0)
            redrawn = self._rng.random(KEYS) < REDRAWN
            _, sigma, _, static = SETTINGS["shift"]
            self._world.rate = np.where(redrawn, rates(self._rng, sigma, static), self._world.rate)


def spent(it, begin, end):
    """Rows a second between two moments."""
    times, rows = np.array(it.spent).T
    return rows[(times > begin) & (times <= end)].sum() / (end - begin)


@pytest.mark.campaign
@pytest.mark.parametrize(("of", "times"), [("budget", 4.0), ("budget", 0.25), ("load", 4.0), ("load", 0.25)])
def test_spending_is_near_its_new_place_within_three_seconds(lived, of, times):
    """A price that fell by a factor of e in 20 s needed a minute for a budget four times as large."""
    it = copy.deepcopy(lived)
    bucket, changed = it.desk.source.bucket, it.now
    if of == "budget":
        bucket.change(bucket.rate * times, bucket.rate * times, now=it.now)
    else:
        it.mu *= times
    it.play(SETTLED + 10.0, step=0.1)
    later = spent(it, changed + SETTLED, it.now)
    one_row = 1.0 / 5.0  # a second, over the five that are looked at

    assert spent(it, changed + 3.0, changed + 8.0) == pytest.approx(later, rel=0.2, abs=one_row)
