"""The outbox: each hint that goes in comes out once, in order of strength, or is counted."""

from __future__ import annotations

import random

import pytest

from cacheupdater_client import outbox as module
from cacheupdater_client import prefixes as all_prefixes
from cacheupdater_client.outbox import BYTES_MAX, KEYS_MAX, WINDOW_BYTES, WINDOW_FRAMES, Outbox
from cacheupdater_client.protocol.wire import (
    CHANGE,
    KEY_BYTES_MAX,
    MISS,
    SET,
    TOUCH,
    Hello,
    Malformed,
    decode_pack,
    partition_of,
)

EVERY = Hello(4, [])


def greeted(hello=EVERY, only=()):
    outbox = Outbox(only)
    outbox.greet(hello)
    return outbox


def unpack(frame):
    return frame.partition, decode_pack(frame.pack)


def sent(outbox, limit=10_000):
    """Frames until there are no more, unpacked."""
    frames = []
    while len(frames) < limit and (frame := outbox.next_frame(1)) is not None:
        frames.append(unpack(frame))
    return frames


def delivered(outbox):
    """Everything, by kind: sends and acknowledges until nothing is left."""
    found, acked = {}, outbox._acked
    while frames := sent(outbox):
        acked += len(frames)
        outbox.acknowledge(acked)
        for _, pack in frames:
            for key, count in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
                found.setdefault(pack.kind, {}).setdefault(key, []).append(count)
    return {kind: {key: sum(counts) for key, counts in keys.items()} for kind, keys in found.items()}


def test_outbox_sends_nothing_before_the_hello():
    outbox = Outbox()
    outbox.add(CHANGE, {b"a": 1})
    assert outbox.next_frame(1) is None
    outbox.greet(EVERY)
    assert delivered(outbox) == {CHANGE: {b"a": 1}}


def test_outbox_adds_up_the_counts_of_a_key_for_each_kind():
    outbox = greeted()
    outbox.add(TOUCH, {b"a": 2, b"b": 1})
    outbox.add(TOUCH, {b"a": 3})
    outbox.add(MISS, {b"a": 1})
    assert delivered(outbox) == {TOUCH: {b"a": 5, b"b": 1}, MISS: {b"a": 1}}
    assert (outbox.waiting, outbox.delivered) == (0, 7)
    assert not outbox


def test_outbox_sends_changes_before_misses_before_touches():
    outbox = greeted(Hello(1, []))
    for kind in (TOUCH, MISS, SET, CHANGE):
        outbox.add(kind, {b"a": 1})
    assert [pack.kind for _, pack in sent(outbox)] == [CHANGE, SET, MISS, TOUCH]


@pytest.mark.parametrize(
    ("weakest", "leave"),
    [(TOUCH, [CHANGE, SET, MISS, TOUCH]), (MISS, [CHANGE, SET, MISS]), (CHANGE, [CHANGE, SET])],
)
def test_outbox_holds_weaker_hints_back_and_no_change(weakest, leave):
    outbox = greeted(Hello(1, []))
    for kind in (TOUCH, MISS, SET, CHANGE):
        outbox.add(kind, {b"a": 1})
    frames = iter(lambda: outbox.next_frame(1, weakest=weakest), None)
    assert [unpack(frame)[1].kind for frame in frames] == leave


def test_outbox_sends_a_change_before_touches_that_were_cut_already():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"%d" % number: 1 for number in range(3000)})
    outbox.next_frame(1)
    outbox.add(CHANGE, {b"now": 1})
    assert unpack(outbox.next_frame(1))[1].kind == CHANGE


def test_outbox_leaves_out_counts_that_are_all_one():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"a": 1, b"b": 1})
    outbox.add(MISS, {b"a": 1, b"b": 2})
    assert [pack.counts for _, pack in sent(outbox)] == [[1, 2], []]


def test_outbox_puts_each_key_into_the_pack_of_its_partition():
    outbox = greeted(Hello(7, []))
    outbox.add(TOUCH, {b"%d" % number: 1 for number in range(500)})
    for partition, pack in sent(outbox):
        assert {partition_of(key, 7) for key in pack.keys} == {partition}


@pytest.mark.parametrize("size", [8, 200, KEY_BYTES_MAX])
@pytest.mark.parametrize("count", [1, 2**40])
def test_outbox_cuts_packs_that_every_reader_accepts(size, count):
    outbox = greeted(Hello(1, []))
    keys = {b"%d" % number + b"x" * (size - len(str(number))): count for number in range(3500)}
    outbox.add(TOUCH, keys)
    assert delivered(outbox) == {TOUCH: keys}


