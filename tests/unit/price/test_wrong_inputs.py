"""Wrong clocks, counts, rows and budgets: no crash, no NaN, and the budget is kept.

Warnings are errors here, so no calculation may overflow on the way either.
"""

from __future__ import annotations

import time
from math import inf, nan

import numpy as np
import pytest
from stories.price import Desk, World, keys, priced, source

from cacheupdater.core.hints import Kind
from cacheupdater.core.policy import Loaded

A, B = b"p:1", b"p:2"
HUGE = [0, -1, -(2**63), 2**32, 2**64, 2**200]


def test_counts_that_are_none():
    desk = Desk()
    for at in range(1, 40):
        desk.read(*keys(6), at=float(at), counts=HUGE)
        desk.policy.on_misses([A, B], [2**64, -5], at + 0.1)
        desk.tick(at + 0.2)
        desk.load(*keys(6), at=at + 0.3, changed=at % 2 == 0)

    assert desk.healthy()
    assert (desk.policy.table.state[:6] >= 0.0).all()


def test_counts_that_are_a_mistake_do_not_make_one_pack_cost_more_than_others():
    desk = Desk(rate=1_000.0)
    many = keys(1_000)
    for at in range(1, 40):
        desk.read(*many[:50], at=float(at))
        desk.tick(at + 0.5)
    begin = time.process_time()
    asked = desk.read(*many, at=41.0, counts=[2**32] * 1_000)

    assert time.process_time() - begin < 1.0
    assert len(asked) <= 1_000
    assert desk.healthy()


@pytest.mark.parametrize("jump", [-1e9, -100.0, 1e6, 1e12])
def test_clock_that_jumps_and_comes_back(jump):
    """The shell's clock never does; but a suspended machine is a jump, and a test of the suite may be."""
    desk = Desk()
    times = [float(at) for at in range(1, 60)]
    for now in [*times, *(jump + at for at in times), *(60.0 + at for at in times)]:
        asked = desk.read(A, B, at=now) + desk.tick(now)
        desk.policy.on_changes([B], now)
        desk.load(*dict.fromkeys(asked), at=now, changed=True)
        assert desk.healthy()

    on = max(jump, 0.0) + 1_000.0  # time goes on from the furthest that it has been
    assert desk.read(A, at=on, counts=[1_000]) == [A]


@pytest.mark.prove
def test_million_keys_that_are_read_once_take_bounded_rows_and_time():
    desk = Desk(learned=10_000)
    begin, slowest = time.process_time(), 0.0
    for turn in range(1_000):
        at = turn * 0.1
        fresh = [b"p:%d" % number for number in range(turn * 1_000, turn * 1_000 + 1_000)]
        before = time.process_time()
        desk.read(*fresh, at=at)
        desk.tick(at)
        slowest = max(slowest, time.process_time() - before)

    assert len(desk.policy.table) <= 10_000
    assert len(desk.policy.table.due) <= 15_000
    assert desk.market.tracked == len(desk.policy.table)
    assert time.process_time() - begin < 60.0
    assert slowest < 1.0
    assert desk.healthy()


@pytest.mark.prove
def test_key_whose_bytes_change_at_every_load_does_not_eat_the_budget_of_the_others():
    """A timestamp in the row: each load finds other bytes. Keys that really change still get their loads."""
    number = 50
    noisy, honest = slice(0, 1), slice(1, number)
    mu, rate = np.full(number, 2.0), np.full(number, 0.05)
    world = World(Desk(rate=5.0), keys(number), mu, rate)

    def differ(now):
        world.version[0] += 1

    world.after = differ
    world.play(300, step=0.1).play(150, step=0.1)

    assert world.desk.healthy()
    assert world.loads[noisy].sum() < 0.5 * world.rows
    assert (world.loads[honest] > 0).all()


@pytest.mark.parametrize("stamp", ["version", "age"])
def test_rows_that_say_nonsense_about_their_last_change(stamp):
    db = source()
    desk = Desk(priced("p", at=db, stamp=stamp))
    said = [nan, inf, -inf, -1.0, -1e9, 0.0, None, 1e18, -1e18, 1e308, -1e308, 2.0**63, 5.0]
    for turn in range(60):
        now = 1.0 + turn
        desk.read(A, B, at=now)
        desk.load(
            A, B, at=now + 0.5, changed=True, stamps=[said[turn % len(said)], said[turn * 5 % len(said)]]
        )
        desk.policy.on_changes([B] if turn % 3 else [A], now + 0.7)
        assert desk.healthy()

    assert desk.read(b"p:3", at=62.0) == []


