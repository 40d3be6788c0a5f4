"""What a person is told while keys are in quarantine."""

from __future__ import annotations

import asyncio
import logging

import pytest
from stories.shell import Shell, in_virtual_time

from cacheupdater.errors import Faulty
from cacheupdater.pipeline.notices import QUIET_S, Notices
from cacheupdater.pipeline.quarantining import Counts, Quarantining

BROKEN = b"p:2"


@pytest.fixture
def notices():
    return Notices(lambda: 0.0)


@pytest.fixture
def quarantining(notices):
    return Quarantining(notices)


def told(notices):
    return {each.subject: each.text for each in notices.standing()}


def test_keys_of_all_partitions_are_one_trouble_of_their_namespace(quarantining, notices):
    quarantining.holds("0", {"product": Counts(1)})
    quarantining.holds("1", {"product": Counts(2), "banner": Counts(1)})
    said = told(notices)
    assert said.keys() == {"product", "banner"}
    assert said["banner"] == (
        "1 key fails by itself, so nothing loads it for a minute; `cacheupdater quarantine list banner` says why"
    )
    assert said["product"].startswith("3 keys fail by themselves, so nothing loads them")


def test_a_partition_that_has_none_any_more_ends_no_trouble_of_another(quarantining, notices):
    quarantining.holds("0", {"product": Counts(1)})
    quarantining.holds("1", {"product": Counts(2)})
    quarantining.holds("0", {})
    assert told(notices)["product"].startswith("2 keys")
    quarantining.holds("1", {})
    assert not any(each.ended is None for each in notices.standing())
    assert not quarantining


def test_keys_of_a_namespace_that_loads_nothing_are_blamed_for_nothing(quarantining, notices):
    """A column was renamed: the log said that 83 keys fail by themselves."""
    quarantining.holds("0", {"product": Counts(0, 82)})
    quarantining.holds("1", {"product": Counts(0, 1)})
    assert told(notices)["product"].startswith(
        "83 keys fail, and no load of product has succeeded since they failed first: each partition"
    )
    quarantining.holds("1", {"product": Counts(1, 0)})
    assert told(notices)["product"].startswith(
        "1 key fails by itself, so nothing loads it for a minute; 82 keys fail, and"
    )


@in_virtual_time
async def test_a_key_that_fails_by_itself_stands_as_a_trouble_until_its_minute_is_over(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    shell = Shell()
    shell.tables["p"].rows = {(1,): {"id": 1}}
    shell.tables["p"].faults = {(2,): Faulty("cannot be loaded")}
    async with shell.partition():
        for _ in range(30):
            shell.queue.touch(b"p:1", BROKEN)
            await asyncio.sleep(1.0)
        assert "1 key fails by itself" in told(shell.notices)["p"]
        shell.tables["p"].faults = {}
        for _ in range(60 + int(QUIET_S)):
            shell.queue.touch(b"p:1", BROKEN)
            await asyncio.sleep(1.0)
        shell.notices.tick()
    begins, over, back, end = (each for each in caplog.messages if each.startswith("quarantined p: "))
    assert "no load of p has succeeded since" in begins
    assert "over after 5.0 s" in over
    assert "1 key fails by itself" in back
    assert "over after" in end
    assert "p" not in told(shell.notices)


@in_virtual_time
async def test_keys_that_wait_for_nothing_but_a_hint_since_their_namespace_loads_again_are_no_trouble():
    """Nobody read them any more, and the log went on to say that no load succeeds."""
    shell = Shell()
    shell.tables["p"].rows = {(n,): {"id": n} for n in range(3)}
    shell.tables["p"].faults = {(n,): Faulty("no such column") for n in range(3)}
    async with shell.partition() as partition:
        for _ in range(30):
            shell.queue.touch(b"p:1", BROKEN)
            await asyncio.sleep(1.0)
        assert "2 keys fail, and no load of p has succeeded since" in told(shell.notices)["p"]
        shell.tables["p"].faults = {}
        shell.queue.touch(b"p:0")
        await asyncio.sleep(2 + QUIET_S)
        shell.notices.tick()
        assert "p" not in told(shell.notices)
        assert len(partition.engine.quarantine) == 2
