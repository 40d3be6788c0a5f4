"""A slow load is compared with others of its namespace, for its size and its time; where there is none, smaller units are tried."""

from __future__ import annotations

import pytest

from cacheupdater.core.loads import PIECES, TRIED_LEAST, Loads, Took, Verdict

QUICK, LONG = 0.004, 0.4


def judged(loads: Loads, began: float, rows: int, seconds: float, *, apart: bool = False) -> Verdict:
    return loads.judge(Took(began, rows, seconds), apart=apart)


def beside(loads: Loads, since: float, until: float, rows: int = 200, every: float = 0.05) -> None:
    """Quick loads that end one after the other."""
    for number in range(round((until - since) / every)):
        judged(loads, since + number * every, rows, QUICK)


def test_load_that_others_outpace_has_a_slow_key():
    loads = Loads()
    beside(loads, 0.0, 0.5)

    assert judged(loads, 0.1, 200, LONG) is Verdict.KEY


def test_load_during_which_the_machine_stood_still_need_not_have_a_slow_key():
    loads = Loads()
    beside(loads, 0.0, 0.2)

    assert judged(loads, 0.1, 200, LONG) is Verdict.EITHER, "nothing ended between 0.15 and 0.5"


def test_load_that_runs_alone_need_not_have_a_slow_key():
    loads = Loads()

    assert judged(loads, 0.0, 200, QUICK) is Verdict.QUICK
    assert judged(loads, 0.1, 200, LONG) is Verdict.EITHER


def test_other_slow_loads_show_that_the_machine_did_not_stand_still():
    loads = Loads()
    judged(loads, 0.0, 200, QUICK)
    for began in (0.0, 0.1, 0.2):
        judged(loads, began, 200, LONG)

    assert judged(loads, 0.3, 200, LONG) is Verdict.KEY


def test_load_that_took_long_for_its_size_alone_has_no_slow_key():
    loads = Loads()
    beside(loads, 0.0, 0.5, rows=2)  # two milliseconds a row

    assert judged(loads, 0.1, 200, 0.4) not in {Verdict.KEY, Verdict.EITHER}
    assert judged(loads, 0.1, 10, 0.4) is Verdict.KEY


def test_small_load_is_no_measure_of_what_a_row_takes_where_a_large_one_was_quick():
    """On a busy machine each statement takes some time, whatever its size."""
    loads = Loads()
    judged(loads, 0.0, 200, 0.06)
    for began in (10.0, 10.1, 10.2, 10.3, 10.4):
        judged(loads, began, 12, 0.06)

    assert judged(loads, 10.0, 200, 0.5) is Verdict.KEY


def test_what_a_row_takes_rises_where_all_loads_take_longer_for_long():
    loads = Loads()
    judged(loads, 0.0, 200, QUICK)
    for number in range(2000):
        judged(loads, 1.0 + number * 0.1, 10, 0.02)

    assert judged(loads, 201.0, 200, LONG) not in {Verdict.KEY, Verdict.EITHER}


@pytest.mark.parametrize(("began", "verdict"), [(0.9, Verdict.EITHER), (1.1, Verdict.OPEN)])
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
