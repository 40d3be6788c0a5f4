"""Back-off and attempts."""

from __future__ import annotations

import pytest
from stories.engine import limits

from cacheupdater.core.retry import Troubles

A, B = b"p:1", b"p:2"


def test_delay_doubles_up_to_two_seconds():
    troubles = Troubles(limits(), lambda: 1.0)
    delays = []
    for _ in range(8):
        troubles.failed(A, 1.0, own=False)
        delays.append(troubles.delay(A))

    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])


def test_half_of_the_delay_is_drawn_by_lot_so_that_keys_do_not_return_together():
    draws = iter((0.0, 0.5, 1.0))
    troubles = Troubles(limits(), lambda: next(draws))
    troubles.failed(A, 1.0, own=True)

    assert [troubles.delay(A) for _ in range(3)] == pytest.approx([0.05, 0.075, 0.1])


def test_delay_stays_bounded_after_thousands_of_failures():
    troubles = Troubles(limits(), lambda: 1.0)
    for _ in range(5_000):
        troubles.failed(A, 1.0, own=False)

    assert troubles.delay(A) == 2.0


def test_only_own_errors_use_up_the_attempts():
    troubles = Troubles(limits(), lambda: 1.0)

    assert not any(troubles.failed(A, 1.0, own=False) for _ in range(50))
    assert [troubles.failed(A, 1.0, own=True) for _ in range(5)] == [False] * 4 + [True]


def test_success_forgets_the_trouble():
    troubles = Troubles(limits(), lambda: 1.0)
    for key in (A, B):
        troubles.failed(key, 1.0, own=True)
    troubles.over([A, b"p:9"])

    assert len(troubles) == 1
    assert not any(troubles.failed(A, 1.0, own=True) for _ in range(4))
