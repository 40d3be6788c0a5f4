"""Stories of one partition, in the words of the design. The random schedules find unexpected faults; these stories explain."""

from __future__ import annotations

from math import inf

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.answers import BRAKED, TOO_OLD, UNCHANGED, WRITTEN, Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.outcomes import Failure
from cacheupdater.core.policy import Fixed

A, B, C = b"p:1", b"p:2", b"p:3"


# --- a touch ---------------------------------------------------------------------------------------------


def test_touched_key_is_loaded_once_per_hold_however_often_it_is_read():
    story = Story(namespace(every=2.0))
    starts = []
    for at in range(80):
        story.touch(A, at=at / 10)
        starts += [at / 10] * len(story.refresh(at / 10))

    assert starts == [0.0, 2.0, 4.0, 6.0]


def test_touch_within_the_hold_is_declined_and_counted_whether_the_head_runs_or_has_ended():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.touch(A, at=0.5)
    story.end(unit, 1.0)
    story.touch(A, at=4.9)

    assert story.count("decisions", "hold") == 2
    assert story.starts(4.9) == []


def test_touch_after_the_hold_waits_as_a_tail_while_the_head_still_runs():
    story = Story(namespace(every=0.5))
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.touch(A, at=0.6)
    story.touch(A, at=0.7)

    assert story.count("decisions", "block") == 1
    assert story.count("decisions", "cover") == 1
    story.end(unit, 1.0)
    assert story.starts(1.0) == [[A]]


def test_hold_of_zero_is_the_plain_block_and_decline_automaton():
    story = Story(namespace(every=0.0), gap=0.0)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.touch(A, at=0.0)
    story.touch(A, at=0.0)
    story.end(unit, 0.5)

    assert story.starts(0.5) == [[A]]
    assert (story.count("decisions", "block"), story.count("decisions", "cover")) == (1, 1)


# --- a change --------------------------------------------------------------------------------------------


def test_change_while_the_head_runs_is_loaded_again_after_it():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.3)
    story.end(unit, 0.4)

    assert story.starts(0.4) == [[A]]


def test_change_within_the_hold_is_loaded_at_once():
    story = Story()
    story.touch(A, at=0.0)
    story.refresh(0.0, took=0.01)
    story.change(A, at=0.05)

    assert story.starts(0.05) == [[A]]


# --- a miss ----------------------------------------------------------------------------------------------


def test_miss_while_the_head_runs_is_declined_for_that_write_makes_the_value_present():
    story = Story()
    story.miss(A, at=0.0)
    unit = story.start(0.0)
    story.miss(A, at=0.2)
    story.end(unit, 0.3)
    story.miss(A, at=0.35)

    assert story.count("decisions", "decline") == 2
    assert story.starts(0.5) == []


def test_miss_within_the_hold_is_loaded_for_a_hold_does_not_stop_it():
    story = Story()
    story.touch(A, at=0.0)
    story.refresh(0.0)
    story.miss(A, at=1.0)

    assert story.starts(1.0) == [[A]]


def test_declined_miss_is_served_when_the_head_that_declined_it_fails():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.miss(A, at=0.1)
    story.fail(unit, 0.2, own=False)

    assert story.starts(0.4) == [[A]]


def test_merged_head_takes_the_strongest_kind_and_queues_as_the_most_urgent():
    story = Story()
    story.touch(A, at=0.0)
    story.change(A, at=0.0)
    story.miss(A, at=0.0)

    ((demand, keys),) = story.start(0.0).parts
    assert (demand.kind, demand.urgency, keys) == (Kind.CHANGE, 0, [A])


def test_slot_of_a_unit_of_nobodys_keys_goes_to_the_next_at_once():
    source = Source("db", plenty(), concurrency=1)
    story = Story(namespace("a", source=source), namespace("b", source=source))
    story.miss(b"a:x", at=0.0)
    story.touch(b"b:1", at=0.0)

    assert story.starts(0.0) == [[b"b:1"]]


# --- rows that are absent --------------------------------------------------------------------------------


def test_misses_of_a_row_known_to_be_absent_cost_nothing_until_the_mark_is_over():
    story = Story(namespace(every=0.0, missing_ttl=30.0))
    story.miss(A, at=0.0)
    story.end(story.start(0.0), 0.0, absent=True)
    story.miss(A, at=29.9)
    assert story.starts(29.9) == []
    assert story.count("decisions", "absent") == 1

    story.miss(A, at=30.0)
    assert story.starts(30.0) == [[A]]


@pytest.mark.parametrize("kind", ["touch", "change"])
def test_absent_mark_ends_at_a_touch_or_change(kind):
    story = Story(namespace(every=0.0))
    story.miss(A, at=0.0)
    story.end(story.start(0.0), 0.0, absent=True)
    getattr(story, kind)(A, at=1.0)
    story.refresh(1.0)
    story.miss(A, at=2.0)

    assert story.starts(2.0) == [[A]]