# --- prefixes -----------------------------------------------------------------------------------------


def tokens(outbox):
    """What the packs to be sent say of fills, and which keys are plain touches."""
    packs = [pack for _, pack in sent(outbox)]
    told = {key: token for pack in packs for key, token in zip(pack.keys, pack.tokens, strict=False)}
    return told, {key for pack in packs if not pack.tokens for key in pack.keys}


def test_outbox_sends_fills_in_packs_of_their_own():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"a": 2, b"b": 1})
    outbox.add_told(TOUCH, [(b"b", 5), (b"c", 6), (b"c", 9), (b"c", 7)])
    assert outbox.waiting == 7
    filled, plain = sent(outbox)
    assert (filled[1].keys, filled[1].counts, filled[1].tokens) == ([b"b", b"c"], [2, 3], [5, 9])
    assert (plain[1].keys, plain[1].counts, plain[1].tokens) == ([b"a"], [2], ())
    outbox.acknowledge(2)
    assert (outbox.delivered, outbox.waiting) == (7, 0)
    assert not any(outbox._tokens)


def test_outbox_sends_awaited_misses_in_packs_of_their_own_and_mixes_them_with_no_fill():
    outbox = greeted(Hello(1, []))
    outbox.add(MISS, {b"a": 2, b"b": 1})
    outbox.add_told(MISS, [(b"b", 5), (b"c", 6), (b"c", 7)])
    outbox.add_told(TOUCH, [(b"b", 1)])
    awaited, plain, filled = sent(outbox)
    assert (awaited[1].kind, awaited[1].keys, awaited[1].counts, awaited[1].tokens) == (
        MISS,
        [b"b", b"c"],
        [2, 2],
        [5, 7],
    )
    assert (plain[1].kind, plain[1].keys, plain[1].tokens) == (MISS, [b"a"], ())
    assert (filled[1].kind, filled[1].keys, filled[1].tokens) == (TOUCH, [b"b"], [1])
    outbox.acknowledge(3)
    assert not any(outbox._tokens)


@pytest.mark.parametrize("size", [8, 200, KEY_BYTES_MAX])
def test_outbox_cuts_packs_of_fills_that_every_reader_accepts(size):
    outbox = greeted(Hello(1, []))
    fills = [(b"%d" % number + b"x" * (size - len(str(number))), 2**63) for number in range(3500)]
    outbox.add_told(TOUCH, fills)
    told = {}
    while packs := sent(outbox):
        outbox.acknowledge(outbox._acked + len(packs))
        for _, pack in packs:
            told |= dict(zip(pack.keys, pack.tokens, strict=True))
    assert told == dict(fills)


def test_outbox_keeps_tokens_when_the_updater_has_other_partitions():
    outbox = greeted(Hello(1, []))
    outbox.add_told(TOUCH, [(b"%d" % number, number) for number in range(100)])
    outbox.next_frame(1)
    outbox.add(TOUCH, {b"7": 1, b"plain": 1})
    outbox.greet(Hello(3, []))
    assert tokens(outbox) == ({b"%d" % number: number for number in range(100)}, {b"plain"})


def test_outbox_keeps_no_token_of_a_key_that_is_gone():
    outbox = greeted()
    outbox.add_told(TOUCH, [(b"other:1", 1), (b"p:1", 1)])
    outbox.greet(Hello(2, [b"p:"]))
    outbox.add_told(TOUCH, [(b"other:2", 1)])
    outbox.add(MISS, {b"p:%d" % number: 1 for number in range(KEYS_MAX)})
    assert tokens(outbox)[0] == {}
    assert not any(outbox._tokens)
    outbox.add_told(TOUCH, [(b"p:2", 1)])
    outbox.discard("closed")
    assert not any(outbox._tokens)


def test_outbox_keeps_undeclared_keys_back():
    outbox = greeted(Hello(4, [b"p:", b"q:"]))
    outbox.add(TOUCH, {b"p:1": 1, b"x": 5, b"q": 1, b"q:": 1})
    assert delivered(outbox) == {TOUCH: {b"p:1": 1, b"q:": 1}}
    assert outbox.dropped == {"undeclared": 6}


def test_outbox_drops_undeclared_keys_that_waited_for_the_hello():
    outbox = Outbox()
    outbox.add(TOUCH, {b"p:1": 1, b"secret": 2})
    outbox.greet(Hello(4, [b"p:"]))
    assert delivered(outbox) == {TOUCH: {b"p:1": 1}}
    assert outbox.dropped == {"undeclared": 2}


