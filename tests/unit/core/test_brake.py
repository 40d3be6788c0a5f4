"""The mass-deletion brake: trips on a wrong schema, not on a clearance sale."""

from __future__ import annotations

import pytest

from cacheupdater.core.brake import LATEST, LEAST_ABSENT, WINDOW, Brake


def keys(number, first=0):
    return [b"p:%d" % each for each in range(first, first + number)]


def test_few_deletions_never_trip_it():
    few = keys(LEAST_ABSENT - 1)
    assert not Brake().trips(few, few, 0.0)


def test_hundreds_that_vanish_at_once_trip_it():
    assert Brake().trips(keys(200), keys(150), 0.0)


def test_rows_that_are_there_again_release_it():
    brake = Brake()
    assert brake.trips(keys(200), keys(200), 0.0)

    assert not brake.trips(keys(200), [], 1.0)


def test_small_units_add_up_within_the_window():
    brake = Brake()
    told = [brake.trips([key], [key], at * 0.1) for at, key in enumerate(keys(LEAST_ABSENT + 5))]

    assert told.index(True) == LEAST_ABSENT - 1


def test_absences_of_long_ago_do_not_count():
    brake = Brake()
    brake.trips(keys(15), keys(15), 0.0)

    assert not brake.trips(keys(15, 100), keys(15, 100), WINDOW)


def test_half_that_is_absent_is_believed():
    assert not Brake().trips(keys(200), keys(100), 0.0)


@pytest.mark.parametrize("every", [0.1, 1.0, 5.0])
def test_however_often_keys_are_loaded_none_is_deleted_when_all_vanish(every):
    """If each load counted, keys that are loaded each second would all be gone before it tripped."""
    brake, now = Brake(), 0.0
    while now < 30.0:
        assert not brake.trips(keys(100), [], now)
        now += every
    assert brake.trips(keys(100), keys(100), now)


def test_a_key_that_is_absent_in_try_after_try_counts_once():
    brake = Brake()
    assert not any(brake.trips(keys(10), keys(10), at * 0.5) for at in range(10))


def test_a_busy_namespace_loses_half_of_the_latest_loads_at_most():
    brake, unit = Brake(), 100
    for first in range(0, 10_000, unit):
        assert not brake.trips(keys(unit, first), [], 1.0)
    lost = 0
    while not brake.trips(keys(unit, lost), keys(unit, lost), 1.0):
        lost += unit
    assert lost <= LATEST / 2 + unit


def test_namespace_where_rows_often_vanish_learns_what_is_usual():
    brake = Brake()
    now = 0.0
    for _ in range(60):
        brake.trips(keys(100), keys(30), now)
        now += WINDOW
    assert brake.usual > 0.2

    assert not brake.trips(keys(100), keys(75), now + 2 * WINDOW)
    assert Brake().trips(keys(100), keys(75), 0.0)


def test_what_trips_the_brake_never_becomes_usual():
    brake = Brake()
    now = 0.0
    for _ in range(60):
        assert brake.trips(keys(100), keys(90), now)
        now += WINDOW

    assert brake.usual == 0.0
