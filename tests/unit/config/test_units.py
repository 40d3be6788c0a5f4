"""Quantities are read exactly. Text that could be misread is refused, with the valid forms."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.config.units import database_time, duration, factor, percent, printable, rate, shown, whole

_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("100ms", 0.1),
        ("2s", 2),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("0s", 0),
        ("1d", 86_400),
        (" 5s ", 5),
    ],
)
def test_duration_reads_what_people_write(text, seconds):
    assert duration(text) == seconds


@given(st.fixed_dictionaries({}, optional={unit: st.integers(0, 10_000) for unit in _SECONDS}).filter(bool))
def test_duration_is_the_sum_of_its_parts_whatever_they_are(parts):
    text = "".join(f"{parts[unit]}{unit}" for unit in _SECONDS if unit in parts)
    assert duration(text) == pytest.approx(sum(number * _SECONDS[unit] for unit, number in parts.items()))


@pytest.mark.parametrize(
    ("text", "per_second"), [("500/s", 500), ("50/m", 50 / 60), ("0.5/s", 0.5), ("3600/h", 1)]
)
def test_rate_is_rows_per_second(text, per_second):
    assert rate(text) == pytest.approx(per_second)


@pytest.mark.parametrize(("text", "seconds"), [("300ms/s", 0.3), ("2s/s", 2), ("0.5ms/s", 0.0005)])
def test_database_time_is_seconds_per_second(text, seconds):
    assert database_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", ["300ms", "300/s", "300ms/m", "1m/s", "1h/s"])
def test_database_time_is_per_second_and_nothing_else(wrong):
    with pytest.raises(ValueError, match="is not database time per second such as 300ms/s or 2s/s"):
        database_time(wrong)


@pytest.mark.parametrize(("text", "times"), [("10", 10), ("0.5", 0.5), (" 1 ", 1)])
def test_factor_is_a_plain_number(text, times):
    assert factor(text) == times


@pytest.mark.parametrize("wrong", ["10x", "10%", "1/2", "-1", "1e3", "2s"])
def test_factor_takes_no_unit(wrong):
    with pytest.raises(ValueError, match=r"is not a factor, a plain number such as 10 or 0\.5"):
        factor(wrong)


def test_percent_is_a_share_of_one():
    assert percent("10%") == 0.1


def test_whole_reads_a_count():
    assert whole("12") == 12


@pytest.mark.parametrize(
    ("read", "forms"),
    [
        (duration, "100ms, 2s, 5m or 1h30m"),
        (rate, "500/s, 50/m"),
        (database_time, "300ms/s"),
        (percent, "10%"),
    ],
)
def test_bare_number_is_refused_with_the_forms(read, forms):
    with pytest.raises(ValueError, match=rf'^"30" has no unit; write .*{re.escape(forms)}'):
        read("30")


@pytest.mark.parametrize("read", [duration, rate, database_time, percent, factor, whole])
@pytest.mark.parametrize(
    "wrong", ["", "-5s", "5 s", "s", "1e3s", "٣s", "5S", "1s1m", "1s1s", "inf", "5s\n5s", "9" * 40, [], {}]
)
def test_nonsense_is_refused(read, wrong):
    with pytest.raises(ValueError):
        read(wrong)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for read in (duration, rate, database_time, percent, factor, whole):
        try:
            assert read(text) >= 0
        except ValueError as e:
            assert printable(str(e)) == str(e)  # noqa: PT017  each reader may refuse or accept


def test_shown_cuts_and_escapes_what_a_terminal_would_obey():
    assert shown("a\x1b[2J") == '"a\\x1b[2J"'
    assert len(shown("x" * 1000)) < 50
    assert "c4n4ry" not in shown("redis://user:c4n4ry" + "x" * 50 + "@host")
