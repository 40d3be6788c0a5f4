"""Which hints are kept on disk: by kind, by age and by size, without a disk."""

from __future__ import annotations

import random

import pytest

from cacheupdater.core.hints import Kind
from cacheupdater.core.spilling import (
    AWAY_S,
    PACE_BURST_S,
    PARTS,
    SEGMENT_BYTES,
    SEGMENT_S,
    SEGMENTS_MAX,
    SIZE_MIN,
    Absence,
    Limits,
    Pace,
    Spilling,
)

MIB = 1024 * 1024
NOW = 1_700_000_000_000
SEEDS = 50


def put(spilling, kind, size=100, hints=1, now_ms=NOW):
    segment = spilling.place(kind, now_ms)
    spilling.add(segment, kind, now_ms, hints=hints, size=size)
    return segment


def test_changes_and_misses_share_a_segment_and_touches_have_their_own():
    spilling = Spilling(Limits())
    change, miss, touch = (put(spilling, kind) for kind in (Kind.CHANGE, Kind.MISS, Kind.TOUCH))
    assert change is miss
    assert change.urgent
    assert not touch.urgent


def test_a_segment_is_sealed_when_it_is_large_or_old():
    spilling = Spilling(Limits())
    first = put(spilling, Kind.CHANGE, size=SEGMENT_BYTES)
    second = put(spilling, Kind.CHANGE)
    third = put(spilling, Kind.CHANGE, now_ms=NOW + int(SEGMENT_S * 1000))
    assert [each.number for each in spilling] == [1, 2, 3]
    assert (first.sealed, second.sealed, third.sealed) == (True, True, False)