def test_absent_mark_ends_at_a_miss_whose_reader_has_looked_and_waits():
    """Redis has lost the mark: without a load this reader would wait in vain."""
    story = Story(namespace(every=0.0, missing_ttl=30.0))
    story.miss(A, B, at=0.0)
    story.end(story.start(0.0), 0.0, absent=True)
    story.awaited(A, at=0.05)
    assert story.starts(0.05) == []  # within the gap after the end: Redis has just got the mark
    story.awaited(A, at=2.0)
    story.awaited(B, at=2.0)
    assert [key for keys in story.starts(2.0) for key in keys] == [A, B]


def test_change_while_the_load_runs_leaves_no_absent_mark_behind():
    """The row may have been inserted after this load began: the tail finds it, and later misses must load."""
    story = Story()
    story.miss(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, absent=True)
    story.refresh(0.2)
    story.miss(A, at=1.0)

    assert story.starts(1.0) == [[A]]


def test_refused_absence_is_no_mark():
    story = Story(namespace(every=0.0))
    story.miss(A, at=0.0)
    story.end(story.start(0.0), 0.0, Result.REFUSED, absent=True)

    assert A not in story.engine._marks


def test_hint_that_never_gets_through_is_given_up_at_its_age_so_that_no_key_pins_the_cursor():
    """The source is down for an hour: the head fails again and again, never long in any queue."""
    story = Story()
    story.change(A, at=0.0)
    now = 0.0
    while True:
        work = story.step(now)
        if work.invalidation:
            break
        for unit in work.units:
            story.fail(unit, now + 0.9, own=False)
            now += 0.9
        now = max(now, story.step(now).wake) if not work.units else now
        assert now < 3600

    assert 30.0 <= now <= 30.0 + story.limits.head_timeout + story.limits.prune
    assert story.count("dropped", "aged") == 1


# --- policy ----------------------------------------------------------------------------------------------


class Picky(Fixed):
    """Loads only what it likes, and asks for a key by itself."""

    learns = True

    def __init__(self):
        self.asks = ()
        self.loaded = []
        self.absent = []

    def on_hints(self, keys, counts, now):
        return [key for key in keys if key != B]

    def on_loaded(self, loaded, now):
        self.loaded += zip(loaded.keys, loaded.changed, strict=True)
        self.absent += loaded.absent

    def tick(self, now):
        asks, self.asks = self.asks, ()
        return asks


def test_touches_that_the_policy_declines_are_counted():
    story = Story(policy=Picky())
    story.touch(A, B, at=0.0)

    assert story.starts(0.0) == [[A]]
    assert story.count("decisions", "policy") == 1


def test_policy_learns_what_changed_of_the_keys_that_were_written():
    policy = Picky()
    story = Story(policy=policy)
    story.touch(A, C, b"p:4", at=0.0)
    story.engine.on_answers(story.start(0.0), [Answer(Result.WRITTEN), Answer(Result.FAILED), UNCHANGED], 0.1)

    assert policy.loaded == [(A, True), (b"p:4", False)]


def test_policy_does_not_hear_that_a_row_is_gone_whose_value_the_brake_has_kept():
    policy = Picky()
    story = Story(policy=policy)
    story.touch(A, C, b"p:4", at=0.0)
    answers = [Answer(Result.WRITTEN), BRAKED, Answer(Result.WRITTEN)]
    story.engine.on_answers(story.start(0.0), answers, 0.1, absent=[C, b"p:4"])

    assert policy.absent == [b"p:4"]


def test_what_waits_where_a_partition_has_left_is_no_claim_on_the_budget():
    source = Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=5)
    story = Story(namespace(source=source))
    story.miss(*(b"p:%d" % n for n in range(50)), at=0.0)
    running = story.start(1.0)
    story.change(*running.keys, at=1.0)
    assert source.due == 49
    story.engine.leave()
    assert source.due == 0
    story.fail(running, 1.1, own=False)  # by a loader that has ignored its end
    assert source.due == 0


def test_cursor_does_not_pass_a_hint_that_merged_into_a_refresh_nobody_asked_for():
    policy = Picky()
    policy.asks = (A,)
    story = Story(namespace(source=Source("db", Bucket(1.0, 1.0, now=0.0), concurrency=1)), policy=policy)
    story.step(0.0)
    story.change(A, at=0.1)
    assert story.done == 0

    story.refresh(1.0)
    assert story.done == 1


# --- what does not parse, and what nobody declared -------------------------------------------------------


def test_keys_of_nobody_are_counted_and_finished():
    story = Story()
    story.touch(b"zzz:1", b"p:007", at=0.0)
    story.step(0.0)

    assert story.count("dropped", "unknown") == 2
    assert (story.done, story.engine.tracked) == (1, 0)


def test_pack_that_repeats_a_key_makes_one_head():
    story = Story()
    story.engine.on_hints([Hints(0, Kind.CHANGE, [A, A, B, A], (1, 1, 1, 1))], 0.0)

    assert story.starts(0.0) == [[A, B]]
    assert story.engine.pending == 2


# --- memory ----------------------------------------------------------------------------------------------


