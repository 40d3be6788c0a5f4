"""The format of figures for people."""

from __future__ import annotations

import pytest

from cacheupdater.cli.tables import number, percent, table


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0.00%"), (0.0014, "0.14%"), (0.00996, "1.0%"), (0.048, "4.8%"), (0.0996, "10%"), (1.0, "100%")],
)
def test_percent_shows_two_figures(share, shown):
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567.0, "1,234,567"), (100.4, "100"), (41.234, "41.2"), (0.0771, "0.0771"), (0, "0")],
)
def test_number_shows_what_matters(value, shown):
    assert number(value) == shown


def test_columns_are_as_wide_as_they_need_be():
    assert list(table(("A", "BB"), [("long", "x")])) == ["A     BB", "long  x"]
