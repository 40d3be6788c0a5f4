"""Which of many missing keys are loaded first: those for which most readers wait, within each peer's turn."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from itertools import accumulate
from random import Random

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.heat import HOTTEST, ByHeat, by_heat, heat_of
from cacheupdater.core.hints import Kind
from cacheupdater.core.peers import NOBODY, Peer
from cacheupdater.core.schedule import Schedule
from cacheupdater.core.unit import Demand, Unit

RATE = 500.0  # rows a second
KEYS, READS = 50_000, 5_000  # reads a second, by Zipf's law
TURN_S = 0.1
WEIGHTS = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))


def key(number: int) -> bytes:
    return b"p:%d" % number


def test_a_miss_is_hotter_once_twice_as_many_have_asked():
    assert [heat_of(asks) for asks in (1, 2, 3, 4, 7, 8)] == [0, 1, 1, 2, 2, 3]
    assert heat_of(10**9) == HOTTEST
    assert by_heat([b"a", b"b", b"c"], [1, 9, 3]) == {1: [b"a"], 8: [b"b"], 2: [b"c"]}


def test_the_hottest_are_first_and_a_look_at_all_begins_with_the_coldest():
    queues, space, demand = ByHeat(), namespace(), Demand(Kind.MISS, 0, OpenPack(0, 0.0, Peer(NOBODY)), 0.0)
    units = [Unit(space, [key(heat)], demand) for heat in (2, 0, 5)]
    for unit, heat in zip(units, (2, 0, 5), strict=True):
        queues.of(heat).append(unit)

    assert [queue[0].keys for queue in queues] == [[key(0)], [key(2)], [key(5)]]
    first = []
    while queues:
        first += queues.first.popleft().keys
    assert first == [key(5), key(2), key(0)]
    assert not list(queues)


# --- in an engine that is far behind --------------------------------------------------------------------


class World:
    """An engine whose source pays for 500 rows a second, and a virtual clock."""

    def __init__(self, **changed: object) -> None:
        source = Source("db", Bucket(RATE, RATE * TURN_S, now=0.0), concurrency=5)
        self.story = Story(namespace(source=source, max_backlog=KEYS, every=3600.0, **changed))
        self.now = 0.0
        self.loaded: list[bytes] = []

    def work_until(self, end: float) -> None:
        while True:
            work = self.story.step(self.now)
            for unit in work.units:
                self.loaded += unit.keys
                self.story.end(unit, self.now)
            if not work.units:
                later = max(self.now + 1e-3, work.wake)
                if later >= end:
                    self.now = end
                    return
                self.now = later


def shares_served(*, at: tuple[int, ...], all_due: bool) -> list[float]:
    """After a flush, the share of the reads that hit, at these seconds: by how often each loaded key is read."""
    world, rng, served = World(), Random(16), []
    numbers = list(range(KEYS))
    rng.shuffle(numbers)
    if all_due:
        for start in range(0, KEYS, 1000):
            world.story.miss(*map(key, numbers[start : start + 1000]), at=0.0)
    for turn in range(1, int(max(at) / TURN_S) + 1):
        reads = Counter(bisect(WEIGHTS, rng.random() * WEIGHTS[-1]) for _ in range(int(READS * TURN_S)))
        there = set(world.loaded)
        world.story.asked(
            {key(each): times for each, times in reads.items() if key(each) not in there}, at=world.now
        )
        world.work_until(turn * TURN_S)
        if turn * TURN_S in at:
            weights = (1 / (int(each[2:]) + 1) for each in set(world.loaded))
            served.append(sum(weights) / WEIGHTS[-1])
            assert len(world.loaded) <= RATE * world.now + RATE * TURN_S, "the budget holds"
    return served


@pytest.mark.parametrize(
    "all_due",
    [
        pytest.param(True, id="all_missed_at_once"),
        pytest.param(False, id="missed_as_they_are_read", marks=pytest.mark.prove),
    ],
)
def test_after_a_flush_the_hottest_are_loaded_first(all_due, monkeypatch, record_property):
    """The control is the order of arrival. A key that is read often is missed early, so that order is not blind either."""
    hottest = shares_served(at=(5, 20), all_due=all_due)
    monkeypatch.setattr(Schedule, "is_behind", lambda *_: False)
    fifo = shares_served(at=(5, 20), all_due=all_due)

    for seconds, ours, theirs in zip((5, 20), hottest, fifo, strict=True):
        record_property(
            f"figure: hit rate {seconds} s after a flush, hottest first and in the order of arrival, {all_due=}",
            f"{ours:.3f}, {theirs:.3f}",
        )
    margins = (0.5, 0.25) if all_due else (0.03, 0.01)
    assert all(
        ours >= theirs + margin for ours, theirs, margin in zip(hottest, fifo, margins, strict=True)
    ), (
        hottest,
        fifo,
    )


def test_a_cold_miss_is_served_or_dropped_within_its_age_however_many_hotter_ones_come():
    world = World(backlog_age=5.0)
    world.story.miss(*map(key, range(1_000, 3_000)), at=0.0)
    world.story.miss(key(0), at=0.0)
    hot = 10_000
    for turn in range(1, 80):
        world.story.asked({key(hot + each): 2 for each in range(60)}, at=world.now)  # 600 a second
        hot += 60
        world.work_until(turn * TURN_S)

    assert key(0) not in world.loaded
    assert world.story.engine.explain(key(0), world.now).seat.state == "none"
    assert world.story.count("dropped", "aged") > 0


def test_peers_share_however_hot_the_keys_of_one_are():
    world = World()
    for turn in range(1, 51):
        hot, cold = range(turn * 100, turn * 100 + 60), range(10**6 + turn * 100, 10**6 + turn * 100 + 60)
        world.story.asked({key(each): 1_000 for each in hot}, at=world.now, peer=1)
        world.story.miss(*map(key, cold), at=world.now, peer=2)
        world.work_until(turn * TURN_S)
    served = sum(int(each[2:]) >= 10**6 for each in world.loaded)

    assert abs(served - len(world.loaded) / 2) <= 200


def test_a_key_that_one_more_reader_asks_for_overtakes_only_colder_ones():
    story = Story(namespace(source=Source("db", Bucket(10.0, 10.0, now=0.0), concurrency=5)), unit_keys=1)
    story.miss(*map(key, range(100)), at=0.0)
    for asked in ((7, 8, 9), (8, 9), (8, 9)):
        story.miss(*map(key, asked), at=0.1)
    order = [each for _ in range(10) for each in story.refresh(1.0)]

    assert order == [*map(key, (8, 9, 7)), *map(key, range(7))], "of equals, as they came"


def test_keys_keep_their_unit_while_a_second_pays_for_all_that_wait():
    """What comes and goes at once costs nothing more than before."""
    story = Story(namespace(source=Source("db", Bucket(1_000.0, 1_000.0, now=0.0), concurrency=5)))
    story.asked({key(each): each + 1 for each in range(50)}, at=0.0)
    story.miss(*map(key, range(50)), at=0.0)
    seats = story.engine._dedup.seats

    assert len({seats[key(each)] for each in range(50)}) == 1
