"""What a process makes of the entries in Redis: partitions hear of news, people too, and silence changes nothing."""

from __future__ import annotations

import logging

import pytest
from stories.engine import namespace

from cacheupdater.core.pausing import Pause
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.paused import Paused
from cacheupdater.testing.memory_redis import MemoryPauses, MemoryRedis
from cacheupdater.testing.recording_observer import RecordingObserver


class Part:
    """A partition: what it has heard."""

    def __init__(self):
        self.heard = []

    def pause(self, namespaces):
        self.heard.append({each.name for each in namespaces})


class Story:
    def __init__(self):
        self.now = 0.0
        self.observer = RecordingObserver()
        self.notices = Notices(lambda: self.now)
        self.paused = Paused([namespace("p"), namespace("q")], observer=self.observer, notices=self.notices)
        self.port = MemoryPauses(MemoryRedis(lambda: self.now))
        self.part = Part()

    async def look(self, at):
        self.now = at
        await self.paused.look(self.port, {0: self.part})

    @property
    def names(self):
        return {each.name for each in self.paused.pauses}


@pytest.fixture
def story():
    return Story()


async def test_partitions_hear_of_a_pause_and_of_its_end_once_each(story):
    await story.look(0.0)
    await story.port.pause(b"p", Pause("ann", 1.0).spelled())
    for at in (1.0, 2.0, 3.0):
        await story.look(at)
    await story.port.resume(b"p")
    await story.look(4.0)
    await story.look(5.0)

    assert story.part.heard == [{"p"}, set()]


async def test_the_log_has_a_line_at_each_end_and_the_warning_stands_between(story, caplog):
    caplog.set_level(logging.INFO)
    await story.port.pause(b"p", Pause("ann@host", 1.0).spelled())
    await story.look(1.0)
    await story.look(9.0)
    [warning] = story.notices.plain()
    assert (warning["event"], warning["subject"]) == ("paused", "p")
    assert "ann@host has paused it" in warning["text"]
    assert story.observer.levels["paused", "p"] == 1.0
    await story.port.resume(b"p")
    await story.look(10.0)

    assert story.notices.plain() == []
    assert story.observer.levels["paused", "p"] == 0.0
    assert [each.split(":")[0] for each in caplog.messages] == ["paused p", "paused p"]


async def test_while_redis_is_silent_what_is_known_holds_and_people_hear_of_the_silence(story):
    await story.port.pause(b"p", b"")
    await story.look(1.0)
    good, story.port = story.port, Away()
    await story.look(2.0)
    assert story.names == {"p"}
    assert {each["event"] for each in story.notices.plain()} == {"paused", "pauses_unread"}
    story.port = good
    await story.look(9.0)

    assert {each["event"] for each in story.notices.plain()} == {"paused"}
    assert story.part.heard == [{"p"}]


async def test_nothing_is_paused_before_redis_has_answered_and_names_of_others_are_nothing(story):
    story.port, good = Away(), story.port
    await story.look(0.0)
    assert story.names == set()
    story.port = good
    await good.pause(b"another", b"")
    await story.look(1.0)

    assert story.names == set()
    assert story.part.heard == []


class Away:
    async def entries(self):
        raise Unavailable("Redis did not answer within 0.5 s")
