"""Variables in values: the four forms, and everything that looks like one but is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.config.interpolate import interpolate

_ENV = {"HOST": "db", "PORT": "5432", "EMPTY": "", "TRICK": "${HOST}", "LINES": "a\nb"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${HOST}", "db"),
        ("tcp://${HOST}:${PORT}", "tcp://db:5432"),
        ("${NONE:-fallback}", "fallback"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${NONE:-}", ""),
        ("${NONE:-a:b?c}", "a:b?c"),
        ("${EMPTY}", ""),
        ("${HOST:?needed}", "db"),
        ("$$HOST $${HOST} $$$$", "$HOST ${HOST} $$"),
        ("$HOST costs 5$", "$HOST costs 5$"),
        ("${TRICK}", "${HOST}"),
        ("product:{id:int}", "product:{id:int}"),
    ],
)
def test_interpolate_puts_values_in(text, value):
    assert interpolate(text, _ENV) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE}", r"\$\{NONE\} is not set; set it, or write \$\{NONE:-default\}"),
        ("${NONE:?}", r"\$\{NONE\} is not set"),
        ("${NONE:?set NONE}", r"^set NONE \(\$\{NONE\} is not set\)"),
        ("${EMPTY:?set EMPTY}", r"^set EMPTY \(\$\{EMPTY\} is empty\)"),
        ("${LINES}", "LINES.* newline"),
        ("${HOST", "cannot read"),
        ("${}", "cannot read"),
        ("${1X}", "cannot read"),
        ("${HOST-x}", "cannot read"),
        ("${A:-${B}}", "cannot read"),
    ],
)
def test_interpolate_refuses_what_is_missing_or_malformed(text, message):
    with pytest.raises(ValueError, match=message):
        interpolate(text, _ENV)


@given(st.text())
def test_interpolate_keeps_any_text_whose_dollars_are_doubled(text):
    assert interpolate(text.replace("$", "$$"), {}) == text
