"""Marks of rows known to be absent: bounded in time and number, and never out of step with the set beside them."""

from __future__ import annotations

from random import Random

from cacheupdater.core.absent import AbsentMarks

A, B, C = b"p:1", b"p:2", b"p:3"


def marks_at(now: float, most: int = 100) -> AbsentMarks:
    marks = AbsentMarks(most)
    marks.expire(now)
    return marks


def test_mark_lasts_for_its_ttl():
    marks = marks_at(100.0)
    marks.mark([A], 30.0)
    marks.expire(129.9)
    assert A in marks
    marks.expire(130.0)
    assert A not in marks
    assert len(marks) == 0


def test_mark_ends_when_its_key_is_read_or_changed():
    marks = marks_at(0.0)
    marks.mark([A, B], 30.0)
    marks.end([A, C])

    assert (A in marks, B in marks, len(marks)) == (False, True, 1)


def test_ttl_of_zero_marks_nothing():
    marks = marks_at(5.0)
    marks.mark([A], 0.0)

    assert (A in marks, len(marks)) == (False, 0)


def test_mark_made_again_lasts_from_then_on():
    marks = marks_at(0.0)
    marks.mark([A], 30.0)
    marks.expire(20.0)
    marks.mark([A], 30.0)
    marks.expire(49.0)

    assert A in marks


def test_number_of_marks_is_bounded_and_the_set_agrees():
    marks = marks_at(0.0, most=2)
    marks.mark([A, B, C], 30.0)

    assert len(marks) == len(marks._marks) == 2


def test_clock_that_steps_back_revives_nothing():
    marks = marks_at(100.0)
    marks.mark([A], 30.0)
    marks.expire(131.0)
    marks.expire(1.0)

    assert A not in marks
    assert marks.now == 131.0


def test_set_and_cache_agree_whatever_happens():
    for seed in range(200):
        rng = Random(seed)
        marks, now = marks_at(0.0, most=4), 0.0
        for _ in range(40):
            now += rng.choice((0.0, 1.0, 5.0))
            marks.expire(now)
            keys = [b"p:%d" % rng.randrange(8) for _ in range(3)]
            if rng.random() < 0.6:
                marks.mark(keys, rng.choice((0.0, 2.0, 9.0)))
            else:
                marks.end(keys)
            assert marks.keys == set(marks._marks)
            assert len(marks) <= 4