def test_a_segment_takes_only_a_part_of_the_size_and_of_the_time_that_hints_are_kept():
    spilling = Spilling(Limits(size=SIZE_MIN, touches_s=8.0))
    small = put(spilling, Kind.CHANGE, size=SIZE_MIN // PARTS)
    assert put(spilling, Kind.CHANGE) is not small
    short = put(spilling, Kind.TOUCH)
    assert put(spilling, Kind.TOUCH, now_ms=NOW + 999) is short
    assert put(spilling, Kind.TOUCH, now_ms=NOW + 1000) is not short


def test_a_clock_that_is_set_back_seals_the_segment():
    spilling = Spilling(Limits())
    first = put(spilling, Kind.CHANGE)
    assert put(spilling, Kind.CHANGE, now_ms=NOW - 3_600_000) is not first
    assert spilling.age_s(NOW - 7_200_000) == 0


def test_the_oldest_touches_are_dropped_first_and_the_oldest_changes_after_all_touches():
    limits = Limits(size=SIZE_MIN)
    spilling = Spilling(limits)
    part = SIZE_MIN // PARTS
    kinds = [Kind.CHANGE, Kind.TOUCH, Kind.CHANGE, Kind.TOUCH]
    numbers = [put(spilling, kind, size=part).number for kind in kinds]
    free = SIZE_MIN - 4 * part
    assert spilling.to_drop(NOW, free) == []

    def dropped(more):
        return [(each.number, reason) for each, reason in spilling.to_drop(NOW, free + more)]

    assert dropped(1) == [(numbers[1], "full")]
    assert dropped(part + 1) == [(numbers[1], "full"), (numbers[3], "full")]
    assert dropped(2 * part + 1)[2:] == [(numbers[0], "full")]


def test_a_segment_expires_with_the_hint_that_is_kept_longest():
    spilling = Spilling(Limits(changes_s=60, misses_s=10, touches_s=5))
    put(spilling, Kind.MISS)
    change, touch = put(spilling, Kind.CHANGE), put(spilling, Kind.TOUCH)
    assert spilling.to_drop(NOW + 4_999) == []
    assert spilling.to_drop(NOW + 5_000) == [(touch, "expired")]
    assert set(spilling.to_drop(NOW + 60_000)) == {(touch, "expired"), (change, "expired")}


@pytest.mark.parametrize(("kind", "seconds"), [(Kind.CHANGE, 3600), (Kind.MISS, 30), (Kind.TOUCH, 30)])
def test_a_pack_is_replayed_until_its_kind_expires(kind, seconds):
    spilling = Spilling(Limits())
    assert spilling.lives(kind, NOW, NOW + 1000 * seconds - 1)
    assert not spilling.lives(kind, NOW, NOW + 1000 * seconds)


def test_a_queue_that_comes_and_goes_leaves_no_more_files_than_the_limit():
    spilling = Spilling(Limits())
    for _ in range(SEGMENTS_MAX + 10):
        for segment, reason in spilling.to_drop(NOW, 100):
            assert reason == "full"
            spilling.remove(segment)
        put(spilling, Kind.CHANGE)
        spilling.seal()
    assert len(list(spilling)) <= SEGMENTS_MAX
    assert min(each.number for each in spilling) == 11


def test_urgent_segments_are_replayed_before_touches_and_the_oldest_first():
    spilling = Spilling(Limits())
    touch, change = put(spilling, Kind.TOUCH), put(spilling, Kind.CHANGE)
    spilling.seal()
    later = put(spilling, Kind.CHANGE)
    order = []
    while (segment := spilling.next_to_replay()) is not None:
        order.append(segment)
        segment.read = True
    assert order == [change, touch]
    spilling.seal()
    assert spilling.next_to_replay() is later


def test_segments_of_an_earlier_process_keep_their_numbers_and_new_ones_follow():
    spilling = Spilling(Limits())
    old = spilling.find(41, urgent=True, size=300)
    assert spilling.next_to_replay() is None  # nobody knows yet what is in it
    spilling.add(old, Kind.CHANGE, NOW - 5_000, hints=7)
    assert spilling.next_to_replay() is old
    assert (spilling.hints, spilling.size, spilling.age_s(NOW)) == (7, 300, 5.0)
    assert put(spilling, Kind.CHANGE).number == 42


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_comes_the_size_is_kept_and_no_change_goes_while_touches_are_there(seed):
    print(f"seed {seed}: pytest {__file__} -k 'whatever_comes and {seed}'")
    rng = random.Random(seed)
    spilling, now_ms = Spilling(Limits(size=SIZE_MIN, changes_s=50)), NOW
    for _ in range(60):
        now_ms += rng.choice([0, 10, 1_000, 9_000])
        size = rng.randint(1, SIZE_MIN // 4)
        for segment, reason in spilling.to_drop(now_ms, size):
            if reason == "full" and segment.urgent:
                assert all(each.urgent for each in spilling)
            spilling.remove(segment)
        put(spilling, rng.choice(list(Kind)), size=size, now_ms=now_ms)
        assert spilling.size <= SIZE_MIN
        if rng.random() < 0.2:
            spilling.seal()


class Watched:
    """A queue that is looked at every tenth of a second."""

    def __init__(self):
        self.absence, self.now, self.delivered = Absence(0.0), 0.0, 0

    def wait(self, seconds, *, connected, waiting, delivers=False):
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.delivered += delivers
            self.absence.look(self.now, self.delivered, connected=connected, waiting=waiting)
        return self.absence


def test_a_queue_without_a_connection_is_away_after_a_moment_and_open_when_it_is_back():
    queue = Watched()
    assert queue.wait(1.0, connected=True, waiting=False).open
    state = queue.wait(AWAY_S - 0.2, connected=False, waiting=True)
    assert not state.away
    assert not state.open
    assert queue.wait(0.3, connected=False, waiting=True).away
    assert queue.wait(0.1, connected=True, waiting=False).open


def test_a_connected_queue_that_acknowledges_nothing_is_away_and_a_slow_one_is_not():
    queue = Watched()
    assert queue.wait(5.0, connected=True, waiting=True, delivers=True).open
    assert queue.wait(AWAY_S + 0.1, connected=True, waiting=True).away
    assert queue.wait(0.1, connected=True, waiting=True, delivers=True).open


def test_the_pace_keeps_its_rate_and_a_pause_saves_up_little():
    pace, now, paid = Pace(1000.0, 0.0), 100.0, 0
    for _ in range(100):
        now += 0.1
        while pace.level(now) > 0:
            pace.pay(50)
            paid += 50
    assert 10_000 - 200 <= paid <= 10_000 + 1000 * PACE_BURST_S + 50
