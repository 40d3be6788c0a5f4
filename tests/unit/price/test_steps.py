"""After a budget or a load has changed by a factor of four, spending is near its new level within seconds."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from stories.price import Desk, World, keys

KEYS = 500
READS = 250.0  # per second
CHANGES = 5.0
BUDGETS = (10.0, 40.0)  # twice and eight times the changes
SETTLED = 20.0  # seconds after which spending is where it stays
SETTINGS = {  # of the made worlds: Zipf, sigma of the change rates, their pairing with the reads, share that never changes
    "A": (1.0, 1.5, 0.0, 0.0),
    "B": (1.0, 1.5, 0.7, 0.0),
    "E": (1.0, 1.5, 0.0, 0.8),
    "G": (1.2, 2.5, 0.0, 0.0),
}


@pytest.fixture(scope="module", params=[(name, budget) for name in SETTINGS for budget in BUDGETS], ids=str)
def lived(request):
    """A small world that has lived for a minute."""
    name, budget = request.param
    return world(*SETTINGS[name], budget=budget).play(60, step=0.1)


def world(zipf, sigma, pairing, static, *, budget):
    """Of the made worlds: how reads and changes are spread over the keys."""
    rng = np.random.default_rng(7)
    mu = np.arange(1, KEYS + 1) ** -zipf
    popular = np.log(mu)
    lam = np.exp(
        sigma
        * (
            np.sqrt(1 - pairing**2) * rng.standard_normal(KEYS)
            + pairing * (popular - popular.mean()) / popular.std()
        )
    )
    lam[rng.random(KEYS) < static] = 0.0
    desk = Desk(rate=budget, least=0.02)
    return World(desk, keys(KEYS), mu * READS / mu.sum(), lam * CHANGES / lam.sum(), seed=2)


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
