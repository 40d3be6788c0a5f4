"""A slow load is compared with others of its namespace, for its size and its time; where there is none, smaller units are tried."""

from __future__ import annotations

import pytest

from cacheupdater.core.loads import PIECES, TRIED_LEAST, Loads, Took, Verdict

QUICK, LONG = 0.004, 0.4


def judged(loads: Loads, began: float, rows: int, seconds: float, *, apart: bool = False) -> Verdict:
    return loads.judge(Took(began, rows, seconds), apart=apart)


def test_load_that_others_outpace_has_a_slow_key():
    loads = Loads()

    assert judged(loads, 0.0, 200, QUICK) is Verdict.QUICK
    assert judged(loads, 0.1, 200, LONG) is Verdict.KEY


def test_load_that_took_long_for_its_size_alone_has_no_slow_key():
    loads = Loads()
    judged(loads, 0.0, 10, 0.02)

    assert judged(loads, 0.1, 200, 0.4) is not Verdict.KEY, "two milliseconds a row, as the other load"
    assert judged(loads, 0.1, 10, 0.4) is Verdict.KEY


@pytest.mark.parametrize(("began", "verdict"), [(0.9, Verdict.KEY), (1.1, Verdict.OPEN)])
def test_quick_load_says_nothing_about_a_source_that_has_become_slow_later(began, verdict):
    loads = Loads()
    judged(loads, 0.0, 200, QUICK)

    assert judged(loads, began, 200, LONG) is verdict


def test_source_whose_loads_all_take_long_is_slow_once_a_smaller_unit_has_shown_it():
    loads = Loads()

    assert judged(loads, 0.0, 200, LONG) is Verdict.OPEN
    assert loads.unit_keys(200) == 200 // PIECES
    loads.tries = False
    assert judged(loads, 0.1, 12, LONG) is Verdict.SOURCE
    assert judged(loads, 0.2, 200, LONG, apart=True) is Verdict.SOURCE


def test_smaller_units_are_tried_at_once_and_then_more_and_more_rarely():
    loads, tried = Loads(), []
    for number in range(5 * TRIED_LEAST):
        judged(loads, float(number), 200, LONG)
        if loads.tries:
            tried.append(number)
            loads.tries = False

    assert tried[:4] == [0, 2, 6, 14]
    assert tried[-1] - tried[-2] == TRIED_LEAST
    assert loads.unit_keys(200) == 200


def test_slow_key_that_was_found_makes_tries_frequent_again():
    loads = Loads()
    for number in range(20):
        judged(loads, float(number), 200, LONG)
        loads.tries = False
    judged(loads, 20.0, 12, QUICK)
    judged(loads, 20.1, 200, LONG)
    judged(loads, 30.0, 200, LONG)

    assert loads.tries


def test_suspect_that_is_slow_while_nothing_else_runs_is_tried_by_no_smaller_unit():
    loads = Loads()

    assert judged(loads, 0.0, 1, LONG, apart=True) is Verdict.OPEN
    assert not loads.tries
