"""What a drain sends together, what it commits and when it ends: decisions alone, without a queue."""

from __future__ import annotations

import random

import pytest

from cacheupdater.core import draining
from cacheupdater.core.draining import WAVE_KEYS, WAVE_MS, Done, Draining
from cacheupdater.core.hints import READS_MAX, Kind
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Pack

BEGAN_MS = 1_700_000_000_000
EPOCH = 7


@pytest.fixture
def drain():
    made = Draining(0.0)
    for partition in (0, 1):
        made.gain(partition, EPOCH, 1, now=0.0)
    return made


def read(drain, partition, offset, *keys, kind=TOUCH, ms=0, tokens=(), counts=(), now=0.0, epoch=EPOCH):
    pack = Pack(kind, BEGAN_MS + ms, list(keys), list(counts), tokens) if keys else None
    drain.read(Done(partition, epoch, offset), pack, now=now)


def keys_of(wave):
    return {key for batch in wave.batches.values() for key in batch.counts}


def test_hints_of_about_one_age_leave_together_merged_by_key_and_kind(drain):
    read(drain, 0, 1, b"a", b"b", counts=[2, 1])
    read(drain, 1, 1, b"a", kind=CHANGE, ms=WAVE_MS - 1)
    read(drain, 1, 2, b"a", ms=10)
    read(drain, 0, 2, b"m", kind=MISS, tokens=[9], ms=20)
    wave = drain.next_wave()
    assert wave.emitted_ms == BEGAN_MS
    assert wave.batches[Kind.TOUCH].counts == {b"a": 3, b"b": 1}
    assert wave.batches[Kind.CHANGE].counts == {b"a": 1}
    assert wave.batches[Kind.MISS].tokens == {b"m": 9}
    assert drain.waiting == 6


def test_a_sender_that_lies_about_its_counts_weighs_no_more_than_its_process_can_have_read(drain):
    read(drain, 0, 1, b"liar", b"other", counts=[10**12, 10**6])
    read(drain, 1, 1, b"honest", counts=[5])
    counts = drain.next_wave().batches[Kind.TOUCH].counts
    assert counts[b"honest"] == 5
    assert counts[b"liar"] + counts[b"other"] <= READS_MAX + 1


def test_younger_hints_wait_for_a_wave_of_their_own_and_keep_their_age(drain):
    read(drain, 0, 1, b"young", ms=WAVE_MS)
    read(drain, 0, 2, b"old")
    first = drain.next_wave()
    assert (first.emitted_ms, keys_of(first)) == (BEGAN_MS, {b"old"})
    drain.finish(first)
    second = drain.next_wave()
    assert (second.emitted_ms, keys_of(second)) == (BEGAN_MS + WAVE_MS, {b"young"})


def test_nothing_is_committed_before_the_new_queue_has_it_and_nothing_behind_an_unfinished_pack(drain):
    read(drain, 0, 1, b"late", ms=WAVE_MS)
    read(drain, 0, 5, b"early")
    read(drain, 1, 1, b"other", ms=1)
    assert drain.to_commit() == []
    wave = drain.next_wave()
    assert drain.to_commit() == []
    drain.finish(wave)
    assert drain.to_commit() == [Done(1, EPOCH, 2)]  # the first of partition 0 is still here
    drain.committed(Done(1, EPOCH, 2))
    drain.finish(drain.next_wave())
    assert drain.to_commit() == [Done(0, EPOCH, 6)]
    drain.committed(Done(0, EPOCH, 6))
    assert drain.to_commit() == []
    assert drain.next_wave() is None


def test_a_pack_that_nobody_can_read_holds_up_nothing(drain):
    read(drain, 0, 1)
    assert drain.to_commit() == [Done(0, EPOCH, 2)]
    read(drain, 0, 2, b"a")
    read(drain, 0, 3)
    assert drain.to_commit() == [Done(0, EPOCH, 2)]
    drain.finish(drain.next_wave())
    assert drain.to_commit() == [Done(0, EPOCH, 4)]


