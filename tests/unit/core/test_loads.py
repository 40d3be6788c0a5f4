"""A slow load is compared with others of its namespace, for its size and its time; where there is none, smaller units are tried."""

from __future__ import annotations

from cacheupdater.core.loads import PIECES, TRIED_LEAST, Loads, Took

QUICK, LONG = 0.004, 0.4


def test_unit_that_took_long_for_its_size_alone_has_no_slow_key():
    loads = Loads()
    loads.put(Took(0.0, 10, 0.02))

    assert not loads.outpace(Took(0.1, 200, 0.4)), "two milliseconds a row, as the other load"
    assert loads.outpace(Took(0.1, 10, 0.4))


def test_quick_load_says_nothing_about_a_source_that_has_become_slow_later():
    loads = Loads()
    loads.put(Took(0.0, 200, QUICK))

    assert loads.outpace(Took(0.9, 200, LONG))
    assert not loads.outpace(Took(1.1, 200, LONG))


def test_smaller_units_are_tried_at_once_and_then_more_and_more_rarely():
    loads, tried = Loads(), []
    for number in range(5 * TRIED_LEAST):
        loads.unexplained()
        if loads.tries:
            tried.append(number)
            assert loads.unit_keys(200) == 200 // PIECES
            loads.tries = False
    assert tried[:4] == [0, 2, 6, 14]
    assert tried[-1] - tried[-2] == TRIED_LEAST
    assert loads.unit_keys(200) == 200
