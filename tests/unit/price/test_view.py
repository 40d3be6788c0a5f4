"""The view shows the figures by which the policy decides."""

import pytest
from stories.price import Desk, priced, source

from cacheupdater.price.view import LOOKED_AT, view, worthy

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


def hot(number):
    return b"p:%d" % number


def unpaid(keys):
    """A desk whose keys have been read again and again, and never loaded: its budget pays for a row a second."""
    desk = Desk(rate=1.0)
    for second in range(60):
        desk.read(*map(hot, range(keys)), at=float(second))
    return desk


def test_keys_that_are_worth_their_row_and_not_asked_for_are_counted():
    desk = unpaid(300)
    desk.market.price = 1e-3
    desk.tick(60.2)
    asked = sum(view(desk.policy, hot(number), 60.2) is not None for number in range(300))
    counted = worthy([desk.policy], 60.2)
    assert set(counted) == {desk.namespaces[0]}
    assert 200 < counted[desk.namespaces[0]] <= asked
    desk.market.price = 1e6
    desk.tick(61.0)
    assert worthy([desk.policy], 61.0) == {}


def test_some_keys_of_a_large_table_stand_for_all():
    desk = unpaid(3 * LOOKED_AT)
    desk.market.price = 1e-3
    desk.tick(60.2)
    assert sum(worthy([desk.policy], 60.2).values()) == pytest.approx(3 * LOOKED_AT, rel=0.1)


def test_a_key_that_is_loaded_for_its_age_counts_whatever_its_worth():
    desk = Desk(priced(at=source(1.0), max_age=20.0))
    desk.read(*map(hot, range(50)), at=0.0)
    desk.market.price = 1e6
    desk.tick(1.0)
    assert worthy([desk.policy], 1.0) == {}  # a newcomer counts as eighteen seconds old
    assert sum(worthy([desk.policy], 5.0).values()) == pytest.approx(50, abs=5)  # some are measured


def test_nothing_is_counted_without_keys_or_policies():
    assert worthy([], 1.0) == {}
    assert worthy([Desk().policy], 1.0) == {}