def test_a_partition_that_is_lost_is_not_committed_though_its_wave_arrives(drain):
    read(drain, 0, 1, b"a")
    read(drain, 1, 1, b"b")
    wave = drain.next_wave()
    drain.lose(0, now=1.0)
    drain.finish(wave)
    assert drain.to_commit() == [Done(1, EPOCH, 2)]
    assert drain.waiting == 0
    drain.gain(0, EPOCH + 1, 1, now=2.0)
    read(drain, 0, 1, b"stray", now=2.0)  # of the epoch before
    assert drain.next_wave() is None
    read(drain, 0, 1, b"a", now=2.0, epoch=EPOCH + 1)
    drain.finish(drain.next_wave())
    assert Done(0, EPOCH + 1, 2) in drain.to_commit()


def test_waves_and_what_is_held_are_bounded(drain):
    offset = 1
    while drain.has_room:
        read(drain, 0, offset, *(b"k%d:%d" % (offset, each) for each in range(1000)))
        offset += 1
    assert offset - 1 == draining.HELD_KEYS // 1000
    wave = drain.next_wave()
    assert len(keys_of(wave)) == WAVE_KEYS
    drain.finish(wave)
    assert drain.has_room


def test_many_small_packs_are_bounded_too(drain):
    for offset in range(1, draining.HELD_PACKS + 1):
        assert drain.has_room
        read(drain, 0, offset, b"k")
    assert not drain.has_room


@pytest.mark.parametrize("stirs", ["pack", "gain", "loss", "trouble"])
def test_the_end_is_a_minute_without_anything_new(stirs):
    drain = Draining(0.0)
    drain.gain(0, EPOCH, 1, now=0.0)
    drain.gain(1, EPOCH, 1, now=0.0)
    assert not drain.quiet(59.9)
    assert drain.quiet(60.0)
    if stirs == "pack":
        read(drain, 0, 1, b"a", now=50.0)
        assert not drain.quiet(200.0), "it is not on the new queue"
        drain.finish(drain.next_wave())
        assert not drain.quiet(200.0), "it is not committed"
        drain.committed(Done(0, EPOCH, 2))
    elif stirs == "gain":
        drain.gain(2, EPOCH, 1, now=50.0)
    elif stirs == "loss":
        drain.lose(1, now=50.0)
    else:
        drain.stir(50.0)
    assert not drain.quiet(109.9)
    assert drain.quiet(110.0)


def test_whatever_the_ages_are_everything_leaves_once_and_commits_never_run_ahead():
    for seed in range(200):
        random_ = random.Random(seed)
        drain = Draining(0.0)
        unsent, sent, offsets = {}, set(), {0: 1, 1: 1, 2: 1}
        for partition in offsets:
            drain.gain(partition, EPOCH, 1, now=0.0)
        for number in range(60):
            partition = random_.randrange(3)
            offset = offsets[partition] = offsets[partition] + random_.randrange(1, 3)
            unsent[partition, offset] = key = b"%d" % number
            read(drain, partition, offset, key, kind=random_.randrange(3), ms=random_.randrange(5000))
            if random_.random() < 0.3 and (wave := drain.next_wave()):
                assert not keys_of(wave) & sent, f"seed {seed}"
                sent |= keys_of(wave)
                drain.finish(wave)
            for done in drain.to_commit():
                behind = {key for (p, at), key in unsent.items() if p == done.partition and at < done.done}
                assert behind <= sent, f"seed {seed}: committed before it was sent"
                drain.committed(done)
        while wave := drain.next_wave():
            sent |= keys_of(wave)
            drain.finish(wave)
        assert sent == set(unsent.values()), f"seed {seed}"
        assert all(done.done == offsets[done.partition] + 1 for done in drain.to_commit()), f"seed {seed}"
