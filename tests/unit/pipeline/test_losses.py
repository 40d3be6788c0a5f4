"""Hints that were refused, or were gone before an updater read them, are a trouble with a beginning and an end."""

from __future__ import annotations

import pytest

from cacheupdater.adapters.observer_prometheus import meanings
from cacheupdater.pipeline.losses import _TEXTS, STANDS_S, Losses
from cacheupdater.pipeline.notices import QUIET_S, Notices


class Process:
    """What an operator sees of a process that loses hints."""

    def __init__(self):
        self.now = 0.0
        self.counted = []
        self.levels = []
        self.notices = Notices(lambda: self.now)
        self.losses = Losses(self, self.notices)

    def count(self, metric, amount, *, label="", reason=""):
        self.counted.append((metric, amount, label, reason))

    def level(self, metric, value, *, label=""):
        self.levels.append((metric, label, value))

    def end(self, metric, *, label=""):
        self.levels.append((metric, label, None))

    def lose(self, *reasons, metric="intake_rejected"):
        for reason in reasons:
            self.losses.count(metric, 1, reason=reason)

    def passes(self, seconds):
        for _ in range(int(seconds)):
            self.now += 1.0
            self.losses.tell(self.now)
            self.notices.tick()

    @property
    def standing(self):
        return [(each.event, each.subject) for each in self.notices.standing()]


@pytest.fixture
def process():
    return Process()


def test_packs_that_nobody_can_read_are_a_trouble_until_a_minute_has_passed_without_any(process, caplog):
    caplog.set_level("INFO")
    process.lose("garbage", "garbage", "unknown_version")
    process.passes(1)
    process.lose("garbage")
    process.passes(STANDS_S - 1.0)
    assert process.standing == [("rejected", "garbage"), ("rejected", "unknown_version")]
    process.passes(QUIET_S + 3.0)
    assert process.standing == []
    assert [line.partition(": ")[0] for line in caplog.messages][:2] == [
        "rejected garbage",
        "rejected unknown_version",
    ]
    assert "rejected unknown_version: over after 60.0 s (once, 1 rejected)" in caplog.messages
    assert "rejected garbage: over after 61.0 s (2 times, 3 rejected)" in caplog.messages


def test_packs_that_were_gone_before_they_were_read_are_another_trouble(process):
    process.lose("retention", metric="lost_packs")
    process.passes(1)
    assert process.standing == [("lost", "retention")]


def test_what_is_sent_again_or_told_by_its_queue_is_counted_only(process):
    process.lose("cut_short", "closed")
    process.lose("redis", metric="lost_packs")
    process.lose("garbage", metric="dropped")
    process.passes(1)
    assert process.standing == []
    assert len(process.counted) == 4


def test_each_text_is_about_a_reason_that_is_counted():
    known = {("rejected", reason) for reason in meanings.REJECTS} | {
        ("lost", reason) for reason in meanings.LOST
    }
    assert _TEXTS.keys() <= known


def test_levels_and_their_ends_are_passed_on(process):
    process.losses.level("pending", 7, label="1")
    process.losses.end("pending", label="1")
    assert process.levels == [("pending", "1", 7), ("pending", "1", None)]