def test_outbox_with_only_narrows_what_the_updater_declares():
    outbox = greeted(Hello(4, [b"p:", b"q:"]), only=[b"p:", b"r:"])
    outbox.add(TOUCH, {b"p:1": 1, b"q:1": 1, b"r:1": 1})
    assert delivered(outbox) == {TOUCH: {b"p:1": 1}}


def test_outbox_matches_thousands_of_prefixes_as_it_does_few():
    chance = random.Random(7)
    letters = b"ab:"

    def word(length):
        return bytes(chance.choice(letters) for _ in range(length))

    for _ in range(300):
        prefixes = [word(chance.randint(1, 4)) for _ in range(chance.randint(9, 30))]
        search = all_prefixes.matcher(prefixes)
        for _ in range(50):
            key = word(chance.randint(0, 6))
            assert search(key) == key.startswith(tuple(prefixes)), (key, prefixes)


# --- bounds -------------------------------------------------------------------------------------------


def numbered(kind, size, start=0):
    return {b"%d:%d" % (kind, number): 1 for number in range(start, start + size)}


def test_outbox_drops_the_oldest_touch_first():
    outbox = Outbox()
    outbox.add(CHANGE, numbered(CHANGE, 1000))
    outbox.add(TOUCH, numbered(TOUCH, KEYS_MAX))
    assert outbox.dropped == {"full": 1000}
    outbox.greet(EVERY)
    found = delivered(outbox)
    assert len(found[CHANGE]) == 1000
    assert b"0:999" not in found[TOUCH]
    assert b"0:1000" in found[TOUCH]


def test_outbox_drops_misses_after_touches_and_changes_last():
    outbox = Outbox()
    outbox.add(TOUCH, numbered(TOUCH, 30_000))
    outbox.add(MISS, numbered(MISS, 30_000))
    outbox.add(CHANGE, numbered(CHANGE, 90_000))
    outbox.greet(EVERY)
    assert {kind: len(keys) for kind, keys in delivered(outbox).items()} == {MISS: 10_000, CHANGE: 90_000}
    assert outbox.dropped == {"full": 50_000}


def test_outbox_counts_a_dropped_key_by_its_hints():
    outbox = Outbox()
    outbox.add(TOUCH, {b"old": 500})
    outbox.add(TOUCH, numbered(TOUCH, KEYS_MAX))
    assert outbox.dropped == {"full": 500}


def test_outbox_stays_within_its_bytes():
    outbox = Outbox()
    outbox.add(TOUCH, {b"%d" % number + b"x" * 1000: 1 for number in range(20_000)})
    assert outbox._bytes <= BYTES_MAX
    assert outbox._bytes > BYTES_MAX - 2048
    assert outbox.dropped["full"] > 3000


def test_outbox_counts_what_is_under_way_into_its_bounds():
    outbox = greeted()
    outbox.add(CHANGE, numbered(CHANGE, KEYS_MAX))
    under_way = sum(len(pack.keys) for _, pack in sent(outbox))
    outbox.add(TOUCH, numbered(TOUCH, 5000))
    assert under_way > 50_000
    assert outbox._keys == KEYS_MAX
    assert outbox.dropped == {"full": 5000}


def test_outbox_drops_staged_touches_before_changes_that_wait():
    outbox = greeted()
    outbox.add(TOUCH, numbered(TOUCH, 5000))
    outbox.next_frame(1)  # the rest of them is cut, and waits
    outbox.add(CHANGE, numbered(CHANGE, KEYS_MAX - 5000))
    outbox.add(CHANGE, numbered(CHANGE, 1000, start=KEYS_MAX))
    assert outbox.dropped == {"full": 1000}
    found = delivered(outbox)
    assert len(found[CHANGE]) == KEYS_MAX - 4000


def test_outbox_stops_at_the_window_until_frames_are_acknowledged():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, numbered(TOUCH, KEYS_MAX))
    assert len(sent(outbox)) == WINDOW_FRAMES
    assert outbox.blocked
    outbox.acknowledge(3)
    assert len(sent(outbox)) == 3


def test_outbox_window_is_bounded_in_bytes():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"%d" % number + b"x" * 1000: 1 for number in range(16_000)})
    assert len(sent(outbox)) < WINDOW_FRAMES
    assert outbox._window_bytes <= WINDOW_BYTES


