"""Seats: the keys that a unit has lost are counted at the loss, so its number of live keys needs no look at each."""

from __future__ import annotations

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.hints import Kind
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.peers import Peer
from cacheupdater.core.seats import Seats, moved, narrow, narrow_parts
from cacheupdater.core.unit import URGENCY, Demand, Unit
from cacheupdater_client.protocol.patterns import Pattern

A, B, C = b"p:1", b"p:2", b"p:3"
SOURCE = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)
SPACE = Namespace("p", Pattern.compile("p:{id:int}"), SOURCE)
CLAIM = Demand(Kind.TOUCH, URGENCY[Kind.TOUCH], OpenPack(0, 0.0, Peer(1)), 0.0)


@pytest.fixture
def seats():
    return Seats()


@pytest.fixture
def unit(seats):
    made = Unit(SPACE, [A, B, C], CLAIM)
    made.parts = [(CLAIM, [A, B]), (CLAIM, [C])]
    seats.give(made)
    return made


def test_all_keys_of_a_new_unit_sit_in_it(seats, unit):
    assert seats == {A: unit, B: unit, C: unit}
    assert seats.live(unit) == [A, B, C]
    assert list(seats.live_parts(unit)) == [(CLAIM, [A, B]), (CLAIM, [C])]


def test_who_is_given_another_seat_has_left_the_unit(seats, unit):
    other = Unit(SPACE, [B], CLAIM)
    moved(unit)
    seats.give(other)

    assert seats[B] is other
    assert seats.live(unit) == [A, C]
    assert list(seats.live_parts(unit)) == [(CLAIM, [A]), (CLAIM, [C])]


def test_a_vacated_seat_is_nobodys(seats, unit):
    seats.vacate(unit, A)

    assert A not in seats
    assert seats.live(unit) == [B, C]


def test_a_narrowed_unit_has_lost_nothing_of_what_is_left_of_it(seats, unit):
    seats.vacate(unit, A)
    narrow(unit, seats.live(unit))
    assert (unit.keys, unit.gone) == ([B, C], 0)

    narrow_parts(unit, [(CLAIM, [C])])
    seats.forget([B])
    assert (unit.keys, seats.live(unit), seats) == ([C], [C], {C: unit})