def test_change_from_the_future_is_no_exposure_in_the_past():
    """`updated_at` of a clock an hour ahead: the key may look busy or quiet, but stays a number and a key."""
    db = source()
    desk = Desk(priced("p", at=db, stamp="age"))
    desk.read(A, at=0.0)
    for turn in range(1, 30):
        desk.read(A, at=turn * 10.0)
        desk.load(A, at=turn * 10.0, changed=True, stamps=[-3_600.0])

    assert desk.healthy()
    assert 1e-3 < desk.policy.table.state[0, 0] / desk.policy.table.state[0, 1] < 1e6


def test_loads_that_began_before_the_last_one_or_in_the_future():
    desk = Desk()
    desk.read(A, at=100.0)
    for began in (100.0, 50.0, -1e9, 1e9, 101.0):
        desk.policy.on_loaded(Loaded(Kind.TOUCH, [A], [True], began, ()), 102.0)
        desk.read(A, at=103.0)
        assert desk.healthy()


def test_loads_of_strangers_and_of_none_teach_nothing():
    desk = Desk()
    desk.policy.on_loaded(Loaded(Kind.TOUCH, [A], [True], 1.0, (3.0,)), 1.0)
    desk.policy.on_loaded(Loaded(Kind.TOUCH, [], [], 1.0, ()), 1.0)
    desk.policy.on_misses([], (), 1.0)

    assert desk.read(at=1.0) == []
    assert set(desk.policy.on_changes([], 1.0)) == set()
    assert len(desk.policy.table) == 0


def test_source_that_answers_ever_slower_is_charged_and_asked_less():
    """Each row takes a thousandth longer than the one before, up to hours: the bucket pays what it took."""
    db = source(300.0, timed=True)
    p = priced("p", at=db)
    desk = Desk(p)
    many, spent, took, rows = keys(200), 0.0, 0.1, []
    for at in range(1, 1_500):
        now = at * 0.1
        asked = list(dict.fromkeys(desk.read(*many, at=now) + desk.tick(now)))
        payable = db.bucket.rows(now, p.cost.per_row)
        loaded = asked[:payable]
        rows.append(len(loaded))
        if loaded:
            paid = len(loaded) * p.cost.per_row
            db.bucket.take(paid)
            took = min(took * 1.001 ** len(loaded), 3.6e6)
            spent += took * len(loaded)
            p.cost.settle(len(loaded), paid, took * len(loaded))
            desk.policy.on_loaded(Loaded(Kind.TOUCH, loaded, [True] * len(loaded), now, ()), now)
        assert desk.healthy()

    assert sum(rows[-300:]) < sum(rows[:300]) / 2
    assert spent <= 300.0 * 150.0 + 300.0 + took * max(rows)  # what was under way when it turned out dearer
    assert np.isfinite(p.cost.per_row)


@pytest.mark.prove
def test_budget_changed_live_to_next_to_nothing_and_to_far_too_much():
    number = 100
    world = World(Desk(rate=20.0), keys(number), np.full(number, 2.0), np.full(number, 0.1))
    bucket = world.desk.source.bucket
    for rate in (1e-6, 20.0, 1e12, 1.0, 20.0):
        bucket.change(rate, rate, now=world.now)
        level, begin = bucket.level(world.now), world.now
        world.play(40, step=0.1)
        assert world.rows <= rate * (world.now - begin) + level + 1.0
        assert world.desk.healthy()
    world.play(60, step=0.1)

    assert world.rows / 60 == pytest.approx(20.0, rel=0.2)


@pytest.mark.prove
def test_loads_that_never_end_do_not_pile_up():
    desk = Desk(rate=10.0)
    many, asked = keys(300), []
    for at in range(1, 3_000):
        now = at * 0.1
        asked = desk.read(*many, at=now, counts=[3] * 300) + desk.tick(now)
        desk.source.due += len(asked)  # asked for and waiting for ever: the source hangs

    assert desk.source.due <= desk.source.bucket.burst + 0.02 * 10.0 * 300 + 5  # the sampler's few besides
    assert len(desk.market.sampler._under_way) <= 1_000
    assert desk.healthy()


def test_gap_and_greatest_age_of_nothing():
    db = source()
    desk = Desk(priced("p", at=db, max_age=1e-9, worth=0.0), priced("q", at=db, worth=1e30), gap=0.0)
    for at in range(1, 50):
        asked = desk.read(A, b"q:1", at=at * 0.1) + desk.tick(at * 0.1)
        desk.load(*dict.fromkeys(asked), at=at * 0.1, changed=True)

    assert desk.healthy()
