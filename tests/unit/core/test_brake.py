"""The mass-deletion brake: trips on a wrong schema, not on a clearance sale."""

from __future__ import annotations

from cacheupdater.core.brake import LEAST_ABSENT, WINDOW, Brake


def test_few_deletions_never_trip_it():
    brake = Brake()

    assert not brake.trips(LEAST_ABSENT - 1, LEAST_ABSENT - 1, 0.0)


def test_hundreds_that_vanish_at_once_trip_it():
    assert Brake().trips(200, 150, 0.0)


def test_units_without_absent_rows_release_it():
    brake = Brake()
    assert brake.trips(200, 200, 0.0)

    assert not brake.trips(200, 0, 1.0)


def test_small_units_add_up_within_the_window():
    brake = Brake()
    told = [brake.trips(1, 1, at * 0.1) for at in range(LEAST_ABSENT + 5)]

    assert told.index(True) == LEAST_ABSENT - 1


def test_absences_of_long_ago_do_not_count():
    brake = Brake()
    brake.trips(15, 15, 0.0)

    assert not brake.trips(15, 15, 3 * WINDOW)


def test_half_that_is_absent_is_believed():
    assert not Brake().trips(200, 100, 0.0)


def test_namespace_where_rows_often_vanish_learns_what_is_usual():
    brake = Brake()
    now = 0.0
    for _ in range(60):
        brake.trips(100, 30, now)
        now += WINDOW
    assert brake.usual > 0.2

    assert not brake.trips(100, 75, now + 2 * WINDOW)
    assert Brake().trips(100, 75, 0.0)


def test_what_trips_the_brake_never_becomes_usual():
    brake = Brake()
    now = 0.0
    for _ in range(60):
        assert brake.trips(100, 90, now)
        now += WINDOW

    assert brake.usual == 0.0
