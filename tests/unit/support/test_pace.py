"""Bounds on time that a busy machine keeps and a fault breaks."""

from __future__ import annotations

import time

import pytest
from suite.pace import Metronome, soonest, soonest_of


def test_bound_that_is_kept_once_is_kept():
    took = iter([9.0, 9.0, 0.1])
    assert soonest(lambda: next(took), 1.0) == 0.1


def test_bound_that_is_never_kept_fails_and_shows_each_try():
    with pytest.raises(AssertionError, match=r"not within 1 s in 3 tries: \[2.0, 2.0, 2.0\]"):
        soonest(lambda: 2.0, 1.0, tries=3)


async def test_coroutines_have_the_same_bound():
    async def attempt():
        return 2.0

    with pytest.raises(AssertionError, match="in 2 tries"):
        await soonest_of(attempt, 1.0, tries=2)


def test_metronome_tells_how_late_it_was():
    with Metronome() as control:
        time.sleep(3 * Metronome.BEAT_S)
    assert 0.0 < control.latest < 60.0
