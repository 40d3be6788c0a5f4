"""When learned state is read and saved, and what is logged if that fails."""

from __future__ import annotations

import asyncio
import logging

import pytest
from stories.engine import limits, namespace, plenty

from cacheupdater.core.budget import Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Terms
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.pipeline.notices import Notices
from cacheupdater.price.shell import remembering
from cacheupdater.price.shell.pricing import Pricing
from cacheupdater.testing.recording_observer import RecordingObserver

PRICED = Terms()
KEYS = [b"p:%d" % n for n in range(40)]


class Shelf:
    """A file in memory."""

    def __init__(self, data=None):
        self.data = data
        self.aside = None
        self.errors = {}
        self.writes = 0  # tried

    def _maybe(self, what):
        if what in self.errors:
            raise self.errors[what]

    def read(self):
        self._maybe("read")
        return self.data

    def write(self, pieces):
        self.writes += 1
        self._maybe("write")
        self.data = b"".join(pieces)

    def set_aside(self):
        self._maybe("set_aside")
        self.aside, self.data = self.data, None
        return "learned.old"


async def life(shelf, *, partitions=2, keys=(), terms=PRICED, wall=1000.0, until=lambda: True):
    """A process from its start to its drained end; what its policies knew at the beginning."""
    source = Source("db", plenty(), concurrency=5)
    spaces = [namespace("p", source=source, terms=terms)]
    keyspace = Keyspace([(each.pattern, each) for each in spaces])
    pricing = Pricing(
        spaces,
        {},
        limits=limits(),
        random=lambda: 0.5,
        observer=RecordingObserver(),
        notices=Notices(lambda: 0.0),
    )
    await pricing.remember(shelf, lambda: wall, partitions=partitions)
    now = asyncio.get_running_loop().time()
    policies = [pricing.policy(keyspace, each, now) for each in range(partitions)]
    known = [set(each.table.keys) for each in policies] if terms else []
    for key in keys:
        policies[remembering.memory.partition_of(key, partitions)].on_hints([key], [1], now)
    running = asyncio.get_running_loop().create_task(pricing.run())
    async with asyncio.timeout(10):
        while not until():  # noqa: ASYNC110  files are written by threads
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pricing.end()
    return known


async def test_a_restart_with_other_partitions_knows_every_key_where_it_belongs():
    shelf = Shelf()
    await life(shelf, keys=KEYS, partitions=2)
    known = await life(shelf, partitions=5)

    assert set().union(*known) == set(KEYS)
    assert sum(map(len, known)) == len(KEYS)


async def test_what_is_learned_is_saved_now_and_then(monkeypatch):
    monkeypatch.setattr(remembering, "SAVE_EVERY", 0.01)
    shelf = Shelf()
    await life(shelf, keys=KEYS, until=lambda: shelf.writes >= 2)


async def test_a_file_that_cannot_be_read_costs_one_warning_and_is_kept(caplog):
    shelf = Shelf(b"my notes")
    known = await life(shelf, keys=KEYS)

    assert known == [set(), set()]
    (said,) = warnings(caplog)
    assert "ignored" in said
    assert "not a file of learned state" in said
    assert "learned.old" in said
    assert shelf.aside == b"my notes"
    assert set().union(*await life(shelf)) == set(KEYS)


@pytest.mark.parametrize(
    "errors",
    [{"read": Faulty("larger than 5 bytes")}, {"read": Faulty("x"), "set_aside": Unavailable("read-only")}],
)
async def test_a_disk_that_fails_at_the_start_stops_nothing(errors, caplog):
    shelf = Shelf(b"x")
    shelf.errors = errors
    await life(shelf)
    assert len(warnings(caplog)) == 1


async def test_a_full_disk_is_said_once_and_stops_nothing(monkeypatch, caplog):
    monkeypatch.setattr(remembering, "SAVE_EVERY", 0.005)
    shelf = Shelf()
    shelf.errors = {"write": Unavailable("No space left on device")}
    await life(shelf, keys=KEYS, until=lambda: shelf.writes >= 3)

    (said,) = warnings(caplog)
    assert "No space left" in said


async def test_keys_of_a_namespace_that_is_gone_are_forgotten_with_one_warning(caplog):
    shelf = Shelf()
    await life(shelf, keys=KEYS, partitions=1)
    source = Source("db", plenty(), concurrency=5)
    spaces = [namespace("q", source=source, terms=Terms())]
    keyspace = Keyspace([(each.pattern, each) for each in spaces])
    pricing = Pricing(
        spaces,
        {},
        limits=limits(),
        random=lambda: 0.5,
        observer=RecordingObserver(),
        notices=Notices(lambda: 0.0),
    )
    await pricing.remember(shelf, lambda: 1000.0, partitions=1)
    policy = pricing.policy(keyspace, 0, 0.0)

    assert len(policy.table) == 0
    (said,) = warnings(caplog)
    assert f"{len(KEYS)} learned keys" in said


async def test_a_service_without_prices_leaves_the_file_alone():
    shelf = Shelf()
    await life(shelf, keys=KEYS)
    before = shelf.data
    await life(shelf, terms=None)

    assert shelf.data == before


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
