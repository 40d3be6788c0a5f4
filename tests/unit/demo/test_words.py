"""The lines that both demonstrations print: no line is too wide, and the exit code says what the checks say."""

from __future__ import annotations

import pytest

from cacheupdater.demo.words import Check, aligned, exit_code, judged, lined

HELD, BROKEN, UNKNOWN = (Check(passed, "it") for passed in (True, False, None))


def test_each_check_says_how_it_went_at_the_beginning_of_its_line():
    lines = judged([HELD, BROKEN, UNKNOWN]).splitlines()
    assert [line.split() for line in lines] == [["ok", "it"], ["FAILED", "it"], ["-", "it"]]


def test_the_words_of_a_long_check_are_broken_at_no_margin_and_start_below_each_other():
    told = judged([Check(True, "price " * 40), HELD]).splitlines()
    assert max(map(len, told)) <= 80
    assert all(line.startswith(" " * 8 + "price") for line in told[1:-1])
    assert told[-1].endswith("it")


def test_words_are_broken_at_no_margin():
    told = lined(["price " * 40, "short"])
    assert max(map(len, told.splitlines())) <= 80
    assert told.splitlines()[1].startswith("  price")
    assert told.endswith("\nshort")


@pytest.mark.parametrize(
    ("checks", "code"), [([], 0), ([HELD, UNKNOWN], 0), ([HELD, BROKEN], 1), ([BROKEN, UNKNOWN], 1)]
)
def test_only_a_broken_promise_makes_the_demonstration_fail(checks, code):
    assert exit_code(checks) == code


def test_columns_are_as_wide_as_their_widest_cell():
    assert aligned([("", "rows"), ("price", "7")]).splitlines() == ["       rows", "price     7"]
