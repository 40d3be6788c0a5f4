"""A flood costs its sender and not the others: stories of one partition."""

from __future__ import annotations

import gc

from stories.engine import Story, namespace

from cacheupdater.core.answers import WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.peers import Peer

FLOOD, HONEST, HELPER = 1, 2, 3
MINE = b"p:7"


def keys(count, first=1_000):
    return [b"p:%d" % n for n in range(first, first + count)]


def scarce(rate=50.0, **changed):
    return namespace(source=Source("db", Bucket(rate, rate, now=0.0), concurrency=100), **changed)


def served(story, key, *, until, every=0.1):
    """When the key starts, while whatever starts ends at once."""
    at = 0.0
    while at < until:
        for unit in story.step(at).units:
            if key in unit.keys:
                return at
            story.end(unit, at)
        at += every
    return None


def test_an_honest_miss_starts_long_before_the_flood_that_came_first_is_served():
    story = Story(scarce())
    story.miss(*keys(5_000), at=0.0, peer=FLOOD)
    story.miss(MINE, at=0.0, peer=HONEST)

    assert served(story, MINE, until=100.0) < 2.0


def test_a_peer_that_stands_for_twenty_clients_has_twenty_shares_of_the_rows():
    story, rows, at = Story(scarce(rate=500.0)), {b"c": 0, b"d": 0}, 0.0
    collector, direct = keys(20_000), keys(20_000, 500_000)
    for pack in range(0, 20_000, 1_000):
        story.miss(*collector[pack : pack + 1_000], at=0.0, peer=FLOOD, clients=20)
    for pack in range(0, 20_000, 50):
        story.miss(*direct[pack : pack + 50], at=0.0, peer=HONEST)
    theirs = set(collector)
    while sum(rows.values()) < 8_000:
        for unit in story.step(at).units:
            for key in unit.keys:
                rows[b"c" if key in theirs else b"d"] += 1
            story.end(unit, at)
        at += 0.1

    assert 18 <= rows[b"c"] / rows[b"d"] <= 22


def test_who_stands_for_many_clients_has_room_for_each_and_leaves_room_for_another():
    story = Story(scarce(max_backlog=100_000), pending=1_000)
    story.miss(*keys(860), at=0.0, peer=FLOOD, clients=20)
    story.miss(MINE, at=0.0, peer=HONEST)
    assert not story.engine.held
    story.miss(*keys(35, 9_000), at=0.0, peer=FLOOD, clients=20)
    assert set(story.engine.held) == {FLOOD}


def test_a_full_backlog_drops_what_is_of_the_peer_that_has_most_for_each_client():
    story = Story(scarce(max_backlog=1_000))
    story.miss(*keys(900), at=0.0, peer=FLOOD, clients=20)
    story.miss(*keys(500, 9_000), at=0.0, peer=HONEST)

    story.step(0.0)
    left = [
        sum(story.engine.explain(key, 0.0).seat.state != "none" for key in those)
        for those in (keys(900), keys(500, 9_000))
    ]
    assert left[0] == 900
    assert left[1] <= 150


def test_a_key_that_one_client_and_many_wait_for_is_served_in_the_turn_of_the_many():
    """Each of fifty clients waits for a fiftieth of the keys that the one waits for."""
    one, many = Peer(FLOOD), Peer(HONEST)
    one.waiting = many.waiting = 5_000
    many.clients = 50
    assert many.is_ahead(one)
    assert not one.is_ahead(many)


def test_a_key_that_a_flood_names_too_waits_in_the_turn_of_the_honest_peer():
    story = Story(scarce())
    story.miss(*keys(5_000), MINE, at=0.0, peer=FLOOD)
    story.miss(MINE, at=0.0, peer=HONEST)

    assert served(story, MINE, until=100.0) < 2.0


def test_a_full_backlog_drops_what_is_of_the_peer_of_whom_most_waits():
    story = Story(scarce(max_backlog=1_000))
    story.touch(MINE, at=0.0, peer=HONEST)
    story.step(0.0)
    story.touch(b"p:8", at=0.0, peer=HONEST)
    story.miss(*keys(5_000), at=0.0, peer=FLOOD)

    story.step(0.0)
    assert story.count("dropped", "backlog") >= 3_900
    assert story.engine.explain(b"p:8", 0.0).seat.state != "none"


