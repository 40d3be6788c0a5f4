"""Stories of one partition, in the words of the design. The random schedules find what nobody thought of; these explain."""

from __future__ import annotations

from math import inf

import pytest
from engine_story import Story, namespace, plenty

from cacheupdater.core.answers import BRAKED, TOO_OLD, UNCHANGED, WRITTEN, WRONG_TYPE, Answer, Result
from cacheupdater.core.budget import Bucket, Source
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.policy import Fixed
from cacheupdater.core.unit import Phase

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


def test_change_within_the_hold_is_loaded_but_not_before_the_gap():
    story = Story()
    story.touch(A, at=0.0)
    story.refresh(0.0, took=0.01)
    story.change(A, at=0.05)

    work = story.step(0.05)
    assert (work.units, work.wake) == ([], 0.1)
    assert story.starts(0.1) == [[A]]


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

    ((claim, keys),) = story.start(0.0).parts
    assert (claim.kind, claim.urgency, keys) == (Kind.CHANGE, 0, [A])


# --- ends that did not write -----------------------------------------------------------------------------


def test_refused_write_is_loaded_again_as_a_change_not_before_the_floor():
    story = Story()
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.1, Result.REFUSED, wait=0.5)

    assert story.starts(0.59) == []
    ((claim, _),) = story.start(0.6).parts
    assert claim.kind is Kind.CHANGE


@pytest.mark.parametrize("answer", [WRONG_TYPE, BRAKED, Answer(Result.FAILED)])
def test_key_with_five_errors_of_its_own_is_quarantined(answer):
    story = Story()
    story.touch(A, at=0.0)
    now, tries = 0.0, 0
    while not story.engine.quarantine.keys:
        work = story.step(now)
        for unit in work.units:
            tries += 1
            story.engine.on_answers(unit, [answer], now)
        now = work.wake if not work.units else now

    assert tries == 5
    record = story.engine.quarantine.keys[A]
    assert (record.error, record.until - record.since) == (answer.result.value, 60.0)
    story.touch(A, at=now + 59.0)
    assert story.starts(now + 59.0) == []
    story.touch(A, at=now + 60.0)
    assert story.starts(now + 60.0) == [[A]]


@pytest.mark.parametrize(
    "end",
    [
        lambda story, unit, at: story.end(unit, at, Result.REFUSED),
        lambda story, unit, at: story.end(unit, at, Result.TOO_OLD),
        lambda story, unit, at: story.fail(unit, at, own=False),
        lambda story, unit, at: story.step(at + 3.0),
    ],
    ids=["refused", "too old", "timeout or connection", "evicted"],
)
def test_what_is_not_a_fault_of_the_key_never_quarantines_it(end):
    story = Story(backlog_age=1000.0)
    story.change(A, at=0.0)
    now = 0.0
    for _ in range(40):
        work = story.step(now)
        for unit in work.units:
            end(story, unit, now)
        now = max(now, story.step(now).wake)

    assert len(story.engine.quarantine) == 0
    assert story.engine.pending == 1


def test_retries_wait_longer_and_longer_but_never_more_than_two_seconds():
    story = Story(max_attempts=9)
    story.touch(A, at=0.0)
    now, waits = 0.0, []
    for _ in range(8):
        story.engine.on_answers(story.start(now), [WRONG_TYPE], now)
        again = story.engine._dedup.seats[A].claim.not_before
        waits.append(again - now)
        now = again

    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(waits) <= 2.0 + 1e-9


def test_hints_of_a_failed_head_pass_to_the_tail_with_its_delay():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, Result.REFUSED, wait=1.0)

    assert story.engine._dedup.tails == {}
    assert story.starts(1.19) == []
    ((claim, _),) = story.start(1.2).parts
    assert (claim.kind, claim.origin.offset, claim.since) == (Kind.CHANGE, 0, 0.0)


def test_neighbours_of_a_failed_key_are_finished():
    story = Story()
    story.touch(A, B, C, at=0.0)
    unit = story.start(0.0)
    story.engine.on_answers(unit, [WRITTEN, WRONG_TYPE, UNCHANGED], 0.1)

    assert story.starts(1.0) == [[B]]
    assert story.count("refreshes", "written") == story.count("refreshes", "unchanged") == 1


def test_failing_unit_is_split_down_to_the_poison_key():
    keys = [b"p:%d" % n for n in range(16)]
    story = Story(max_attempts=2)
    story.touch(*keys, at=0.0)
    now, sizes = 0.0, []
    while story.engine.pending:
        work = story.step(now)
        for unit in work.units:
            sizes.append(len(unit.keys))
            if keys[5] in unit.keys:
                story.fail(unit, now, own=True)
            else:
                story.end(unit, now)
        now = work.wake if not work.units else now

    assert sorted(sizes, reverse=True) == [16, 8, 8, 4, 4, 2, 2, 1, 1, 1]
    assert list(story.engine.quarantine.keys) == [keys[5]]


def test_unit_that_timed_out_is_never_split():
    story = Story()
    story.touch(A, B, C, at=0.0)
    story.fail(story.start(0.0), 0.1, own=False)

    assert story.starts(0.3) == [[A, B, C]]


