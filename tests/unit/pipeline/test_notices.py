"""A trouble has a log line at its beginning and one at its end; in between it is shown on request."""

import logging
from typing import get_args

import pytest

from cacheupdater.core.events import EVENTS, OurEvent, QueueEvent
from cacheupdater.pipeline.notices import QUIET_S, REPEAT_S, SHORT_S, STANDING_MAX, Notices


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def notices(clock, caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")  # whatever the command line set in this process
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
    assert caplog.records[1].times == 3


def test_the_end_of_what_never_began_says_nothing(notices, caplog):
    notices.over("redis_down", "")
    assert caplog.messages == []


def test_troubles_without_end_are_bounded(notices):
    for number in range(STANDING_MAX + 10):
        notices.trouble("write_failed", str(number), "no memory")
    assert len(notices.standing()) == STANDING_MAX


def test_a_trouble_that_comes_and_goes_has_one_line_at_each_end(notices, clock, caplog):
    """Of a source some statements pass and some time out: not a pair of lines for each."""
    for _ in range(200):
        notices.trouble("load_failed", "shop", "no answer in time", keys=3)
        notices.over("load_failed", "shop")
        notices.tick()
        clock[0] += 0.1
    assert len(notices.standing()) == 1
    clock[0] += QUIET_S
    notices.tick()
    assert notices.standing() == []
    begins, end = caplog.messages
    assert begins == "load_failed shop: no answer in time"
    assert end == "load_failed shop: over after 19.9 s (200 times, 600 keys tried in vain)"
    assert [each.state for each in caplog.records] == ["begins", "over"]


def test_a_trouble_that_is_back_after_its_end_was_said_is_said_at_once_with_its_cause(notices, clock, caplog):
    """A file is mended, and wrong in another way: the last line must not say that all is well."""
    notices.trouble("foreign", "product", "the values are pickles")
    clock[0] += SHORT_S
    for _ in range(20):
        notices.over("foreign", "product")
        clock[0] += QUIET_S / 2
        notices.trouble("foreign", "product", "price would become text")
    assert [each.state for each in caplog.records[:3]] == ["begins", "over", "lasts"]
    assert caplog.messages[2] == "foreign product: price would become text (for 6 s, 2 times, comes and goes)"
    assert len(caplog.messages) == 4  # once more after a minute


def test_a_trouble_of_a_moment_does_not_stand_and_its_end_is_said_once_it_has_kept_quiet(
    notices, clock, caplog
):
    notices.trouble("load_failed", "shop", "no answer in time", keys=1)
    notices.over("load_failed", "shop")
    assert notices.standing() == []
    notices.tick()
    assert len(caplog.messages) == 1
    clock[0] += QUIET_S
    notices.tick()
    notices.tick()
    assert caplog.messages[1:] == ["load_failed shop: over at once (once, 1 key tried in vain)"]


@pytest.mark.parametrize(
    ("event", "fate"),
    [("foreign", "left alone"), ("braked", "left alone"), ("write_failed", "tried in vain")],
)
def test_the_end_says_whether_keys_were_left_alone_or_tried_in_vain(notices, clock, caplog, event, fate):
    notices.trouble(event, "product", "1 key", keys=1)
    notices.trouble(event, "product", "1 key", keys=1)
    clock[0] += SHORT_S
    notices.over(event, "product")
    assert caplog.messages[-1] == f"{event} product: over after 1.0 s (2 times, 2 keys {fate})"


def test_a_trouble_of_a_moment_that_is_met_again_after_a_quiet_time_has_ended_before(notices, clock, caplog):
    for _ in range(2):
        notices.trouble("redis_down", "", "connection refused")
        notices.over("redis_down", "")
        clock[0] += QUIET_S
    notices.tick()
    assert [each.state for each in caplog.records] == ["begins", "over", "begins", "over"]


def test_a_trouble_after_a_quiet_time_is_a_new_one(notices, clock, caplog):
    for _ in range(2):
        notices.trouble("redis_down", "", "connection refused")
        clock[0] += SHORT_S
        notices.over("redis_down", "")
        clock[0] += QUIET_S
    assert len(caplog.messages) == 4


def test_a_fault_shows_where_it_happened_and_not_what_it_quotes(notices, caplog):
    secret = "of a" + " row"
    try:
        int(secret)
    except ValueError as e:
        notices.trouble("unexpected", "product", "3 keys were not refreshed: ValueError", error=e)
    assert "test_notices.py" in caplog.text
    assert secret not in caplog.text


def test_what_stands_can_be_said_as_json(notices, clock):
    notices.trouble("load_failed", "shop", "no answer")
    clock[0] += 2.5
    assert notices.plain() == [
        {"event": "load_failed", "subject": "shop", "text": "no answer", "seconds": 2.5, "times": 1}
    ]


def test_each_kind_of_trouble_has_a_meaning():
    assert set(EVENTS) == {*get_args(QueueEvent), *get_args(OurEvent)}
