"""A row that takes too long is found and set aside. If the source is too slow, its statements are not cut smaller."""

from __future__ import annotations

from math import inf

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.outcomes import PIECES_OF_A_SLOW_UNIT, Failure, Load

KEYS = [b"p:%d" % n for n in range(100)]
SLOW = KEYS[37]
A, B = KEYS[:2]


def tell_until_rest(story: Story, slow: bytes, *, took: float = 1.0) -> dict[bytes, float]:
    """Every load answers at once, but for those with the slow key; when each key was written."""
    now, written, running = 0.0, {}, []
    while now < 60.0 and story.engine.pending:
        for began, unit in running:
            if began + took <= now:
                running.remove((began, unit))
                story.time_out(unit, now)
        work = story.step(now)
        for unit in work.units:
            if slow in unit.keys:
                running.append((now, unit))
            else:
                written |= dict.fromkeys(unit.keys, now)
                story.end(unit, now)
        if not work.units:
            now = min([work.wake, *(began + took for began, _ in running)])
    return written


@pytest.mark.parametrize("hint", [Story.touch, Story.miss, Story.change])
def test_pack_mates_of_a_slow_row_are_loaded_and_the_row_is_set_aside(hint):
    story = Story()
    hint(story, *KEYS, at=0.0)
    written = tell_until_rest(story, SLOW)

    assert set(written) == set(KEYS) - {SLOW}
    assert max(written.values()) <= 6.0
    assert list(story.engine.quarantine.keys) == [SLOW]


def test_a_unit_is_cut_on_its_second_timeout_into_a_few_pieces():
    story = Story()
    story.touch(*KEYS, at=0.0)
    story.time_out(story.start(0.0), 1.0)
    second = story.start(2.0)
    assert second.keys == KEYS
    story.time_out(second, 3.0)
    pieces = story.starts(3.2)

    assert [len(piece) for piece in pieces] == [len(KEYS) // PIECES_OF_A_SLOW_UNIT] * PIECES_OF_A_SLOW_UNIT
    assert [key for piece in pieces for key in piece] == KEYS


def test_new_keys_in_a_unit_that_times_out_are_parted_from_those_that_have_before():
    story = Story()
    story.touch(*KEYS[:10], at=0.0)
    story.time_out(story.start(0.0), 1.0)
    story.touch(*KEYS[10:20], at=1.5)
    unit = story.start(2.0)
    assert sorted(unit.keys) == sorted(KEYS[:20])
    story.time_out(unit, 3.0)

    assert story.starts(3.0) == [KEYS[:10]]
    assert story.starts(5.0) == [KEYS[10:20]]


def source(concurrency: int = 100) -> Source:
    return Source("db", plenty(), concurrency=concurrency)


def test_units_of_a_source_that_answers_nobody_are_not_cut():
    shared = source()
    story = Story(namespace("p", source=shared), namespace("q", source=shared))
    story.touch(*KEYS[:10], *(b"q:%d" % n for n in range(10)), at=0.0)
    now, sizes = 0.0, []
    for _ in range(6):
        units = story.step(now).units
        sizes += [len(unit.keys) for unit in units]
        for unit in units:
            story.time_out(unit, now + 1.0)
        now += 4.0

    assert sizes == [10] * 12
    assert not story.engine.quarantine.keys


def test_one_unit_that_is_answered_meanwhile_is_evidence_against_the_others():
    shared = source()
    story = Story(namespace("p", source=shared), namespace("q", source=shared))
    story.touch(A, B, at=0.0)
    story.time_out(story.start(0.0), 1.0)
    story.touch(b"q:1", at=2.0)
    slow, quick = sorted(story.step(2.0).units, key=lambda unit: unit.namespace.name)
    story.end(quick, 2.1)
    story.time_out(slow, 3.0)

    assert sorted(story.starts(3.2)) == [[A], [B]]


def test_other_sources_are_no_evidence():
    story = Story(namespace("p", source=source()), namespace("q", source=source()))
    story.touch(A, b"q:1", at=0.0)
    for now in (0.0, 4.0, 8.0):
        for unit in story.step(now).units:
            story.time_out(unit, now + 1.0)

    assert len(story.engine.quarantine.keys) == 0
    assert {key: each.faults for key, each in story.engine._troubles._troubles.items()} == {A: 2, b"q:1": 2}


def test_a_key_that_times_out_alone_has_failed_by_itself_but_for_the_first_time():
    story = Story()
    story.change(A, at=0.0)
    now, tries = 0.0, 0
    while not story.engine.quarantine.keys:
        work = story.step(now)
        for unit in work.units:
            tries += 1
            story.time_out(unit, now + 1.0)
        now = max(now + 1.0, work.wake if work.wake < inf else 0.0)

    assert tries == 1 + story.limits.max_attempts
    assert story.step(now).invalidation.keys == [A]


def test_a_unit_that_is_evicted_twice_is_cut_like_one_that_timed_out():
    story = Story()
    story.touch(A, B, at=0.0)
    first = story.start(0.0)
    story.step(3.0)
    story.end(first, 3.1)
    story.start(4.0)

    assert sorted(story.starts(7.0)) == [[A], [B]]


def test_a_key_whose_quarantine_is_over_runs_apart():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.0, own=True)
    story.touch(*KEYS, at=60.0)

    assert sorted(story.starts(60.0)) == sorted([[A], KEYS[1:]])


def test_a_load_that_asked_the_database_nothing_gives_its_budget_and_quota_back():
    for asked, left in ((True, 8), (False, 10)):
        bucket, quota = Bucket(0.001, 10.0, now=-1e6), Bucket(0.001, 10.0, now=-1e6)
        story = Story(namespace(source=Source("db", bucket, concurrency=1), quota=quota))
        story.miss(A, B, at=0.0)
        unit = story.start(0.0)
        failure = Failure("no connection", own=False)
        story.engine.on_failure(unit, failure, 0.0, load=Load(0.0, asked=asked))

        assert (bucket.rows(0.0), quota.rows(0.0)) == (left, left)


def test_a_load_that_asked_nothing_teaches_a_budget_of_time_nothing():
    bucket = Bucket(0.001, 100.0, now=-1e6)
    story = Story(namespace(source=Source("db", bucket, concurrency=1, timed=True)))
    story.miss(A, B, at=0.0)
    story.engine.on_failure(
        story.start(0.0), Failure("no connection", own=False), 0.0, load=Load(0.0, asked=False)
    )

    assert bucket.level(0.0) == pytest.approx(100.0)
    assert story.namespaces[0].cost.per_row == 1.0
