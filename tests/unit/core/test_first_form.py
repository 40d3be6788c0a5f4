"""The faults of the automaton's first form (reliability 2.2, rule 3), and the coordinator's failures B1 to B12.

One test per fault, each a small story. B9 and B11 need a client or a fence and are tested elsewhere.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

from stories.engine import Story, namespace

from cacheupdater.core.answers import ENDING, WRITTEN, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import Phase

A, B = b"p:1", b"p:2"


# --- the six faults of the first form --------------------------------------------------------------------


def test_first_form_1_touch_tail_does_not_swallow_a_later_change():
    story = Story(namespace(every=0.5))
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.touch(A, at=0.6)
    story.change(A, at=0.7)
    story.end(unit, 0.8)

    ((demand, _),) = story.start(0.8).parts
    assert demand.kind is Kind.CHANGE


def test_first_form_2_head_that_failed_or_was_refused_does_not_keep_its_seat():
    for result in set(Result) - ENDING:
        story = Story(namespace(every=60.0))
        story.touch(A, at=0.0)
        story.end(story.start(0.0), 0.1, result)
        story.touch(A, at=0.2)

        assert story.starts(1.0) == [[A]], result


def test_first_form_3_dropped_change_does_not_leave_the_old_value():
    story = Story(namespace(max_backlog=1))
    story.change(A, B, at=0.0)

    assert story.step(0.0).invalidation.keys == [A]


def test_first_form_4_hold_and_timeout_count_from_the_start_and_not_from_acceptance():
    source = Source("db", Bucket(0.1, 1.0, now=0.0), concurrency=1)
    story = Story(namespace(every=2.0, source=source))
    story.touch(A, at=0.0)
    assert story.starts(9.9) == [], "waits for ten seconds, longer than any head may run"
    unit = story.start(10.0)
    assert unit.phase is Phase.RUNNING
    story.step(12.9)
    assert unit.phase is Phase.RUNNING, "and has its whole time to run"
    story.end(unit, 12.9)

    other = Story(namespace(every=2.0, source=Source("db", Bucket(0.1, 1.0, now=0.0), concurrency=1)))
    other.touch(A, at=0.0)
    other.end(other.start(10.0), 10.1)
    other.touch(A, at=11.9)
    assert other.count("decisions", "hold") == 1


def test_first_form_5_late_misses_after_one_invalidation_cost_few_loads():
    """Fifty processes flush their misses within 100 ms after one invalidation: 11.6 loads without the gap, 3 with it."""
    loads = 0
    for seed in range(100):
        rng = Random(seed)
        story, running = Story(), []
        story.change(A, at=0.0)
        flushes = sorted(rng.uniform(0.0, 0.15) for _ in range(50))
        for tick in range(400):  # a millisecond each; a load takes ten
            now = tick / 1000
            while flushes and flushes[0] <= now:
                flushes.pop(0)
                story.miss(A, at=now)
            while running and running[0][0] + 0.01 <= now:
                story.end(running.pop(0)[1], now)
            for unit in story.step(now).units:
                running.append((now, unit))
                loads += 1

    assert loads / 100 <= 3.0


def test_first_form_6_unit_that_ends_does_not_free_a_key_that_runs_in_another():
    story = Story(namespace(every=0.3), gap=0.1)
    story.touch(A, B, at=0.0)
    story.end(story.start(0.0), 0.1)
    story.change(A, at=0.2)
    other = story.start(0.2)
    story.step(0.4)  # the seats of the first unit are over

    assert story.engine._dedup.seats == {A: other}
    story.end(other, 0.45)
    assert story.done == 2


# --- B: the coordinator ----------------------------------------------------------------------------------


def test_b1_head_that_nobody_ever_ends_is_evicted_and_tried_again():
    story = Story()
    story.touch(A, at=0.0)
    story.start(0.0)
    story.step(3.0)

    assert story.starts(3.2) == [[A]]


def test_b2_end_by_a_stranger_changes_nothing_and_is_counted():
    story = Story()
    story.touch(A, at=0.0)
    stranger = story.start(0.0)
    story.step(3.0)
    owner = story.start(3.2)
    story.change(A, at=3.3)
    story.engine.on_answers(stranger, [WRITTEN], 3.4)

    assert story.engine._dedup.seats[A] is owner
    assert story.engine._dedup.tails.keys() == {A}, "nothing is promoted by a late end"
    assert story.count("refreshes", "late") == 1


def test_b3_promoted_tail_has_its_own_clock():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 2.9)
    second = story.start(2.9)
    story.step(5.8)
    assert second.phase is Phase.RUNNING
    story.step(5.9)
    assert second.phase is Phase.OVER


def test_b4_change_at_the_very_moment_of_a_promotion_is_not_lost():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.5)
    story.end(unit, 1.0)
    story.change(A, at=1.0)  # merges: the promoted head has not begun
    second = story.start(1.0)
    story.change(A, at=1.0)  # does not: it has
    story.end(second, 1.1)

    assert story.starts(1.1) == [[A]]


def test_b5_waiting_key_keeps_its_place_behind_a_limiter():
    source = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=10)
    story = Story(namespace(source=source))
    story.touch(A, at=0.0)
    served = []
    for second in range(1, 12):
        story.touch(b"p:%d" % (100 + second), at=second - 0.5)
        served += story.refresh(float(second))

    assert served[0] == A


def test_b6_hints_that_arrive_while_the_head_waits_for_the_bucket_make_no_tail():
    source = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)
    story = Story(namespace(source=source))
    for at in range(10):
        story.change(A, at=at / 10)
    story.refresh(1.0)

    assert story.engine.pending == 0
    assert story.done == 10


def test_b7_source_that_is_always_too_slow_is_asked_less_and_less_and_forgotten_at_the_age():
    story = Story()
    story.touch(A, at=0.0)
    now, starts = 0.0, []
    while story.engine.pending:
        work = story.step(now)
        starts += [now] * len(work.units)
        now = work.wake

    waits = [b - a - 3.0 for a, b in pairwise(starts)]
    assert waits == sorted(waits)
    assert max(waits) <= 2.0 + 1e-9
    assert 30.0 <= now <= 30.0 + 3.0 + 1.0


def test_b8_ten_thousand_keys_seen_once_leave_nothing_behind():
    story = Story(namespace(every=0.2))
    for at in range(100):
        story.touch(*[b"p:%d" % n for n in range(at * 100, at * 100 + 100)], at=at * 0.01)
        story.refresh(at * 0.01)
        assert story.engine.tracked <= 2_200
    story.step(2.0)

    assert story.engine.tracked == 0


def test_b10_poison_key_does_not_eat_the_budget():
    story = Story(namespace(every=0.0))
    tries = served = 0
    for turn in range(240):
        now = turn / 4
        story.change(A, b"p:%d" % (1_000 + turn), at=now)
        while units := story.step(now).units:
            for unit in units:
                if A not in unit.keys:
                    served += len(unit.keys)
                    story.end(unit, now)
                elif len(unit.keys) > 1:
                    story.fail(unit, now, own=True)
                else:
                    tries += 1
                    story.end(unit, now, Result.FAILED)

    assert tries <= 5
    assert served >= 238


def test_b12_clock_that_steps_back_neither_bursts_nor_freezes():
    source = Source("db", Bucket(10.0, 5.0, now=1_000.0), concurrency=10)
    story = Story(namespace(every=1.0, source=source))
    story.touch(*[b"p:%d" % n for n in range(20)], at=1_000.0)
    assert len(story.refresh(1_000.5)) == 5
    assert story.refresh(900.0) == []
    assert story.refresh(1_000.5) == []
    assert len(story.refresh(1_001.0)) == 5
