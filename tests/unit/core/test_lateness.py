"""Old reads are dropped. Reads of a sender with a wrong clock are kept after its first few packs."""

from __future__ import annotations

import pytest

from cacheupdater.core.lateness import BINS_MAX, KNOWN_S, LATE_S, SIGHTINGS, SPELL_S, Lateness


def heard(lateness: Lateness, age: float, *, times: int = SIGHTINGS, since: float = 0.0) -> float:
    """So many packs, a spell apart; when the last came."""
    for at in range(times):
        lateness.sighted(age, since + at * SPELL_S)
    return since + (times - 1) * SPELL_S


def test_reads_older_than_a_minute_are_late():
    lateness = Lateness()
    assert not lateness.is_late(LATE_S, 0.0)
    assert lateness.is_late(LATE_S + 1.0, 0.0)


@pytest.mark.parametrize("age", [61.0, 300.0, 86_400.0])
def test_a_sender_whose_clock_is_behind_is_heard_after_a_few_packs(age):
    lateness = Lateness()
    now = heard(lateness, age, times=SIGHTINGS - 1)
    assert lateness.is_late(age, now)
    now = heard(lateness, age)

    assert not lateness.is_late(age, now)
    assert age <= lateness.behind(now) <= age + 10.0
    assert lateness.is_late(age + LATE_S + 20.0, now)


def test_packs_that_were_held_up_are_no_clock_however_many_come_at_once():
    lateness = Lateness()
    for number in range(1_000):
        lateness.sighted(300.0, number / 1_000)

    assert lateness.is_late(300.0, 1.0)
    assert lateness.behind(1.0) == 0.0


def test_a_sender_that_is_rarely_heard_is_not_silenced_by_the_others():
    lateness, now = Lateness(), 0.0
    for _ in range(SIGHTINGS):
        for _ in range(100):
            lateness.sighted(0.1, now)
            now += 1.0
        lateness.sighted(400.0, now)

    assert not lateness.is_late(400.0, now)


def test_a_clock_that_was_put_right_is_forgotten():
    lateness = Lateness()
    now = heard(lateness, 300.0)
    assert not lateness.is_late(300.0, now + KNOWN_S - 1.0)
    assert lateness.is_late(300.0, now + KNOWN_S)


def test_a_clock_that_is_ahead_makes_nobody_late_and_is_known():
    lateness = Lateness()
    lateness.sighted(-120.0, 0.0)
    assert lateness.ahead(1.0) == 120.0
    assert not lateness.is_late(-120.0, 1.0)
    assert lateness.ahead(KNOWN_S) == 0.0


def test_senders_with_clocks_of_all_kinds_take_little_memory():
    lateness = Lateness()
    for number in range(10 * BINS_MAX):
        lateness.sighted(100.0 * number, number * SPELL_S)

    assert len(lateness._seen) <= BINS_MAX
