"""Old values that Redis did not remove are shown as a trouble of their namespace for as long as they may be read."""

from __future__ import annotations

import logging

import pytest

from cacheupdater.pipeline.keyed import KEYS_MAX, STANDS_S
from cacheupdater.pipeline.naming import named
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.unremoved import Unremoved

A, B, C = b"p:1", b"p:2", b"p:3"


@pytest.fixture
def notices():
    return Notices(lambda: 0.0)


@pytest.fixture
def unremoved(notices):
    return Unremoved(notices, "full")


def standing(notices):
    return [(each.event, each.subject) for each in notices.standing()]


def test_the_trouble_stands_until_the_last_of_its_keys_was_served(unremoved, notices):
    unremoved.given_up("p", [A, B], "NOPERM", 0.0)
    unremoved.served("p", [A, C])
    assert standing(notices) == [("removal_refused", "p")]
    unremoved.served("p", [B])
    assert standing(notices) == []
    assert not unremoved


def test_the_trouble_stands_while_others_of_its_namespace_are_removed_without_trouble(unremoved, notices):
    unremoved.given_up("p", [A], "NOPERM", 0.0)
    unremoved.served("p", [B])
    unremoved.served("q", [A])
    unremoved.tick(STANDS_S - 1.0)
    assert standing(notices) == [("removal_refused", "p")]


def test_what_was_given_up_long_ago_is_forgotten(unremoved, notices):
    unremoved.given_up("p", [A], "NOPERM", 0.0)
    unremoved.given_up("p", [B], "NOPERM", 10.0)
    unremoved.tick(STANDS_S)
    assert unremoved
    unremoved.tick(STANDS_S + 10.0)
    assert standing(notices) == []


@pytest.mark.parametrize("log_keys", ["full", "hash", "off"])
def test_keys_are_named_at_the_debug_level_only_and_as_far_as_allowed(notices, caplog, log_keys):
    caplog.set_level(logging.DEBUG)
    Unremoved(notices, log_keys).given_up("p", [A], "NOPERM", 0.0)
    said = [(each.levelno, each.getMessage()) for each in caplog.records]
    debug = [text for level, text in said if level == logging.DEBUG]
    assert debug == ([f"not removed: {named(A, log_keys)}"] if log_keys != "off" else [])
    assert not [text for level, text in said if level > logging.DEBUG and ("p:1" in text or "#" in text)]


def test_only_so_many_keys_are_remembered(unremoved, notices):
    unremoved.given_up("p", [b"p:%d" % n for n in range(3 * KEYS_MAX)], "NOPERM", 0.0)
    unremoved.served("p", [b"p:%d" % n for n in range(2 * KEYS_MAX, 3 * KEYS_MAX)])
    assert standing(notices) == []