def test_nothing_is_left_when_every_key_has_come_to_rest():
    story = Story(max_attempts=1)
    story.touch(A, B, at=0.0)
    story.miss(C, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.engine.on_answers(unit, [WRITTEN, TOO_OLD, Answer(Result.FAILED)], 0.2, absent=[A])
    now = 0.2
    while now < inf:
        work = story.step(now)
        for unit in work.units:
            story.end(unit, now)
        now = now if work.units else work.wake

    engine, dedup = story.engine, story.engine._dedup
    assert engine.tracked == engine.pending == len(engine._troubles) == 0
    assert not any((dedup.seats, dedup.tails, dedup._timers, dedup._running, dedup._late))
    assert not dedup.schedule.delayed
    assert story.done == 3


def test_long_holds_do_not_keep_units_that_have_ended():
    """A key that changes ten times a second under a hold of a day."""
    story = Story(namespace(every=86_400.0))
    for turn in range(5_000):
        story.change(A, at=turn * 0.125)
        assert story.refresh(turn * 0.125) == [A]

    assert len(story.engine._dedup._timers) < 2_000


def test_reading_pauses_while_too_much_is_pending():
    story = Story(pending=2)
    story.touch(A, at=0.0)
    assert not story.engine.full
    story.touch(B, at=0.0)
    assert story.engine.full
    story.refresh(0.0)
    assert not story.engine.full


def test_message_that_is_no_pack_has_nothing_to_wait_for():
    story = Story()
    story.engine.skip(0, 0.0)

    assert story.done == 1


def test_keys_of_nobody_cost_neither_budget_nor_quota():
    bucket, quota = Bucket(10.0, 10.0, now=0.0), Bucket(10.0, 10.0, now=0.0)
    story = Story(namespace(source=Source("db", bucket, concurrency=100), quota=quota))
    story.miss(b"p:x1", b"p:x2", b"p:007", A, at=2.0)

    assert [unit.keys for unit in story.step(2.0).units] == [[A]]
    assert bucket.rows(2.0) == quota.rows(2.0) == 9


# --- spacing of changes -----------------------------------------------------------------------------------


def test_a_start_that_a_read_has_caused_holds_up_no_change():
    story = Story(namespace(every=0.0))
    story.touch(A, at=1.0)
    story.refresh(1.0, took=0.001)
    story.change(A, at=1.005)
    assert story.refresh(1.005) == [A]


def test_two_starts_for_changes_are_a_gap_apart_whatever_was_read_between():
    story = Story(namespace(every=0.0))
    story.change(A, at=1.0)
    assert story.refresh(1.0) == [A]
    story.change(A, at=1.01)
    assert story.refresh(1.01) == []
    assert story.step(1.02).wake == pytest.approx(1.1)
    assert story.refresh(1.1) == [A]


def test_a_change_behind_a_head_that_a_read_has_caused_runs_when_the_head_ends():
    story = Story()
    story.touch(A, at=1.0)
    unit = story.start(1.0)
    story.change(A, at=1.002)
    story.end(unit, 1.004)
    assert story.refresh(1.004) == [A]


def test_a_change_behind_a_head_for_a_change_waits_for_its_gap():
    story = Story()
    story.change(A, at=1.0)
    unit = story.start(1.0)
    story.change(A, at=1.002)
    story.end(unit, 1.004)
    assert story.refresh(1.004) == []
    assert story.refresh(1.1) == [A]


@pytest.mark.parametrize("told_first", [True, False])
def test_a_read_s_load_that_an_invalidation_has_overtaken_does_not_hold_up_the_change(told_first):
    story = Story()
    story.touch(A, at=1.0)
    unit = story.start(1.0)
    if told_first:
        story.change(A, at=1.002)
    story.end(unit, 1.003, Result.REFUSED, wait=0.0)
    if not told_first:
        story.change(A, at=1.004)
    assert story.refresh(1.004) == [A]


def test_a_read_that_waits_for_its_gap_goes_along_with_a_change():
    story = Story(namespace(every=0.0))
    story.touch(A, at=1.0)
    story.refresh(1.0)
    story.touch(A, at=1.01)
    assert story.refresh(1.01) == []
    story.change(A, at=1.02)
    assert story.refresh(1.02) == [A]


def test_keys_of_one_unit_are_spaced_each_by_what_it_was_started_for():
    story = Story(namespace(every=0.0))
    story.change(A, at=1.0)
    story.touch(B, at=1.0)
    assert story.refresh(1.0) == [A, B]
    story.change(A, B, at=1.01)
    assert story.refresh(1.01) == [B]


def test_a_unit_that_was_answered_without_a_load_does_not_excuse_a_slow_row_for_ever():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.engine.on_unasked(unit, [Answer(Result.FOREIGN)], 0.1)
    story.touch(B, at=1.0)
    at = 1.0
    while not story.engine.quarantine and at < 60.0:
        for slow in story.step(at).units:
            story.engine.on_failure(slow, Failure("slow", own=False, slow=True), at + 1.0)
        at += 0.5
    assert list(story.engine.quarantine.keys) == [B]
