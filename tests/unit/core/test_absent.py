"""Marks of rows known to be absent: bounded in time and number, and never out of step with the set beside them."""

from __future__ import annotations

from random import Random

from cacheupdater.core.absent import AbsentMarks

A, B, C = b"p:1", b"p:2", b"p:3"


def marks_at(now: float, most: int = 100, turn: int = 100) -> AbsentMarks:
    marks = AbsentMarks(most, turn=turn)
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


def test_number_of_marks_is_bounded_and_those_that_end_first_make_way():
    marks = marks_at(0.0, most=2)
    marks.mark([A], 5.0)
    marks.mark([B, C], 30.0)

    assert (A in marks, B in marks, C in marks, len(marks)) == (False, True, True, 2)


def test_marks_that_end_together_are_forgotten_some_at_a_time_and_count_for_nothing_meanwhile():
    marks = marks_at(0.0, most=1_000, turn=100)
    keys = [b"p:%d" % number for number in range(1_000)]
    marks.mark(keys, 30.0)
    marks.expire(10.0)
    marks.mark(keys[:50], 30.0)
    marks.expire(30.0)

    assert len(marks) == 900
    assert [key for key in keys if key in marks] == keys[:50]
    for _ in range(20):
        marks.expire(30.0)
    assert marks.keys == set(keys[:50])


def test_mark_that_is_over_and_not_forgotten_yet_can_be_set_again():
    marks = marks_at(0.0, turn=1)
    marks.mark([A, B, C], 30.0)
    marks.expire(30.0)
    marks.mark([C], 30.0)
    for _ in range(3):
        marks.expire(59.0)

    assert marks.keys == {C}
    assert C in marks


def test_clock_that_steps_back_revives_nothing():
    marks = marks_at(100.0)
    marks.mark([A], 30.0)
    marks.expire(131.0)
    marks.expire(1.0)

    assert A not in marks
    assert marks.now == 131.0


def test_marks_are_a_dict_of_ends_whatever_happens():
    for seed in range(200):
        rng = Random(seed)
        marks, now, ends = marks_at(0.0, most=6, turn=rng.choice((1, 100))), 0.0, {}
        for _ in range(40):
            now += rng.choice((0.0, 1.0, 5.0))
            marks.expire(now)
            keys = list({b"p:%d" % rng.randrange(6) for _ in range(3)})
            if rng.random() < 0.6:
                ttl = rng.choice((0.0, 2.0, 9.0))
                marks.mark(keys, ttl)
                ends |= dict.fromkeys(keys, now + ttl)
            else:
                marks.end(keys)
                ends = {key: end for key, end in ends.items() if key not in keys}
            live = {key for key, end in ends.items() if end > now}
            assert {key for key in ends if key in marks} == live
            assert live <= marks.keys
            assert len(marks) == len(marks.keys) <= 6
        for _ in range(6):
            marks.expire(now + 9.0)
        assert not marks.keys


def test_a_batch_loses_the_marked_keys():
    marks = marks_at(100.0)
    assert marks.without([A, B]) == [A, B]
    marks.mark([A], 30.0)
    assert marks.without([C, A, B]) == [C, B]
