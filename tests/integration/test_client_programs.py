"""Random programs: our clients answer as redis-py does, and leave the hints of a model; 5,000 programs in `make prove`.

A program mixes single commands, pipelines, transactions and races that are lost. Each is played by redis-py and by our client,
sync and asyncio, and by redis-py after `instrument()`, on a real Redis. A failure prints its seed and the command that plays it again.
"""

from __future__ import annotations

from collections import Counter

import pytest
from programs.campaign import KINDS, play_block
from programs.drawing import OTHERS, READS, WRITES, draw
from suite.machine import apart

import cacheupdater_client
from cacheupdater_client import commands, instrumented, observe
from cacheupdater_client import redis as client
from cacheupdater_client.asyncio import redis as asyncio_client

FOUND_WITHIN = 100  # programs, for each fault that is planted


@pytest.mark.campaign(short=60, full=5_000, block=500)
def test_random_programs_get_the_replies_of_redis_py_and_leave_the_hints_of_the_model(
    seeds, redis_url, record_property
):
    report = apart(play_block, seeds, redis_url)
    assert not report.failure, report.failure
    record_property("figure: client programs", report.programs)
    record_property("figure: client programs, commands", report.commands)
    record_property("figure: client programs, seconds of CPU", round(report.seconds, 1))
    for kind in KINDS.values():
        record_property(f"figure: client programs, hints of kind {kind}", report.hints[kind])
        assert report.hints[kind] >= len(seeds), "a kind that hardly occurs proves little"


def forgets_misses(monkeypatch):
    """`get` of an absent key leaves nothing."""
    monkeypatch.setattr(cacheupdater_client.buffer.Buffer, "miss", lambda self, key: None)


def takes_a_part_for_the_whole(monkeypatch):
    """HGET of an absent field leaves a miss."""
    monkeypatch.setitem(commands.COMMANDS, "HGET", commands.COMMANDS["GET"])


def announces_lost_races(monkeypatch):
    """A transaction that was not executed leaves changes."""
    monkeypatch.setattr(observe, "_nothing_done", lambda error: False)


def forgets_a_key(monkeypatch):
    """RENAME changes only the first of its keys."""
    monkeypatch.setitem(commands.COMMANDS, "RENAME", commands.COMMANDS["SET"])


def answers_late(monkeypatch):
    """A pipeline returns its replies in another order."""
    plain = client.ObservedQueue.execute
    monkeypatch.setattr(
        client.ObservedQueue, "execute", lambda self, *args, **options: plain(self, *args, **options)[::-1]
    )


def answers_nothing_as_empty(monkeypatch):
    """`hgetall` of an absent key returns None."""
    plain = client.Redis.hgetall
    monkeypatch.setattr(client.Redis, "hgetall", lambda self, name: plain(self, name) or None)


def forgets_pipelines_of_asyncio(monkeypatch):
    """A pipeline of the asyncio client leaves nothing."""
    monkeypatch.setattr(asyncio_client, "done", lambda pipe, queued, replies: None)


def forgets_writes_of_instrumented_clients(monkeypatch):
    """A client of redis-py's own leaves hints of reads alone."""
    monkeypatch.setattr(instrumented, "returned", lambda hints, words, reply: None)


@pytest.mark.prove
@pytest.mark.parametrize(
    "plant",
    [
        forgets_misses,
        takes_a_part_for_the_whole,
        announces_lost_races,
        forgets_a_key,
        answers_late,
        answers_nothing_as_empty,
        forgets_pipelines_of_asyncio,
        forgets_writes_of_instrumented_clients,
    ],
)
def test_programs_find_a_planted_fault(plant, monkeypatch, redis_url):
    plant(monkeypatch)
    report = play_block(range(FOUND_WITHIN), redis_url)
    assert "differs" in report.failure
    assert f"python -m programs {report.programs - 1}" in report.failure


def test_programs_use_every_command_of_their_tables():
    drawn = Counter(command.method for seed in range(1_000) for command in draw(seed).commands)
    assert {line.split()[0] for line in (*READS, *WRITES, *OTHERS)} == drawn.keys()