def test_who_has_more_open_than_leaves_room_is_held_and_nobody_else_until_it_is_done():
    story = Story(scarce(max_backlog=100_000), pending=1_000)
    story.miss(*keys(850), at=0.0, peer=FLOOD)
    story.miss(MINE, at=0.0, peer=HONEST)
    assert set(story.engine.held) == {FLOOD}
    assert not story.engine.full

    at = 0.0
    while story.engine.held:
        at += 0.1
        for unit in story.step(at).units:
            story.end(unit, at)
    assert at < 5.0


def test_a_turn_of_reading_that_brings_more_than_there_was_room_for_stops_only_those_with_something_open():
    story = Story(scarce(max_backlog=100_000), pending=1_000)
    story.miss(*keys(950), at=0.0, peer=FLOOD)

    assert set(story.engine.held) == {FLOOD}
    assert not story.engine.full


def test_a_flood_of_changes_that_wait_for_removal_holds_its_sender_alone():
    story = Story(scarce(max_backlog=10), removals=900)
    story.change(*keys(900), at=0.0, peer=FLOOD)
    story.step(0.0)
    story.change(MINE, at=0.0, peer=HONEST)

    assert set(story.engine.held) == {FLOOD}


def test_hints_of_nobody_are_never_held():
    story = Story(scarce(max_backlog=100_000), pending=900)
    story.miss(*keys(899), at=0.0)

    assert not story.engine.held


def test_nothing_is_kept_of_peers_that_have_nothing_open():
    story = Story(namespace(every=0.0), gap=0.0)
    for peer in range(1, 200):
        story.change(MINE, at=float(peer), peer=peer)
        story.refresh(float(peer))
    story.engine.cursor.advance()
    gc.collect()

    assert len(story.engine._peers._peers) < 5


def test_what_a_peer_has_open_comes_back_to_nothing():
    story = Story(namespace(every=0.0), gap=0.0)
    peer = story.engine._peers.of(FLOOD)
    for at, kind in enumerate((Kind.TOUCH, Kind.MISS, Kind.CHANGE)):
        story._hint(kind, tuple(keys(300)), float(at), FLOOD)
        assert peer.open == 300
        for unit in story.step(float(at)).units:
            story.end(unit, float(at))
        assert peer.open == 0


def test_a_flood_of_changes_is_read_on_once_its_removals_have_gone():
    story = Story(scarce(max_backlog=10), removals=450)
    story.change(*keys(500), at=0.0, peer=FLOOD)
    story.step(0.0)
    assert set(story.engine.held) == {FLOOD}

    at = 0.0
    while story.engine.removals_waiting:
        at += 0.1
        work = story.step(at)
        if work.invalidation:
            story.engine.on_invalidated(work.invalidation, [WRITTEN] * len(work.invalidation.keys), at)
    assert not story.engine.held
    assert story.engine._peers.of(FLOOD).removals == 0


def test_whoever_names_what_others_wait_for_gathers_no_keys_in_a_turn_that_is_full():
    """A helper that names all keys of a flood has nothing open of its own, and so does what it names of others."""
    story = Story(scarce())
    story.miss(*keys(5_000), MINE, at=0.0, peer=FLOOD)
    story.miss(*keys(5_000), MINE, at=0.0, peer=HELPER)
    story.miss(MINE, at=0.0, peer=HONEST)

    assert served(story, MINE, until=100.0) < 2.0


def test_a_key_is_not_taken_from_a_peer_that_waits_for_little():
    story = Story(scarce())
    story.miss(*keys(5_000), at=0.0, peer=FLOOD)
    story.miss(*keys(5_000), at=0.0, peer=HELPER)
    story.miss(MINE, at=0.1, peer=HONEST)
    story.miss(MINE, at=0.1, peer=HELPER)

    assert served(story, MINE, until=100.0) < 2.0


def test_what_waits_in_the_turn_of_a_peer_comes_back_to_nothing():
    story = Story(namespace(every=0.0), gap=0.0)
    story.miss(*keys(300), at=0.0, peer=FLOOD)
    story.miss(*keys(300), at=0.0, peer=HELPER)
    both = [story.engine._peers.of(peer) for peer in (FLOOD, HELPER)]
    assert sum(each.waiting for each in both) == 300
    for unit in story.step(0.0).units:
        story.end(unit, 0.0)
    assert [each.waiting for each in both] == [0, 0]


def test_a_touch_waits_behind_misses_whoever_sent_them():
    """Peers take turns among what is equally urgent. A value that is there can be read; a miss has nothing to show."""
    story = Story(scarce(), backlog_age=1_000.0)
    story.miss(*keys(500), at=0.0, peer=FLOOD)
    story.touch(MINE, at=0.0, peer=HONEST)

    assert served(story, MINE, until=100.0) > 8.0
