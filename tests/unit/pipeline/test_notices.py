"""A trouble has a line at its beginning and one at its end, and stands in between for whoever asks."""

import logging

import pytest

from cacheupdater.pipeline.notices import REPEAT_S, STANDING_MAX, Notices


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def notices(clock, caplog):
    caplog.set_level(logging.INFO)
    return Notices(lambda: clock[0])


def test_a_trouble_is_said_once_when_it_begins_and_once_when_it_is_over(notices, clock, caplog):
    for _ in range(100):
        notices.trouble("load_failed", "shop", "the database does not answer")
        clock[0] += 0.05
    assert [each.text for each in notices.standing()] == ["the database does not answer"]
    notices.over("load_failed", "shop", "240 keys were late")
    assert caplog.messages == [
        "load_failed shop: the database does not answer",
        "load_failed shop: over after 5.0 s (100 times, 240 keys were late)",
    ]
    assert notices.standing() == []
    assert (caplog.records[0].event, caplog.records[0].subject) == ("load_failed", "shop")


def test_a_trouble_that_lasts_is_said_again_once_a_minute(notices, clock, caplog):
    for _ in range(5):
        notices.trouble("braked", "product", "90 of 100 rows are suddenly absent")
        clock[0] += REPEAT_S / 2
    assert len(caplog.messages) == 3
    assert "for 60 s, 3 times" in caplog.messages[1]


def test_the_end_of_what_never_began_says_nothing(notices, caplog):
    notices.over("redis_down", "")
    assert caplog.messages == []


def test_troubles_without_end_are_bounded(notices):
    for number in range(STANDING_MAX + 10):
        notices.trouble("write_failed", str(number), "no memory")
    assert len(notices.standing()) == STANDING_MAX
