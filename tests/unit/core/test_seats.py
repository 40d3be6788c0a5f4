"""Seats: the keys that a unit has lost are counted at the loss, so its number of live keys needs no look at each."""

from __future__ import annotations

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.hints import Kind
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.peers import Peer
from cacheupdater.core.seats import (
    forget,
    give,
    join,
    live_keys,
    live_parts,
    moved,
    narrow,
    narrow_parts,
    vacate,
)
from cacheupdater.core.unit import URGENCY, Demand, Unit
from cacheupdater_client.protocol.patterns import Pattern

A, B, C, D = b"p:1", b"p:2", b"p:3", b"p:4"
SOURCE = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)
SPACE = Namespace("p", Pattern.compile("p:{id:int}"), SOURCE)
CLAIM = Demand(Kind.TOUCH, URGENCY[Kind.TOUCH], OpenPack(0, 0.0, Peer(1)), 0.0)
CHANGE = Demand(Kind.CHANGE, URGENCY[Kind.CHANGE], OpenPack(1, 0.0, Peer(1)), 0.0)


@pytest.fixture
def seats():
    return {}


@pytest.fixture
def unit(seats):
    made = Unit(SPACE, [A, B, C], CLAIM)
    made.parts = [(CLAIM, [A, B]), (CLAIM, [C])]
    give(seats, made)
    return made


def test_all_keys_of_a_new_unit_sit_in_it(seats, unit):
    assert seats == {A: unit, B: unit, C: unit}
    assert live_keys(seats, unit) == [A, B, C]
    assert list(live_parts(seats, unit)) == [(CLAIM, [A, B]), (CLAIM, [C])]


def test_who_is_given_another_seat_has_left_the_unit(seats, unit):
    other = Unit(SPACE, [B], CLAIM)
    moved(unit)
    give(seats, other)

    assert seats[B] is other
    assert live_keys(seats, unit) == [A, C]
    assert list(live_parts(seats, unit)) == [(CLAIM, [A]), (CLAIM, [C])]


def test_keys_of_others_join_a_unit_that_has_lost_some(seats, unit):
    other = Unit(SPACE, [B, D], CHANGE)
    moved(unit)
    give(seats, other)
    own = live_keys(seats, unit)
    join(seats, unit, [(CHANGE, [B, D]), (CLAIM, own)], own)

    assert seats == dict.fromkeys([A, B, C, D], unit)
    assert (unit.keys, unit.gone, unit.demand) == ([B, D, A, C], 0, CHANGE)
    assert live_parts(seats, unit) == [(CHANGE, [B, D]), (CLAIM, [A, C])]
    assert own == [A, C], "the parts are not the unit's own list"


def test_a_vacated_seat_is_nobodys(seats, unit):
    vacate(seats, unit, A)

    assert A not in seats
    assert live_keys(seats, unit) == [B, C]


def test_a_narrowed_unit_has_lost_nothing_of_what_is_left_of_it(seats, unit):
    vacate(seats, unit, A)
    narrow(unit, live_keys(seats, unit))
    assert (unit.keys, unit.gone) == ([B, C], 0)

    narrow_parts(unit, [(CLAIM, [C])])
    forget(seats, [B])
    assert (unit.keys, live_keys(seats, unit), seats) == ([C], [C], {C: unit})
