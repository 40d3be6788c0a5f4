"""Counts per namespace, since the start and of late."""

from __future__ import annotations

import numpy as np
import pytest

from cacheupdater.price.meter import READS, STALE, Meter


def test_amounts_are_summed_for_the_namespace_beside_them():
    meter = Meter(3)
    meter.add(READS, np.array([0, 2, 2]), np.array([1.0, 2.0, 3.0]))
    meter.add(READS, np.array([0]), np.array([4.0]))

    assert meter.total[READS].tolist() == [5.0, 0.0, 5.0]
    assert meter.total[STALE].tolist() == [0.0, 0.0, 0.0]


def test_only_namespace_takes_everything():
    meter = Meter(1)
    meter.add(READS, np.array([0, 0]), np.array([1.5, 2.0]))

    assert meter.total[READS].tolist() == [3.5]


def test_lately_is_a_minute_while_totals_stay():
    meter = Meter(1)
    meter.add(READS, np.array([0]), np.array([100.0]))
    for _ in range(60):
        meter.advance(1.0)

    assert meter.recent[READS, 0] == pytest.approx(100.0 / np.e)
    assert meter.total[READS, 0] == 100.0


def test_share_is_of_one_namespace_or_of_all_and_zero_where_nothing_was_read():
    meter = Meter(2)
    assert meter.share(STALE, READS) == 0.0
    meter.add(READS, np.array([0, 1]), np.array([10.0, 30.0]))
    meter.add(STALE, np.array([0]), np.array([5.0]))

    assert meter.share(STALE, READS) == pytest.approx(5 / 40)
    assert meter.share(STALE, READS, 0) == pytest.approx(0.5)
    assert meter.share(STALE, READS, 1) == 0.0


def test_share_after_a_long_silence_is_zero_and_no_accident_of_rounding():
    meter = Meter(1)
    meter.add(READS, np.array([0]), np.array([1.0]))
    meter.add(STALE, np.array([0]), np.array([1.0]))
    meter.advance(1e9)

    assert meter.share(STALE, READS) == 0.0
