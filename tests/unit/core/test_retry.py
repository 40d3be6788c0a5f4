"""Back-off, attempts and quarantine."""

from __future__ import annotations

import pytest
from stories.engine import limits

from cacheupdater.core.retry import Quarantine, Troubles

A, B = b"p:1", b"p:2"


def test_delay_doubles_up_to_two_seconds():
    troubles = Troubles(limits(), lambda: 1.0)
    delays = []
    for _ in range(8):
        troubles.failed(A, own=False)
        delays.append(troubles.delay(A))

    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])


def test_half_of_the_delay_is_drawn_by_lot_so_that_keys_do_not_return_together():
    draws = iter((0.0, 0.5, 1.0))
    troubles = Troubles(limits(), lambda: next(draws))
    troubles.failed(A, own=True)

    assert [troubles.delay(A) for _ in range(3)] == pytest.approx([0.05, 0.075, 0.1])


def test_delay_stays_bounded_after_thousands_of_failures():
    troubles = Troubles(limits(), lambda: 1.0)
    for _ in range(5_000):
        troubles.failed(A, own=False)

    assert troubles.delay(A) == 2.0


def test_only_own_errors_use_up_the_attempts():
    troubles = Troubles(limits(), lambda: 1.0)

    assert not any(troubles.failed(A, own=False) for _ in range(50))
    assert [troubles.failed(A, own=True) for _ in range(5)] == [False] * 4 + [True]


def test_success_forgets_the_trouble():
    troubles = Troubles(limits(), lambda: 1.0)
    for key in (A, B):
        troubles.failed(key, own=True)
    troubles.over([A, b"p:9"])

    assert len(troubles) == 1
    assert not any(troubles.failed(A, own=True) for _ in range(4))


def test_quarantine_bars_a_key_until_its_time_is_over():
    quarantine = Quarantine(limits())
    quarantine.put(A, "no such column", 10.0)

    assert quarantine.bars(A, 69.9)
    assert not quarantine.bars(A, 70.0)
    assert len(quarantine) == 0
    assert not quarantine.bars(B, 10.0)


def test_quarantine_keeps_error_and_times_for_a_person_to_read():
    quarantine = Quarantine(limits())
    quarantine.put(A, "no such column", 10.0)

    record = quarantine.keys[A]
    assert (record.error, record.since, record.until) == ("no such column", 10.0, 70.0)


def test_full_quarantine_lets_the_oldest_go():
    quarantine = Quarantine(limits(quarantined=2))
    for at, key in enumerate((A, B, A, b"p:3")):
        quarantine.put(key, "no", float(at))

    assert list(quarantine.keys) == [A, b"p:3"]