@pytest.mark.parametrize("accepted", [3, -1])
def test_outbox_refuses_an_impossible_acknowledgement(accepted):
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, numbered(TOUCH, 1500))
    assert len(sent(outbox)) == 2
    with pytest.raises(Malformed, match="impossible_ack"):
        outbox.acknowledge(accepted)


# --- reconnects ---------------------------------------------------------------------------------------


def test_outbox_sends_unacknowledged_frames_again_after_a_reconnect():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, numbered(TOUCH, 2500))
    first = sent(outbox)
    outbox.acknowledge(1)
    outbox.greet(Hello(1, []))
    assert sent(outbox) == first[1:]
    outbox.acknowledge(2)
    assert outbox.delivered == 2500
    assert not outbox


def test_outbox_cuts_anew_when_the_updater_has_other_partitions():
    outbox = greeted(Hello(2, []))
    outbox.add(TOUCH, numbered(TOUCH, 30_000))
    outbox.add(MISS, {b"m": 3})
    sent(outbox, limit=5)
    outbox.add(TOUCH, {b"0:1": 1})
    outbox.greet(Hello(5, []))
    frames = sent(outbox)
    for partition, pack in frames:
        assert {partition_of(key, 5) for key in pack.keys} == {partition}
    outbox.acknowledge(len(frames))
    assert outbox.delivered == 30_004
    assert (outbox._keys, outbox._bytes) == (0, 0)


def test_outbox_forgets_keys_that_the_new_updater_no_longer_declares():
    outbox = greeted(Hello(2, [b"p:", b"q:"]))
    outbox.add(TOUCH, {b"p:1": 1, b"q:1": 2})
    sent(outbox)
    outbox.greet(Hello(2, [b"p:"]))
    assert delivered(outbox) == {TOUCH: {b"p:1": 1}}
    assert outbox.dropped == {"undeclared": 2}


def test_outbox_given_up_is_empty_and_counted():
    outbox = greeted()
    outbox.add(TOUCH, {b"a": 4})
    sent(outbox)
    outbox.add(CHANGE, {b"b": 1})
    outbox.discard("closed")
    assert outbox.dropped == {"closed": 5}
    assert not outbox
    assert outbox.next_frame(1) is None


@pytest.mark.parametrize("seed", range(60))
def test_outbox_ledger_balances_whatever_happens(seed, monkeypatch):
    """Every hint is waiting, delivered or dropped with a reason; nothing arrives that was not put in."""
    monkeypatch.setattr(module, "KEYS_MAX", 300)
    monkeypatch.setattr(module, "SLICE_KEYS", 40)
    monkeypatch.setattr(module, "WINDOW_FRAMES", 6)
    chance = random.Random(seed)
    outbox, entered, arrived, unread, acked, put_in = Outbox(), 0, 0, [], 0, set()
    for _ in range(200):
        match chance.choice(["add", "add", "add", "fill", "send", "ack", "greet", "lose"]):
            case "add":
                keys = {
                    b"%s:%d" % (chance.choice([b"p", b"q"]), chance.randint(0, 200)): chance.randint(1, 3)
                }
                keys |= {b"p:%d" % chance.randint(0, 10**6): 1 for _ in range(chance.choice([1, 5, 120]))}
                entered += sum(keys.values())
                outbox.add(chance.choice([TOUCH, MISS, SET, CHANGE]), keys)
            case "fill":
                fills = [(b"p:%d" % chance.randint(0, 200), chance.randint(1, 10**6)) for _ in range(30)]
                entered += len(fills)
                put_in.update(fills)
                outbox.add_told(chance.choice([TOUCH, MISS]), fills)
            case "send":
                unread += sent(outbox, limit=chance.randint(1, 20))
            case "ack" if unread:
                some = chance.randint(1, len(unread))
                for _, pack in unread[:some]:
                    arrived += sum(pack.counts) or len(pack.keys)
                    assert put_in.issuperset(zip(pack.keys, pack.tokens, strict=False))
                del unread[:some]
                acked += some
                outbox.acknowledge(acked)
            case "greet" | "lose":
                unread, acked = [], 0
                outbox.greet(Hello(chance.choice([1, 3, 3, 3, 8]), chance.choice([[], [b"p:"], [b"p:"]])))
        assert entered == outbox.waiting + outbox.delivered + outbox.dropped.total()
        assert outbox.delivered == arrived
        assert outbox._keys <= 300
        for tokens_of, pending in zip(outbox._tokens, outbox._pending, strict=True):
            assert tokens_of.keys() <= pending.keys()
    outbox.greet(Hello(3, []))
    delivered(outbox)
    assert (outbox.waiting, outbox._keys, outbox._bytes, any(outbox._tokens)) == (0, 0, 0, False)
    assert entered == outbox.delivered + outbox.dropped.total()


