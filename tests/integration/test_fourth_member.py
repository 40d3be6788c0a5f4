"""A fourth updater joins three that share 5,000 partitions of a PostgreSQL, and leaves again: nothing else moves."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest
from depots.processes import Member, eventually

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater.core.membership import rightful

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(400)]

PARTITIONS = 5_000
SESSION_S = 10.0  # a machine that is busy with other tests must not lose one
SHARE_MOST = 0.28  # of the partitions; a quarter is the fourth's, give or take four standard deviations
LOOK_S = 0.5
WITHIN_S = 90.0


@pytest.fixture
def url(pg_url):
    return f"{pg_url}{'&' if '?' in pg_url else '?'}partitions={PARTITIONS}"


@pytest.fixture
def start(url, tmp_path):
    members = []

    def start():
        members.append(Member(url, SESSION_S, tmp_path / f"member-{len(members)}"))
        return members[-1]

    yield start
    for each in members:
        each.end(signal.SIGKILL)


def owners(url):
    """By partition, its owner. Who asks is no member."""

    async def ask():
        depot = depot_at(depot_url.parse(url))
        try:
            return {each.lane: each.owner for each in await depot.lag() if each.lane >= 0}
        finally:
            await depot.close()

    return asyncio.run(ask())


def at_rest(url, members):
    """The owners, once so many members own what is rightfully theirs."""
    found = {}

    def rests():
        time.sleep(LOOK_S)
        found.update(owners(url))
        names = {name for name in found.values() if name}
        rightly = (
            {each: rightful(each, names) for each in range(PARTITIONS)} if len(names) == members else None
        )
        return found == rightly

    assert eventually(rests, WITHIN_S), "no rest"
    return found


def test_only_partitions_to_and_from_the_fourth_updater_move(url, start, record_property):
    three = [start() for _ in range(3)]
    before, gained = at_rest(url, 3), [each.gained for each in three]

    began = time.monotonic()
    fourth = start()
    joined = at_rest(url, 4)
    took = time.monotonic() - began
    moved = {each for each in joined if joined[each] != before[each]}
    assert {joined[each] for each in moved} == set(joined.values()) - set(before.values())
    assert [each.gained for each in three] == gained, "not even for a moment"
    assert moved == fourth.gained.keys()

    fourth.end(signal.SIGTERM)
    assert at_rest(url, 3) == before
    again = [
        {partition for partition in each.gained if each.gained[partition] != was.get(partition)}
        for each, was in zip(three, gained, strict=True)
    ]
    assert set().union(*again) == moved
    assert sum(map(len, again)) == len(moved)

    share = len(moved) / PARTITIONS
    record_property(
        "figure: 5000 partitions, the fourth of four updaters joins: % that move", round(100 * share, 1)
    )
    record_property("figure: 5000 partitions, s until the fourth updater has its share", round(took, 1))
    assert share <= SHARE_MOST
