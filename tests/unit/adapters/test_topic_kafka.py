"""The right settings of a topic for hints: those of a new one, and the remarks on an existing one."""

from __future__ import annotations

import pytest

from cacheupdater.adapters.topic_kafka import settings

GOOD = settings.wanted(settings.RETENTION_S)


@pytest.mark.parametrize("retention", [60.0, 600.0, 6 * 3600.0, 30 * 86_400.0])
def test_a_segment_is_closed_well_before_its_hints_are_to_be_removed(retention):
    wanted = settings.wanted(retention)
    assert int(wanted["segment.ms"]) <= int(wanted["retention.ms"]) / 2
    assert wanted["cleanup.policy"] == "delete"


def test_nothing_is_to_be_said_of_a_topic_that_we_would_make():
    assert [*settings.wrong(GOOD), *settings.odd(GOOD)] == []


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "compact", "removes hints that nobody has read"),
        ("cleanup.policy", "compact,delete", "set it to delete"),
        ("max.message.bytes", "262144", "a pack of hints may have 263168"),
    ],
)
def test_what_loses_hints_is_wrong(name, value, why):
    [said] = settings.wrong(GOOD | {name: value})
    assert why in said


@pytest.mark.parametrize(
    ("retention", "why"),
    [("-1", "kept for ever"), ("604800000", "kept 168h, which costs disk"), ("300000", "kept only 5m")],
)
def test_a_retention_that_helps_nobody_is_noted(retention, why):
    [said] = settings.odd(GOOD | {"retention.ms": retention})
    assert why in said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "for ever"), (21_600.0, "6h"), (5_400.0, "90m"), (61.5, "61.5s"), (86_400.0, "24h")],
)
def test_times_are_spelled_as_people_write_them(seconds, text):
    assert settings.spelled(seconds) == text