def test_unit_with_a_key_of_nobody_fails_as_any_other():
    """A key that begins like ours but does not parse leaves its unit before the load."""
    story = Story()
    story.touch(b"p:x", at=0.0)
    story.miss(A, at=0.0)
    story.touch(B, at=0.0)
    unit = story.start(0.0)
    assert sorted(unit.keys) == [A, B]

    story.fail(unit, 0.1, own=True)
    assert sorted(story.starts(0.3)) == [[A], [B]]
    assert story.count("dropped", "unknown") == 1


def test_slot_of_a_unit_of_nobodys_keys_goes_to_the_next_at_once():
    source = Source("db", plenty(), concurrency=1)
    story = Story(namespace("a", source=source), namespace("b", source=source))
    story.miss(b"a:x", at=0.0)
    story.touch(b"b:1", at=0.0)

    assert story.starts(0.0) == [[b"b:1"]]


# --- eviction and late ends ------------------------------------------------------------------------------


def test_stuck_head_is_evicted_and_its_late_end_changes_nothing():
    story = Story()
    story.change(A, at=0.0)
    stuck = story.start(0.0)
    assert story.step(2.9).wake == 3.0
    story.step(3.0)
    assert stuck.phase is Phase.OVER
    second = story.start(3.2)

    story.engine.on_answers(stuck, [WRITTEN], 3.3)
    assert story.count("refreshes", "late") == 1
    assert second.phase is Phase.RUNNING
    assert story.done == 0
    story.end(second, 3.4)
    assert story.done == 1


def test_late_failure_is_counted_and_gives_its_slot_back():
    source = Source("db", plenty(), concurrency=1)
    story = Story(namespace(source=source))
    story.touch(A, at=0.0)
    stuck = story.start(0.0)
    story.step(3.0)
    assert story.starts(3.5) == []

    story.fail(stuck, 4.0, own=True)
    assert story.count("refreshes", "late") == 1
    assert story.starts(4.0) == [[A]]


def test_late_unit_may_not_delete_rows_behind_the_brakes_back():
    story = Story()
    story.touch(A, at=0.0)
    stuck = story.start(0.0)
    story.step(3.0)

    assert story.engine.braked(stuck, [A], 3.1)
    assert not story.engine.braked(stuck, [], 3.1)


def test_brake_judges_touched_keys_only():
    touched, missed = ([b"p:%d" % n for n in range(first, first + 50)] for first in (0, 100))
    for absent, judged in ((missed, False), (touched, True)):
        story = Story()
        story.touch(*touched, at=0.0)
        story.miss(*missed, at=0.0)
        assert story.engine.braked(story.start(0.0), absent, 0.0) is judged


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


# --- changes that cannot be served -----------------------------------------------------------------------


def test_dropped_change_leaves_redis_and_is_finished_when_redis_says_so():
    story = Story(namespace(max_backlog=1))
    story.change(A, at=0.0)
    story.change(B, at=0.0)
    work = story.step(0.0)
    assert work.invalidation.keys == [A]
    assert story.engine.pending == 2
    story.end(work.units[0], 0.1)
    assert story.done == 0

    story.engine.on_invalidated(work.invalidation, done=False)
    again = story.step(0.2).invalidation
    assert again.keys == [A]
    story.engine.on_invalidated(again, done=True)
    assert story.done == 2


def test_dropped_touch_is_counted_and_finished():
    story = Story(namespace(max_backlog=1))
    story.touch(A, at=0.0)
    story.touch(B, at=0.0)
    work = story.step(0.0)

    assert work.invalidation is None
    assert story.count("dropped", "backlog") == 1
    story.end(work.units[0], 0.1)
    assert story.done == 2


def test_change_of_a_quarantined_key_leaves_redis():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.0, Result.FAILED)
    story.change(A, at=1.0)

    assert story.step(1.0).invalidation.keys == [A]


def test_quarantined_change_takes_its_tail_along():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, Result.FAILED)
    invalidation = story.step(0.2).invalidation

    assert invalidation.keys == [A]
    assert story.done == 0
    story.engine.on_invalidated(invalidation, done=True)
    assert story.done == 2
    assert story.engine.pending == 0


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

    def on_hints(self, keys, counts, now):
        return [key for key in keys if key != B]

    def on_loaded(self, keys, changed, now):
        self.loaded += zip(keys, changed, strict=True)

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
    story.engine.on_answers(story.start(0.0), [Answer(Result.WRITTEN), WRONG_TYPE, UNCHANGED], 0.1)

    assert policy.loaded == [(A, True), (b"p:4", False)]


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
    story.engine.on_answers(unit, [WRITTEN, TOO_OLD, WRONG_TYPE], 0.2, absent=[A])
    now = 0.2
    while now < inf:
        work = story.step(now)
        for unit in work.units:
            story.end(unit, now)
        now = now if work.units else work.wake

    engine, dedup = story.engine, story.engine._dedup
    assert engine.tracked == engine.pending == len(engine._troubles) == 0
    assert not any((dedup.seats, dedup.tails, dedup._timers, dedup._running, dedup._late))
    assert not dedup.schedule._delayed
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
    story.engine.skip(0)

    assert story.done == 1
