"""A collector's link to a queue in a SQL database: what is acknowledged, what is sent again, and what people are told."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.collector.depot_link import AGAIN_S
from cacheupdater.collector.links import made_link
from cacheupdater.core import depot_url
from cacheupdater.core.lanes import partition_of_lane, urgent_of
from cacheupdater_client.outbox import WINDOW_FRAMES, Outbox
from cacheupdater_client.protocol.wire import CHANGE, PACK_HINTS_MAX, decode_pack, partition_of

PARTITIONS = 100


class Story:
    """A link to a file, its outbox and a clock."""

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/hints.db?partitions={PARTITIONS}"
        self.outbox, self.now = Outbox(curious=True), 100.0
        self.link = made_link(self.url)

    def turn(self, after=AGAIN_S):
        self.now += after
        return self.link.turn(self.outbox, self.now, 1)

    def add(self, *keys):
        self.outbox.add(CHANGE, dict.fromkeys(keys, 1))

    def packs(self):
        """By partition, what lies in the file."""

        async def read():
            depot = depot_at(depot_url.parse(self.url))
            try:
                await depot.open()
                return await depot.read(dict.fromkeys(map(urgent_of, range(PARTITIONS)), 0), 1000)
            finally:
                await depot.close()

        found = asyncio.run(read())
        return {
            partition_of_lane(lane): [decode_pack(each.payload) for each in packs]
            for lane, packs in found.items()
        }

    def keys(self):
        return [key for packs in self.packs().values() for pack in packs for key in pack.keys]


@pytest.fixture
def story(tmp_path):
    story = Story(tmp_path)
    yield story
    story.link.close()


def names(size):
    return [b"p:%d" % number for number in range(size)]


def test_link_puts_each_pack_into_its_partition_and_says_how_many_there_are(story):
    assert not story.turn()
    assert (story.outbox.hello.partitions, story.link.connected) == (PARTITIONS, True)
    story.add(*names(100))
    assert not story.turn()
    assert (story.outbox.delivered, bool(story.outbox)) == (100, False)
    assert sorted(story.keys()) == sorted(names(100))
    for number, packs in story.packs().items():
        assert all(partition_of(key, PARTITIONS) == number for pack in packs for key in pack.keys)


def test_more_than_a_window_goes_in_several_turns_that_follow_at_once(story):
    story.turn()
    story.add(*names(PACK_HINTS_MAX))
    assert story.turn() is True
    assert sum(map(len, story.packs().values())) == WINDOW_FRAMES
    while story.turn():
        pass
    assert sorted(story.keys()) == sorted(names(PACK_HINTS_MAX))


def test_hints_wait_for_a_folder_that_is_made_later(tmp_path):
    story = Story(tmp_path / "later")
    story.add(*names(10))
    assert not story.turn()
    assert not story.link.connected
    assert "make its folder" in story.link.trouble
    (tmp_path / "later").mkdir()
    story.turn(after=AGAIN_S / 2)
    assert not story.link.connected, "it does not try again at once"
    story.turn()
    assert (story.link.connected, story.link.trouble) == (True, "")
    assert sorted(story.keys()) == sorted(names(10))
    story.link.close()


def test_hints_that_were_refused_are_sent_again(story, tmp_path, monkeypatch):
    monkeypatch.setattr("cacheupdater.adapters.depot_sql.sqlite_file.BUSY_S", 0.01)
    story.turn()  # opens the file, and waits for no lock from now on
    story.add(*names(10))
    with closing(sqlite3.connect(tmp_path / "hints.db")) as theirs:
        theirs.execute("BEGIN IMMEDIATE")
        story.turn()
        assert "another process holds it" in story.link.trouble
        assert (story.link.connected, story.outbox.delivered) == (False, 0)
    for _ in range(2):
        story.turn()
    assert sorted(story.keys()) == sorted(names(10))
    assert story.outbox.delivered == 10
