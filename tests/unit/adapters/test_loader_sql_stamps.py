"""The time of a row's last change from a column's value, in every type that a driver returns."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.adapters.loader_sql.stamps import read

NOW = 1_700_000_000.0
MOMENT = datetime.fromtimestamp(NOW, UTC)
NOBODY = [None, True, "", "soon", "12:60", b"7", math.nan, math.inf, 10**400, Decimal("sNaN"), [], {}]


def version(mark):
    return read("version", [((1,), mark)], asked=NOW).get((1,))


def age(mark):
    return read("age", [((1,), mark)], asked=NOW).get((1,))


@pytest.mark.parametrize(("mark", "number"), [(7, 7.0), (2.5, 2.5), (Decimal("7.25"), 7.25), (-1, -1.0)])
def test_version_is_the_number_of_the_row(mark, number):
    assert version(mark) == number


@pytest.mark.parametrize("mark", [*NOBODY, "7", MOMENT])
def test_version_that_is_no_number_is_none(mark):
    assert version(mark) is None


@pytest.mark.parametrize(
    "mark",
    [
        MOMENT - timedelta(seconds=90),
        (MOMENT - timedelta(seconds=90)).replace(tzinfo=None),
        (MOMENT - timedelta(seconds=90)).astimezone(timezone(timedelta(hours=-5))),
        str(MOMENT.replace(tzinfo=None) - timedelta(seconds=90)),
        (MOMENT - timedelta(seconds=90)).isoformat(),
        "2023-11-14 22:11:50",
        "2023-11-14T22:11:50Z",
        "2023-11-15T00:11:50.000+02:00",
        1_699_999_910,
        1_699_999_910.0,
        Decimal(1699999910),
    ],
)
def test_age_is_the_seconds_since_the_time_of_the_row(mark):
    assert age(mark) == pytest.approx(90)


@pytest.mark.parametrize("mark", [MOMENT + timedelta(days=1), NOW + 5, datetime.max.replace(tzinfo=UTC)])
def test_age_of_a_change_that_is_yet_to_come_is_zero(mark):
    assert age(mark) == 0.0


@pytest.mark.parametrize("mark", [*NOBODY, date(2023, 11, 14), "2023-11-14", "1699999910"])
def test_age_that_is_no_time_is_none(mark):
    assert age(mark) is None


@given(
    st.one_of(st.datetimes(), st.datetimes(timezones=st.timezones()), st.text(), st.floats(), st.integers())
)
def test_age_is_finite_and_never_negative_whatever_the_row_says(mark):
    seconds = age(mark)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


def test_rows_without_a_stamp_are_left_out():
    assert read("version", [((1,), 3), ((2,), None), ((3, "a"), 4)], asked=NOW) == {(1,): 3.0, (3, "a"): 4.0}
