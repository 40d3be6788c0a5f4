"""What the policy makes of a pause: it asks for nothing, and learns nothing from the silence."""

from __future__ import annotations

import numpy as np
import pytest
from stories.price import Desk, priced, source

from cacheupdater.price.table import TOUCHED

A, OTHER = b"p:1", b"q:1"
READ_S = 200


@pytest.fixture
def desk():
    """Both keys are read twenty times a second, and each load finds a change."""
    db = source(100.0)
    made = Desk(priced("p", at=db), priced("q", at=db))
    for second in range(READ_S):
        made.read(A, OTHER, at=float(second), counts=[20, 20])
        made.load(A, OTHER, at=second + 0.5, changed=True)
    return made


def asked(desk, since, seconds):
    return {key for at in range(int(seconds / 0.02)) for key in desk.tick(since + at * 0.02)}


def test_no_key_of_a_paused_namespace_is_asked_for_and_its_neighbour_is(desk):
    desk.policy.pause([desk.namespaces[0]], float(READ_S))

    assert asked(desk, READ_S, 30.0) == {OTHER}


def test_after_the_pause_its_keys_are_asked_for_again(desk):
    desk.policy.pause([desk.namespaces[0]], float(READ_S))
    asked(desk, READ_S, 30.0)
    desk.policy.pause([], READ_S + 30.0)

    assert A in asked(desk, READ_S + 30.0, 10.0)


def test_the_time_of_a_pause_does_not_count_as_time_without_reads(desk):
    table = desk.policy.table
    row = table.find([A])
    state, unread = table.state[row].copy(), READ_S - table.times[row, TOUCHED]
    desk.policy.pause([desk.namespaces[0]], float(READ_S))
    for hour in range(1, 10):
        desk.tick(READ_S + 3600.0 * hour)
    end = READ_S + 36_000.0
    desk.policy.pause([], end)

    assert table.find([A]) == row
    assert np.array_equal(table.state[row], state)
    assert end - table.times[row, TOUCHED] == pytest.approx(unread)
    assert table.find([OTHER]) == -1  # nobody has read it for ten hours


def test_namespaces_without_terms_do_not_concern_the_policy(desk):
    fixed = Desk().namespaces[0]
    desk.policy.pause([fixed], float(READ_S))

    assert asked(desk, READ_S, 30.0) == {A, OTHER}