def test_outbox_gives_up_the_oldest_frame_that_is_refused_and_counts_it():
    outbox = greeted(Hello(1, []))
    outbox.add(CHANGE, {b"a": 2})
    outbox.next_frame(1)
    outbox.add(MISS, {b"b": 3})
    outbox.next_frame(1)
    outbox.refuse()
    outbox.acknowledge(2)
    assert (outbox.delivered, outbox.waiting, outbox.dropped) == (3, 0, {"refused": 2})
    assert not outbox


def test_outbox_bears_no_refusal_of_what_was_not_sent():
    outbox = greeted()
    outbox.add(CHANGE, {b"a": 1})
    with pytest.raises(Malformed):
        outbox.refuse()
    assert outbox.waiting == 1


def test_outbox_keeps_weaker_kinds_uncut_so_that_they_merge():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"a": 1})
    outbox.add(MISS, {b"b": 1})
    assert unpack(outbox.next_frame(1, weakest=MISS))[1].kind == MISS
    assert outbox.next_frame(1, weakest=MISS) is None
    outbox.add(TOUCH, {b"a": 1, b"c": 1})
    assert outbox.touches == 2
    assert unpack(outbox.next_frame(1))[1].counts == [2, 1]
    assert outbox.touches == 0


def test_outbox_sends_frames_again_whatever_kind_is_asked_for():
    outbox = greeted(Hello(1, []))
    outbox.add(TOUCH, {b"a": 1})
    outbox.next_frame(1)
    outbox.greet(Hello(1, []))
    assert unpack(outbox.next_frame(1, weakest=CHANGE))[1].kind == TOUCH


def test_a_collector_hears_of_each_frame_that_has_left_and_whether_it_was_taken():
    left = []
    outbox = Outbox(settled=lambda frame, taken: left.append((frame.kind, frame.keys, frame.hints, taken)))
    outbox.greet(Hello(1, []))
    outbox.add(CHANGE, {b"a": 2, b"b": 1})
    outbox.add(TOUCH, {b"c": 1})
    sent(outbox)
    outbox.acknowledge(1)
    outbox.refuse()
    assert left == [(CHANGE, 2, 3, True), (TOUCH, 1, 1, False)]


def test_a_collector_sees_what_still_merges_and_what_is_cut():
    outbox = Outbox()
    outbox.add(CHANGE, {b"a": 2, b"bb": 1})
    assert (outbox.standing(CHANGE), outbox.standing(TOUCH), outbox.size) == ((2, 0), (0, 0), (2, 3))
    outbox.greet(Hello(8, []))
    outbox.next_frame(1)
    outbox.add(CHANGE, {b"a": 1})
    assert outbox.standing(CHANGE) == (1, 2)
    outbox.acknowledge(1)
    assert outbox.standing(CHANGE) == (1, 1)
    outbox.greet(Hello(7, []))  # cut anew: all merge again
    assert outbox.standing(CHANGE) == (2, 0)


def test_only_a_curious_outbox_calls_while_nothing_waits():
    assert not Outbox().calls
    assert Outbox(curious=True).calls
    outbox = Outbox()
    outbox.add(TOUCH, {b"a": 1})
    assert outbox.calls


def test_an_outbox_that_is_restricted_later_keeps_what_has_come():
    outbox = Outbox([b"p:"])
    outbox.add(TOUCH, {b"p:1": 1, b"q:1": 1})
    outbox.greet(Hello(1, []))
    outbox.restrict([b"q:"])
    outbox.add(TOUCH, {b"p:2": 1, b"q:2": 1})
    assert decode_pack(outbox.next_frame(0).pack).keys == [b"p:1", b"q:2"]
    assert outbox.dropped == {"undeclared": 2}


def test_the_hello_is_the_same_object_until_it_says_something_else():
    outbox, first = Outbox(), Hello(4, [b"p:"])
    assert outbox.hello is None
    outbox.greet(first)
    outbox.greet(Hello(4, [b"p:"]))
    assert outbox.hello is first
    outbox.greet(Hello(5, [b"p:"]))
    assert outbox.hello == Hello(5, [b"p:"])
