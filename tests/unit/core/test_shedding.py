"""What may wait in a partition is shared by its namespaces: no flood of some stops the reading of the others."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.shedding import MORE, ROOM

PENDING = 1_000


def partition(*names: str) -> Story:
    """Nothing can be paid, so that all wait."""
    shared = Source("db", Bucket(0.001, 1.0, now=0.0), concurrency=5)
    return Story(*(namespace(name, source=shared) for name in names), pending=PENDING)


def waiting(story: Story, name: str) -> int:
    return sum(key.startswith(name.encode() + b":") for key in story.engine._dedup.seats)


def flood(
    story: Story, name: str, *, kind: Kind = Kind.TOUCH, keys: int = 500, since: int = 0, peer: int = 0
) -> None:
    for n in range(since, since + keys, 50):
        some = [b"%s:%d" % (name.encode(), n + each) for each in range(50)]
        story._hint(kind, tuple(some), 1.0 + n / 1e6, peer)


@pytest.mark.parametrize("peer", [0, 7], ids=["topic", "one process"])
@pytest.mark.parametrize("kind", [Kind.TOUCH, Kind.MISS])
def test_ten_floods_leave_room_for_the_hints_of_an_eleventh_namespace(kind, peer):
    names = [f"f{n}" for n in range(10)]
    story = partition(*names, "calm")
    for turn in range(4):
        for name in names:
            flood(story, name, kind=kind, since=500 * turn, peer=peer)
    assert not story.engine.full
    assert not (peer and story.engine.held)
    story._hint(Kind.MISS, (b"calm:1", b"calm:2"), 2.0, peer)
    story.touch(b"calm:3", at=2.0, peer=peer)

    assert waiting(story, "calm") == 3
    assert min(waiting(story, name) for name in names) >= 0.7 * PENDING / 11 * 0.7, (
        "and each flood has its share"
    )


def test_what_leaves_is_the_flooding_namespaces_own():
    story = partition("flood", "calm")
    flood(story, "calm", keys=50)
    flood(story, "flood", keys=3_000)

    story.step(2.0)
    assert waiting(story, "calm") == 50
    assert ROOM * PENDING - 100 <= waiting(story, "flood") <= ROOM * PENDING
    assert story.count("dropped", "backlog") == 3_000 - waiting(story, "flood")


def test_a_flood_of_keys_that_wait_for_the_absent_bucket_leaves_before_its_neighbours_keys():
    story = partition("flood", "calm")
    bucket = next(each.absent_bucket for each in story.namespaces if each.name == "flood")
    bucket.charge(1, 1.0)
    flood(story, "calm", keys=50)
    for first in range(0, 3_000, 500):
        flood(story, "flood", kind=Kind.MISS, since=first)
        story.step(1.0 + first / 1e6)

    assert waiting(story, "calm") == 50
    assert ROOM * PENDING - 100 <= waiting(story, "flood") <= ROOM * PENDING


def test_touches_leave_before_misses_and_changes_last():
    story = partition("p", "calm")
    flood(story, "p", kind=Kind.CHANGE, keys=200)
    flood(story, "p", kind=Kind.MISS, keys=200, since=1_000)
    flood(story, "p", kind=Kind.TOUCH, keys=200, since=2_000)
    seats = story.engine._dedup.seats

    def left(since: int) -> int:
        return sum(b"p:%d" % n in seats for n in range(since, since + 200))

    flood(story, "p", kind=Kind.CHANGE, keys=200, since=3_000)
    assert (left(0), left(1_000)) == (200, 200)
    assert left(2_000) < 100
    flood(story, "p", kind=Kind.CHANGE, keys=200, since=4_000)
    assert left(0) == 200
    assert left(2_000) == 0
    assert left(1_000) < 100


def test_dropped_change_is_removed_in_redis():
    story = partition("p", "calm")
    flood(story, "p", kind=Kind.CHANGE, keys=1_000)
    removed = story.step(2.0).invalidation.keys

    assert len(removed) + story.engine.removals_waiting == 1_000 - waiting(story, "p")


def test_flood_that_comes_later_gets_as_much_as_the_first():
    story = partition("a", "b")
    flood(story, "a", keys=2_000)
    alone = waiting(story, "a")
    flood(story, "b", keys=2_000)

    assert alone >= 0.9 * ROOM * PENDING
    assert 0.4 * ROOM * PENDING <= waiting(story, "a") <= 0.6 * ROOM * PENDING
    assert 0.4 * ROOM * PENDING <= waiting(story, "b") <= 0.6 * ROOM * PENDING


def test_namespace_that_is_alone_gives_up_nothing_for_others_and_its_senders_wait():
    story = partition("p")
    flood(story, "p", keys=1_000)

    assert waiting(story, "p") == 1_000
    assert story.engine.full


@pytest.mark.parametrize("namespaces", [2, 100], ids=["one large backlog", "many small ones"])
def test_search_for_the_largest_is_rare(namespaces):
    """A thousand keys beyond the room cost some fifty searches, not a thousand."""
    names = [f"n{number}" for number in range(namespaces)]
    story = partition(*names)
    searches = []
    shedding = story.engine._dedup.schedule.shedding
    make_room = shedding.make_room
    shedding.make_room = lambda *args: searches.append(args) or make_room(*args)
    for n in range(2_000):
        story.touch(b"n%d:%d" % (n % namespaces, n), at=1.0)

    assert len(searches) <= (2_000 - ROOM * PENDING) / (MORE * PENDING) + 1
    left = [waiting(story, name) for name in names]
    assert max(left) - min(left) <= 3, "all give up alike"
    assert sum(left) >= (ROOM - 2 * MORE) * PENDING, "no more is given up than the search was for"
