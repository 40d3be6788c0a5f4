"""K1: `done` never passes an unfinished hint and never moves back; memory follows what is open."""

from __future__ import annotations

from random import Random

from cacheupdater.core.cursors import Cursor
from cacheupdater.core.peers import NOBODY, Peer

PEER = Peer(NOBODY)


def test_nothing_read_is_nothing_done():
    cursor = Cursor(7)

    assert (cursor.scan, cursor.advance()) == (7, 7)


def test_pack_without_open_hints_is_done_at_once():
    cursor = Cursor(0)
    cursor.read(0, 0.0, PEER)

    assert (cursor.advance(), cursor.scan) == (1, 1)


def test_packs_done_out_of_order_are_committed_in_order():
    cursor = Cursor(0)
    open_packs = [cursor.read(offset, 0.0, PEER) for offset in range(3)]
    for open_pack in open_packs:
        open_pack.hold(1)
    open_packs[2].release(1)
    open_packs[1].release(1)
    assert cursor.advance() == 0

    open_packs[0].release(1)
    assert cursor.advance() == 3


def test_offsets_may_have_holes():
    cursor = Cursor(0)
    first, second = cursor.read(10, 0.0, PEER), cursor.read(20, 0.0, PEER)
    first.hold(1)
    second.hold(1)
    assert cursor.advance() == 10
    first.release(1)
    assert cursor.advance() == 20
    second.release(1)
    assert cursor.advance() == 21


def test_refresh_that_no_hint_asked_for_stops_the_cursor_where_it_began():
    cursor = Cursor(0)
    cursor.read(0, 0.0, PEER)
    own = cursor.here(0.0, PEER)
    own.hold(1)
    cursor.read(1, 0.0, PEER)

    assert cursor.advance() == 1
    own.release(1)
    assert cursor.advance() == 2


def test_one_stuck_hint_does_not_make_the_cursor_grow_with_all_that_follows():
    cursor = Cursor(0)
    cursor.read(0, 0.0, PEER).hold(1)
    for offset in range(1, 50_000):
        open_pack = cursor.read(offset, 0.0, PEER)
        open_pack.hold(1)
        cursor.read(offset, 0.0, PEER)
        open_pack.release(1)

    assert len(cursor._open_packs) < 3_000
    assert cursor.advance() == 0


def test_packs_that_were_finished_out_of_order_are_told_once():
    cursor = Cursor(0)
    open_packs = [cursor.read(offset, 0.0, PEER) for offset in range(6)]
    for open_pack in open_packs[:4]:
        open_pack.hold(1)
    assert cursor.finished() == [4, 5]
    open_packs[2].release(1)
    assert cursor.finished() == [2]
    assert cursor.finished() == []
    assert (cursor.advance(), cursor.scan) == (0, 6)


def test_a_pack_that_leans_on_an_older_one_is_not_told_before_done_has_passed_it():
    """Else its hint would be lost with the other's owner, who holds it as a weaker one."""
    cursor = Cursor(0)
    older, newer = cursor.read(0, 0.0, PEER), cursor.read(1, 0.0, PEER)
    older.open, newer.leans = 1, True
    own = cursor.here(0.0, PEER)
    own.hold(1)
    assert cursor.finished() == []
    own.release(1)
    assert cursor.finished() == []
    older.release(1)
    assert cursor.advance() == 2


def test_the_oldest_open_hint_has_an_age():
    cursor = Cursor(0)
    assert cursor.age(5.0) == 0.0
    first, second = cursor.read(0, 10.0, PEER), cursor.read(1, 12.0, PEER)
    first.hold(1)
    second.hold(1)
    cursor.advance()
    assert cursor.age(15.0) == 5.0
    first.release(1)
    cursor.advance()
    assert cursor.age(15.0) == 3.0


def test_what_was_finished_is_told_however_many_follow_before_somebody_asks():
    cursor = Cursor(0)
    cursor.read(0, 0.0, PEER).hold(1)
    for offset in range(1, 5_000):
        cursor.read(offset, 0.0, PEER)

    assert sorted(cursor.finished()) == list(range(1, 5_000))


def test_done_is_the_lowest_unfinished_whatever_the_order():
    for seed in range(300):
        rng = Random(seed)
        cursor, unfinished, before = Cursor(0), {}, 0
        for offset in range(40):
            open_pack = cursor.read(offset, 0.0, PEER)
            if rng.random() < 0.6:
                open_pack.hold(1)
                unfinished[offset] = open_pack
            while unfinished and rng.random() < 0.5:
                unfinished.pop(rng.choice(list(unfinished))).release(1)
            done = cursor.advance()
            assert before <= done == min(unfinished, default=cursor.scan)
            before = done
