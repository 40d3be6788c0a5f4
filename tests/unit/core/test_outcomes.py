"""How heads end: refused, failed, cut smaller, quarantined, evicted; and the effects on their neighbours."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.answers import ADOPTED, BRAKED, FOREIGN, UNCHANGED, WRITTEN, Answer, Result
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import URGENCY, Phase

A, B, C = b"p:1", b"p:2", b"p:3"
FAILED = Answer(Result.FAILED)


# --- ends that did not write -----------------------------------------------------------------------------


def test_refused_write_is_loaded_again_as_urgently_as_a_change_not_before_the_floor():
    story = Story()
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.1, Result.REFUSED, wait=0.5)

    assert story.starts(0.59) == []
    ((demand, _),) = story.start(0.6).parts
    assert (demand.kind, demand.urgency) == (Kind.TOUCH, URGENCY[Kind.CHANGE])


def test_key_with_five_errors_of_its_own_is_quarantined():
    story = Story()
    story.touch(A, at=0.0)
    now, tries = 0.0, 0
    while not story.engine.quarantine.keys:
        work = story.step(now)
        for unit in work.units:
            tries += 1
            story.engine.on_answers(unit, [FAILED], now)
        now = work.wake if not work.units else now

    assert tries == 5
    record = story.engine.quarantine.keys[A]
    assert (record.error, record.until - record.since) == ("failed", 60.0)
    story.touch(A, at=now + 59.0)
    assert story.starts(now + 59.0) == []
    story.touch(A, at=now + 60.0)
    assert story.starts(now + 60.0) == [[A]]


@pytest.mark.parametrize(
    "end",
    [
        lambda story, unit, at: story.end(unit, at, Result.REFUSED),
        lambda story, unit, at: story.end(unit, at, Result.TOO_OLD),
        lambda story, unit, at: story.end(unit, at, Result.UNAVAILABLE),
        lambda story, unit, at: story.fail(unit, at, own=False),
        lambda story, unit, at: story.step(at + 3.0),
    ],
    ids=["refused", "too old", "unavailable", "timeout or connection", "evicted"],
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
        story.engine.on_answers(story.start(now), [FAILED], now)
        again = story.engine._dedup.seats[A].demand.not_before
        waits.append(again - now)
        now = again

    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(waits) <= 2.0 + 1e-9


def test_key_whose_server_is_away_is_tried_more_and_more_slowly_and_its_neighbours_are_finished():
    story = Story(backlog_age=1000.0)
    story.touch(A, B, at=0.0)
    story.engine.on_answers(story.start(0.0), [WRITTEN, Answer(Result.UNAVAILABLE, why="node away")], 0.0)
    now, waits = 0.0, []
    for _ in range(12):
        again = story.engine._dedup.seats[B].demand.not_before
        waits.append(again - now)
        now = again
        unit = story.start(now)
        assert unit.keys == [B]
        story.end(unit, now, Result.UNAVAILABLE)

    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert waits[-1] == pytest.approx(2.0)
    assert story.count("refreshes", "unavailable") == 13
    assert len(story.engine.quarantine) == 0


def test_hints_of_a_failed_head_pass_to_the_tail_with_its_delay():
    story = Story()
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.end(unit, 0.2, Result.REFUSED, wait=1.0)

    assert story.engine._dedup.tails == {}
    assert story.starts(1.19) == []
    ((demand, _),) = story.start(1.2).parts
    assert (demand.kind, demand.open_pack.offset, demand.since) == (Kind.CHANGE, 0, 0.0)


def test_adopted_value_finishes_its_head_like_any_other_that_was_written():
    story = Story()
    story.touch(A, at=0.0)
    story.change(B, at=0.0)
    story.engine.on_answers(story.start(0.0), [ADOPTED, ADOPTED], 0.1)

    assert story.engine.pending == 0
    story.engine.cursor.advance()
    assert story.engine.cursor.done == story.engine.cursor.scan
    assert story.count("refreshes", "adopted") == 2
    assert len(story.engine.take_ages()) == 2


def test_value_that_is_not_ours_ends_its_head_without_a_write_and_without_blame():
    story = Story()
    story.touch(A, at=0.0)
    story.change(B, at=0.0)
    story.engine.on_answers(story.start(0.0), [FOREIGN, FOREIGN], 0.1, absent=[A])

    assert story.engine.pending == 0
    story.engine.cursor.advance()
    assert story.engine.cursor.done == story.engine.cursor.scan
    assert story.count("refreshes", "foreign") == 2
    assert not story.engine.take_ages()
    story.miss(A, at=0.3)  # no mark that the row is absent: something is there
    story.touch(B, at=0.3)  # and a seat is held as after any end
    assert story.starts(0.3) == [[A]]
    assert len(story.engine.quarantine) == 0


def test_key_of_a_namespace_without_a_verdict_is_due_again_as_it_was_and_never_at_fault():
    story = Story()
    story.miss(A, at=0.0)
    for now in range(0, 20, 2):
        unit = story.start(float(now))
        assert [demand.kind for demand, _ in unit.parts] == [Kind.MISS]
        story.end(unit, now + 0.1, Result.UNDECIDED, wait=1.9)
        assert story.starts(now + 1.99) == []

    assert len(story.engine.quarantine) == 0
    assert story.count("refreshes", "undecided") == 10


def test_neighbours_of_a_failed_key_are_finished():
    story = Story()
    story.touch(A, B, C, at=0.0)
    unit = story.start(0.0)
    story.engine.on_answers(unit, [WRITTEN, FAILED, UNCHANGED], 0.1)

    assert story.starts(1.0) == [[B]]
    assert story.count("refreshes", "written") == story.count("refreshes", "unchanged") == 1


def test_failing_unit_is_split_down_to_the_poison_key():
    keys = [b"p:%d" % n for n in range(200)]
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

    assert sorted(sizes, reverse=True) == [200, *[13] * 15, 5, *[1] * 14], "cut twice, and tried twice alone"
    assert list(story.engine.quarantine.keys) == [keys[5]]


def test_unit_whose_source_is_away_is_never_split():
    story = Story()
    story.touch(A, B, C, at=0.0)
    now = 0.0
    for _ in range(4):
        story.fail(story.start(now), now + 0.1, own=False)
        now += 3.0

    assert story.starts(now) == [[A, B, C]]


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

    assert story.engine.braked(stuck, [A], 3.1) == [A]
    assert not story.engine.braked(stuck, [], 3.1)


def test_brake_judges_touched_keys_only_and_believes_misses_and_changes_of_the_same_unit():
    touched, missed, changed = ([b"p:%d" % n for n in range(first, first + 50)] for first in (0, 100, 200))
    for absent, kept in ((missed + changed, None), (touched + missed + changed, set(touched))):
        story = Story()
        story.touch(*touched, at=0.0)
        story.miss(*missed, at=0.0)
        story.change(*changed, at=0.0)
        assert story.engine.braked(story.start(0.0), absent, 0.0) == kept


def test_touches_of_keys_without_a_value_do_not_hold_the_brake():
    """Whoever invents keys would keep what was really deleted in the cache."""
    story = Story()
    invented, deleted = [b"p:%d" % n for n in range(150)], [b"p:%d" % n for n in range(1000, 1005)]
    story.touch(*invented, *deleted, at=0.0)
    unit = story.start(0.0)
    absent = unit.keys

    assert story.engine.suspects(unit, absent) == absent
    assert story.engine.braked(unit, absent, 0.0, valueless=frozenset(invented)) is None


def test_suspects_are_touched_keys_without_a_row_while_their_unit_runs():
    story = Story()
    story.touch(A, B, at=0.0)
    story.miss(b"p:7", at=0.0)
    unit = story.start(0.0)

    assert story.engine.suspects(unit, [A, b"p:7"]) == [A]
    story.step(3.0)
    assert story.engine.suspects(unit, [A]) == []


def test_units_without_absent_rows_count_for_the_brake():
    story = Story()
    for n in range(200):
        story.touch(b"p:%d" % n, at=0.0)
        unit = story.start(0.0)
        absent = unit.keys if n >= 140 else []
        assert story.engine.braked(unit, absent, 0.0) is None
        story.end(unit, 0.0, absent=bool(absent))


def test_the_brakes_of_idle_namespaces_hold_no_keys():
    story = Story(*(namespace(f"n{n}") for n in range(5)))
    for n in range(5):
        story.touch(*(b"n%d:%d" % (n, key) for key in range(100)), at=20.0 * n)
        unit = story.start(20.0 * n)
        story.engine.braked(unit, [], 20.0 * n)
        story.end(unit, 20.0 * n)
    brakes = story.engine._outcomes._brakes.values()
    assert [len(brake._latest) for brake in brakes] == [0, 0, 0, 0, 1]


def test_another_try_of_the_same_keys_is_no_news_for_the_brake():
    story = Story(max_attempts=100)
    keys = [b"p:%d" % n for n in range(10)]
    story.touch(*keys, at=0.0)
    for at in range(4):  # Redis is away: the rows are found absent again and again
        now = at * 2.0
        unit = story.start(now)
        assert story.engine.braked(unit, keys, now) is None
        story.end(unit, now, Result.UNAVAILABLE)


def test_keys_whose_first_try_never_reached_the_database_count_when_one_does():
    story = Story()
    keys = [b"p:%d" % n for n in range(30)]
    story.touch(*keys, at=0.0)
    story.fail(story.start(0.0), 0.0, own=False)

    assert story.engine.braked(story.start(1.0), keys, 1.0) == set(keys)


def test_braked_head_ends_without_a_fault_and_its_tail_runs():
    story = Story(namespace(every=0.5), max_attempts=1)
    story.touch(A, B, at=0.0)
    unit = story.start(0.0)
    story.change(B, at=0.1)
    story.engine.on_answers(unit, [BRAKED, BRAKED], 0.2, absent=[A, B])

    assert not story.engine.quarantine.keys
    assert story.starts(0.2) == [[B]]
    assert story.count("refreshes", "braked") == 2
    story.miss(A, at=0.4)
    assert story.starts(0.4) == [[A]], "no mark says that the row is gone"
    assert story.engine.take_ages() == []
