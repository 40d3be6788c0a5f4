"""The view shows the figures by which the policy decides."""

import pytest
from stories.price import Desk

from cacheupdater.price.view import view

A = b"p:1"


def test_nothing_is_known_of_a_stranger():
    assert view(Desk().policy, A, 1.0) is None


def test_a_key_that_is_read_and_changes_has_its_rates_and_what_a_load_is_worth():
    desk = Desk()
    for second in range(200):
        desk.read(A, at=float(second))
        if second % 10 == 9:
            desk.load(A, at=second + 0.5, changed=True)
    known = view(desk.policy, A, 210.0)
    assert known.reads == pytest.approx(1.0, rel=0.2)
    assert known.changes > 0.05
    assert (known.unread, known.age) == (11.0, 10.5)
    assert 0.3 < known.stale < 1.0
    assert known.worth > view(desk.policy, A, 201.0).worth
    assert known.price == pytest.approx(desk.market.price)


def test_to_look_changes_nothing():
    desk = Desk()
    desk.read(A, at=1.0)
    before = desk.policy.table.state.copy(), desk.policy.table.times.copy()
    view(desk.policy, A, 50.0)
    assert (desk.policy.table.state == before[0]).all()
    assert (desk.policy.table.times == before[1]).all()
