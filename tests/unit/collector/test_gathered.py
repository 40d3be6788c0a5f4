"""What a collector has taken: duplicates are one hint, each peer leaves room for others, and nothing is acknowledged too early."""

from __future__ import annotations

import asyncio

import pytest

from cacheupdater.collector import gathered as module
from cacheupdater.collector.gathered import Gathered
from cacheupdater.core.hints import READS_MAX
from cacheupdater.errors import Unavailable
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH, Hello, decode_pack, encode_pack


def made():
    return Gathered(RecordingObserver())


def pack(kind, *keys, counts=(), tokens=()):
    return encode_pack(kind, 0, keys, counts, tokens=tokens)


def outbox(partitions=1):
    box = Outbox()
    box.greet(Hello(partitions, []))
    return box


def started():
    gathered = made()
    return gathered, outbox(), gathered.newcomer()


def packs(box):
    found = []
    while frame := box.next_frame(1):
        found.append(decode_pack(frame.pack))
    return found


def test_a_thousand_workers_that_read_one_key_are_one_hint():
    gathered, box = made(), outbox()
    for _ in range(1000):
        assert gathered.offer(3, pack(TOUCH, b"k", b"other"), gathered.newcomer())
    gathered.hand_over(box, all_kinds=True)
    [only] = packs(box)
    assert dict(zip(only.keys, only.counts, strict=True)) == {b"k": 1000, b"other": 1000}
    assert not gathered


def test_counts_add_up_and_the_younger_token_stays():
    gathered, box, peer = started()
    gathered.offer(0, pack(TOUCH, b"k", counts=[3], tokens=[9]), peer)
    gathered.offer(0, pack(TOUCH, b"k", counts=[2], tokens=[7]), peer)
    gathered.hand_over(box, all_kinds=True)
    [only] = packs(box)
    assert (only.keys, only.counts, list(only.tokens)) == ([b"k"], [5], [9])


def test_a_client_that_lies_weighs_no_more_than_what_its_process_can_have_read():
    gathered, box, peer = started()
    gathered.offer(0, pack(TOUCH, b"k", counts=[2**64 - 1]), peer)
    gathered.offer(0, pack(TOUCH, b"k", counts=[7]), gathered.newcomer())
    gathered.hand_over(box, all_kinds=True)
    [only] = packs(box)
    assert only.counts == [READS_MAX + 7]


def test_a_collector_behind_is_believed_as_much_as_all_of_its_clients():
    gathered, box, peer = started()
    gathered.stand(peer, 20)
    gathered.offer(0, pack(TOUCH, b"k", counts=[2**64 - 1]), peer)
    gathered.hand_over(box, all_kinds=True)
    [only] = packs(box)
    assert only.counts == [20 * READS_MAX]


def test_changes_and_awaited_misses_leave_at_once_and_the_rest_with_the_turn():
    gathered, box, peer = started()
    gathered.offer(0, pack(TOUCH, b"t"), peer)
    gathered.offer(0, pack(MISS, b"m"), peer)
    assert not gathered.hurry.is_set()
    gathered.offer(0, pack(MISS, b"a", tokens=[5]), peer)
    assert gathered.hurry.is_set()
    gathered.hurry.clear()
    gathered.offer(0, pack(CHANGE, b"c"), peer)
    assert gathered.hurry.is_set()
    gathered.hand_over(box, all_kinds=False)
    assert not gathered.hurry.is_set()
    assert [(each.kind, each.keys, list(each.tokens)) for each in packs(box)] == [
        (CHANGE, [b"c"], []),
        (MISS, [b"a"], [5]),
    ]
    gathered.hand_over(box, all_kinds=True)
    assert [(each.kind, each.keys) for each in packs(box)] == [(MISS, [b"m"]), (TOUCH, [b"t"])]


def test_sets_leave_at_once_as_sets_apart_from_announced_changes_of_the_same_key():
    gathered, box, peer = started()
    gathered.offer(0, pack(SET, b"k", b"s"), peer)
    gathered.offer(0, pack(CHANGE, b"k"), peer)
    assert gathered.hurry.is_set()
    gathered.hand_over(box, all_kinds=False)
    assert [(each.kind, each.keys) for each in packs(box)] == [(CHANGE, [b"k"]), (SET, [b"k", b"s"])]
    gathered.settle(CHANGE, 1)
    box.acknowledge(1)
    assert gathered.look(box)
    assert gathered.owed(peer) == 2  # in its order: the set came first
    gathered.settle(SET, 2)
    box.acknowledge(2)
    assert gathered.look(box)
    assert (gathered.owed(peer), gathered.owes) == (0, False)


def test_touches_are_acknowledged_at_once_and_changes_and_misses_when_the_queue_has_them():
    gathered, box, reader = started()
    writer = gathered.newcomer()
    gathered.offer(0, pack(TOUCH, b"t"), reader)
    gathered.offer(0, pack(CHANGE, b"c"), writer)
    gathered.offer(0, pack(TOUCH, b"t"), writer)
    gathered.offer(0, pack(MISS, b"m"), writer)
    assert (gathered.owed(reader), gathered.owed(writer)) == (0, 3)
    gathered.hand_over(box, all_kinds=True)
    assert len(packs(box)) == 3
    assert not gathered.look(box)
    gathered.settle(CHANGE, 1)
    box.acknowledge(1)
    assert gathered.look(box)
    assert gathered.owed(writer) == 1
    gathered.settle(MISS, 1)
    box.acknowledge(2)
    assert gathered.look(box)
    assert gathered.owed(writer) == 0
    assert not gathered.owes


