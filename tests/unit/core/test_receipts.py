"""Receipts: no change is acknowledged before the queue has it, and each is once all is settled."""

from __future__ import annotations

import random

import pytest

from cacheupdater.core.receipts import Owed, Receipt, Receipts
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import CHANGE, Hello, decode_pack


def receipt(peer=1, keys=1):
    return Receipt(peer, keys, 10 * keys)


def test_a_frame_waits_until_the_keys_that_were_cut_with_it_are_settled():
    receipts, first = Receipts(), receipt()
    receipts.add([first])
    assert receipts.look(3, 0) == []  # not cut yet
    assert receipts.look(0, 3) == []
    receipts.settle(2)
    assert receipts.look(0, 1) == []
    receipts.settle(1)
    assert receipts.look(0, 0) == [first]
    assert first.done
    assert not receipts


def test_a_frame_that_came_after_the_cut_waits_for_the_next_one():
    receipts, first, second = Receipts(), receipt(), receipt()
    receipts.add([first])
    receipts.look(0, 2)
    receipts.add([second])
    receipts.settle(2)
    assert receipts.look(1, 0) == [first]
    assert receipts.look(0, 1) == []
    receipts.settle(1)
    assert receipts.look(0, 0) == [second]


def test_frames_whose_hints_are_cut_anew_wait_for_the_new_cut():
    receipts, first = Receipts(), receipt()
    receipts.add([first])
    receipts.look(0, 5)
    receipts.settle(1)
    receipts.recall()
    receipts.settle(3)  # would have sufficed
    assert receipts.look(1, 2) == []
    assert receipts.look(0, 3) == []
    receipts.settle(3)
    assert receipts.look(0, 0) == [first]


def test_a_frame_of_which_nothing_was_wanted_is_done_at_once():
    receipts, first = Receipts(), receipt()
    receipts.add([first])
    assert receipts.look(0, 0) == [first]


def test_a_connection_is_owed_all_frames_from_the_first_that_waits():
    owed, first, second = Owed(), receipt(), receipt()
    owed.follow()
    assert owed.frames == 0
    owed.wait_for(first)
    owed.follow()
    owed.wait_for(second)
    assert owed.frames == 3
    second.done = True
    assert owed.frames == 3
    first.done = True
    assert owed.frames == 0
    owed.follow()
    assert owed.frames == 0


@pytest.mark.parametrize("seed", range(300))
def test_no_receipt_is_done_before_its_keys_have_left_an_outbox_that_merges_and_cuts_anew(seed):
    """The outbox of the client, with random turns, acknowledgements, connections and numbers of partitions."""
    draw = random.Random(seed)
    left = []
    outbox, receipts = Outbox(settled=lambda frame, _: left.append(frame)), Receipts()
    generation, sent, acked, open_receipts = {}, 0, 0, []
    outbox.greet(Hello(3, []))
    for step in range(60):
        deed = draw.randrange(5)
        if deed <= 1:  # a frame with some changes arrives: each key remembers the last frame that named it
            keys = {b"k%d" % draw.randrange(8) for _ in range(draw.randint(1, 4))}
            outbox.add(CHANGE, dict.fromkeys(keys, 1))
            one = receipt(step, len(keys))
            receipts.add([one])
            open_receipts.append((one, set(keys)))
            generation.update(dict.fromkeys(keys, step))
        elif deed == 2:
            while draw.random() < 0.7 and outbox.next_frame(1):
                sent += 1
        elif deed == 3 and acked < sent:
            acked = draw.randint(acked, sent)
            outbox.acknowledge(acked)
        elif deed == 4 and draw.random() < 0.4:
            again = Hello(draw.randint(1, 4), [])
            recut = again != outbox.hello
            outbox.greet(again)
            sent = acked = 0
            if recut:
                receipts.recall()
        receipts.settle(sum(frame.keys for frame in left))
        left.clear()
        waiting = _waiting(outbox)
        for one in receipts.look(*outbox.standing(CHANGE)):
            [keys] = [keys for each, keys in open_receipts if each is one]
            newest = {key for key in keys if generation[key] == one.peer}
            assert not newest & waiting, "acknowledged while the outbox still holds it"
    for _ in range(50):
        while outbox.next_frame(1):
            sent += 1
        outbox.acknowledge(sent)
        receipts.settle(sum(frame.keys for frame in left))
        left.clear()
        receipts.look(*outbox.standing(CHANGE))
    assert all(one.done for one, _ in open_receipts)


def _waiting(outbox):
    """All keys that are not settled."""
    keys = set(outbox._pending[CHANGE])
    keys.update(key for piece in outbox._staged[CHANGE] for key in piece.keys)
    keys.update(key for frame in outbox._window for key in decode_pack(frame.pack).keys)
    return keys