def test_a_new_connection_of_a_process_is_owed_nothing_of_the_last_one():
    gathered = made()
    peer = gathered.newcomer("process 7")
    gathered.offer(0, pack(CHANGE, b"c"), peer)
    gathered.gone(peer, "process 7")
    assert gathered.newcomer("process 7") == peer
    assert gathered.owed(peer) == 0


@pytest.mark.parametrize("kind", [TOUCH, CHANGE])
def test_a_greedy_peer_leaves_room_for_others(kind, monkeypatch):
    monkeypatch.setattr(module, "READS_MAX", 900)
    monkeypatch.setattr(module, "URGENT_MAX", 900)
    gathered = made()
    greedy, honest = gathered.newcomer(), gathered.newcomer()
    taken = 0
    while gathered.offer(0, pack(kind, b"g%d" % taken), greedy):
        taken += 1
    assert 750 < taken < 850  # eight ninths
    assert gathered.offer(0, pack(kind, b"honest"), honest)
    assert not gathered.offer(0, pack(kind, b"more"), greedy)


def test_a_collector_behind_has_room_for_each_of_its_clients(monkeypatch):
    monkeypatch.setattr(module, "READS_MAX", 1_610)
    gathered, _, peer = started()
    gathered.stand(peer, 20)
    taken = 0
    while gathered.offer(0, pack(TOUCH, b"%d" % taken), peer):
        taken += 1
    assert 1_595 < taken < 1_605
    assert gathered.offer(0, pack(TOUCH, b"another"), gathered.newcomer())


def test_a_flood_of_reads_takes_no_room_from_changes(monkeypatch):
    monkeypatch.setattr(module, "READS_MAX", 90)
    gathered = made()
    peer, taken = gathered.newcomer(), 0
    while gathered.offer(0, pack(TOUCH, b"g%d" % taken), peer):
        taken += 1
    assert gathered.offer(0, pack(CHANGE, b"c"), peer)


def test_touches_stay_here_while_the_outbox_is_full_and_no_hint_is_dropped(monkeypatch):
    monkeypatch.setattr(module, "TOUCHES_MAX", 100)
    monkeypatch.setattr(module, "READS_MAX", 72)
    gathered, box = made(), Outbox()  # no hello: nothing leaves
    peer, taken = gathered.newcomer(), 0
    for _ in range(3):
        while gathered.offer(0, pack(TOUCH, b"%d" % taken), peer):
            taken += 1
        gathered.hand_over(box, all_kinds=True)
    assert (box.waiting, gathered.hints) == (taken // 2, taken // 2)
    assert not box.dropped
    box.greet(Hello(1, []))
    box.acknowledge(len(packs(box)))
    gathered.hand_over(box, all_kinds=True)
    assert (box.waiting, gathered.hints) == (taken // 2, 0)
    assert gathered.offer(0, pack(TOUCH, b"more"), peer)


@pytest.mark.parametrize("kind", [TOUCH, CHANGE])
def test_whoever_waits_for_room_gets_it_when_hints_have_left(kind, monkeypatch):
    monkeypatch.setattr(module, "READS_MAX", 10)
    monkeypatch.setattr(module, "URGENT_MAX", 10)

    async def story():
        gathered, box, peer = started()
        taken = 0
        while gathered.offer(0, pack(kind, b"k%d" % taken), peer):
            taken += 1
        waiting = asyncio.ensure_future(gathered.put(0, pack(kind, b"late"), peer))
        await asyncio.sleep(1)
        assert not waiting.done()
        gathered.hand_over(box, all_kinds=True)
        frames = packs(box)
        await asyncio.sleep(1)
        gathered.settle(kind, taken)
        box.acknowledge(len(frames))
        gathered.look(box)
        await waiting
        gathered.hand_over(box, all_kinds=True)
        assert [each.keys for each in packs(box)] == [[b"late"]]

    virtual_loop.run(story())


def test_a_pack_that_nobody_can_read_is_counted_and_costs_no_other():
    gathered, box, peer = started()
    assert gathered.offer(0, b"\x00garbage", peer)
    assert gathered.offer(0, pack(TOUCH, b"t"), peer)
    assert gathered.owed(peer) == 0
    assert gathered._observer.counts[("intake_rejected", "", "garbage")] == 1
    gathered.hand_over(box, all_kinds=True)
    assert [each.keys for each in packs(box)] == [[b"t"]]


def test_a_closed_collector_takes_nothing_and_ends_every_wait(monkeypatch):
    monkeypatch.setattr(module, "URGENT_MAX", 0)

    async def story():
        gathered = made()
        peer = gathered.newcomer()
        waiting = asyncio.ensure_future(gathered.put(0, pack(CHANGE, b"c"), peer))
        await asyncio.sleep(1)
        gathered.close()
        with pytest.raises(Unavailable):
            await waiting
        assert not gathered.offer(0, pack(TOUCH, b"t"), peer)

    virtual_loop.run(story())
