"""All that a topic may hold is read as it was meant, or skipped, in bounded memory and time, whatever program wrote it."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest

pytest.importorskip("aiokafka")

import cramjam
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from brokers import batches as made
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.adapters.queue_kafka import batches, codecs, unpacking
from cacheupdater.adapters.queue_kafka.batches import Torn, records, walk
from cacheupdater.adapters.queue_kafka.codecs import BODY_BYTES_MAX, Unreadable, decompress
from cacheupdater.adapters.queue_kafka.inboxes import Inbox
from cacheupdater.adapters.queue_kafka.parcels import Parcel, parcel, seal
from cacheupdater.adapters.queue_kafka.unpacking import Unpacking
from cacheupdater.ports import Message
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import broker

PACKED = [codec for codec in made.CODECS if codec != "none"]
BOMB = bytes(64 * 1024 * 1024)
MIB = 1024 * 1024
NAMES = dict(zip(range(1, 5), PACKED, strict=True))


class Told:
    """Notices."""

    def __init__(self):
        self.standing = {}

    def trouble(self, event, subject, text):
        self.standing[event, subject] = text

    def over(self, event, subject):
        self.standing.pop((event, subject), None)


class World:
    """One queue's inboxes, without a broker."""

    def __init__(self):
        self.observer, self.told = RecordingObserver(), Told()
        self.unpacking = Unpacking(observer=self.observer, notices=self.told)
        self.inboxes = {}

    def put(self, *batches, partition=0):
        inbox = self.inboxes.get(partition)
        if inbox is None:
            inbox = self.inboxes[partition] = Inbox()
            inbox.begin(0, known=False)
        raw = b"".join(batches)
        last = list(walk(raw))[-1]
        inbox.put(Parcel(raw, last.end, 1))
        return inbox

    def some(self, limit, *, partition=0):
        inbox, before = self.inboxes[partition], -1
        while len(inbox.unread) < limit and inbox.parcels and before != len(inbox.unread):
            assert self.unpacking.some(inbox, partition, limit)
        return inbox.take(limit) if inbox.unread else []

    def everything(self, *, partition=0):
        got = []
        while self.inboxes[partition].parcels or self.inboxes[partition].unread:
            got += self.some(8, partition=partition)
        return got

    def skipped(self, reason=None):
        return self.observer.total("skipped_batches", reason=reason)


@pytest.fixture
def world():
    return World()


def read(raw):
    return [each for batch in walk(raw) for each in records(raw, batch)[0]]


def theirs(raw):
    found, all_of_them = [], MemoryRecords(raw)
    while all_of_them.has_next():
        found += [(each.offset, each.timestamp, each.key, each.value) for each in all_of_them.next_batch()]
    return found


def peak(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- as it was meant ------------------------------------------------------------------------------------

_values = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=5).map(str.encode), _values), max_size=3)


@given(
    st.lists(st.tuples(_values, _values, _headers), min_size=1, max_size=8),
    st.sampled_from(list(made.CODECS)),
    st.integers(0, 2**40),
)
def test_what_usual_producers_send_reads_as_aiokafka_reads_it(rows, codec, base):
    raw = made.of(
        [made.record(n, value, key=key, headers=headers) for n, (key, value, headers) in enumerate(rows)],
        codec,
        base=base,
    )
    assert read(raw) == theirs(raw)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_messages_of_old_topics_are_read(magic, codec):
    if (magic, codec) == (0, 3):
        pytest.skip("LZ4 of that age has a broken frame that nobody reads")
    builder = LegacyRecordBatchBuilder(magic, codec, batch_size=10**6)
    for n in range(5):
        builder.append(n, timestamp=1000 + n, key=b"k%d" % n, value=b"v%d" % n)
    raw = bytes(builder.build())
    if codec:
        raw = struct.pack(">q", 4) + raw[8:]  # a broker gives the outer one the last one's place
    expected = [(n, 1000 + n if magic else -1, b"k%d" % n, b"v%d" % n) for n in range(5)]
    assert read(raw) == expected


def test_markers_of_transactions_hold_no_packs(world):
    inbox = world.put(made.of([made.record(0, b"marker", key=b"\0\0\0\1")], attributes=0x20))
    assert world.everything() == []
    assert not inbox.arrived.is_set()


def test_a_batch_of_which_a_part_was_fetched_is_left_for_the_next_fetch():
    whole, next_one = made.of([made.record(0, b"a")]), made.of([made.record(0, b"b")], base=1)
    (found,) = theirs(seal(whole + next_one[:-1]))
    assert (found[0], found[3]) == (0, whole)
    assert seal(next_one[:-1]) == next_one[:-1]
    assert seal(b"") == b""


def test_a_parcel_ends_after_its_last_batch():
    raw = made.of([made.record(n, b"a") for n in range(3)], base=7)
    record = MemoryRecords(seal(raw)).next_batch()
    (sealed,) = list(record)
    assert parcel(sealed) == Parcel(raw, 10, 3)
    assert record.next_offset == 10


# --- too large ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_bomb_is_passed_over_in_bounded_memory_and_committed(world, codec, many):
    rows = [made.record(n, BOMB[:MIB]) for n in range(64)] if many else [made.record(0, BOMB)]
    bomb = made.of(rows, codec)
    del rows
    inbox = world.put(bomb, made.of([made.record(0, b"pack")], base=64 if many else 1))
    got = []
    assert peak(lambda: got.extend(world.everything())) < 3 * BODY_BYTES_MAX
    last = 63 if many else 0
    assert got == [Message(last, b""), Message(last + 1, b"pack")]
    assert (inbox.unpacked, inbox.taken) == (last + 2, last + 2)
    assert world.skipped("too_large") == 1


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_of_the_largest_size_is_read_and_one_byte_more_is_not(codec):
    number = made.CODECS[codec]
    whole = made.compressed(BOMB[:BODY_BYTES_MAX], codec)
    assert len(decompress(number, memoryview(whole))) == BODY_BYTES_MAX
    with pytest.raises(Unreadable, match="MiB"):
        decompress(number, memoryview(made.compressed(BOMB[: BODY_BYTES_MAX + 1], codec)))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_pieces_that_are_compressed_apart_are_bounded_together(codec):
    piece = made.compressed(BOMB[: BODY_BYTES_MAX // 2], codec)
    assert len(decompress(made.CODECS[codec], memoryview(piece * 2))) == BODY_BYTES_MAX
    with pytest.raises(Unreadable, match="MiB"):
        decompress(made.CODECS[codec], memoryview(piece * 3))


def test_what_is_read_of_a_batch_is_a_few_packs_at_a_time(world):
    world.put(made.of([made.record(n, b"%d" % n) for n in range(10_000)], "zstd"))
    for n in range(0, 80, 8):
        assert world.some(8) == [Message(n + m, b"%d" % (n + m)) for m in range(8)]
        assert len(world.inboxes[0].unread) < unpacking.AHEAD_PACKS


def test_packs_are_unpacked_ahead_up_to_a_number_and_up_to_their_bytes(world, monkeypatch):
    monkeypatch.setattr(unpacking, "TURN_S", 60.0)  # a busy machine may stop us for longer than a usual turn
    small = [made.of([made.record(0, b"x")], base=n) for n in range(100)]
    large = [made.of([made.record(0, bytes(100_000))], base=n) for n in range(100, 110)]
    world.put(*small, *large)
    assert len(world.some(1)) == 1
    assert len(world.inboxes[0].unread) == unpacking.AHEAD_PACKS - 1
    for _ in range(99):
        world.some(1)
    assert len(world.inboxes[0].unread) == 3, "the third large one reaches 256 KiB"


def test_half_a_million_headers_are_passed_without_being_made(world):
    body = made.record(0, b"pack", headers=[(b"", None)] * (BODY_BYTES_MAX // 8))
    world.put(made.batch(made.compressed(body, "zstd"), codec="zstd"))
    got = []
    assert peak(lambda: got.extend(world.everything())) < 3 * BODY_BYTES_MAX
    assert got == [Message(0, b"pack")]


def test_batches_of_many_partitions_that_are_half_read_stay_within_their_bound(world, monkeypatch):
    rows = [made.record(n, b"%07d" % n * 1000) for n in range(100)]  # 700 kB
    for partition in range(20):
        world.put(made.of(rows, "zstd"), partition=partition)
    monkeypatch.setattr(unpacking, "OPEN_BYTES_MAX", 3_000_000)
    monkeypatch.setattr(unpacking, "TURNS", 0)
    got = {partition: [] for partition in world.inboxes}
    for _ in range(13):
        for partition in world.inboxes:
            got[partition] += world.some(8, partition=partition)
            assert sum(each.size for each in world.unpacking._open.values()) <= 3_000_000
            assert sum(inbox.rest is not None for inbox in world.inboxes.values()) <= 4
    expected = [Message(n, b"%07d" % n * 1000) for n in range(100)]
    assert all(each == expected for each in got.values())
    assert world.skipped() == 0


def crowd(world, monkeypatch, *, partitions=6, records=5_000):
    """Large batches of many partitions, half of which find room at once."""
    raw = made.of([made.record(n, b"%050d" % n) for n in range(records)], "zstd")
    for partition in range(partitions):
        world.put(raw, partition=partition)
    monkeypatch.setattr(unpacking, "OPEN_BYTES_MAX", partitions // 2 * 60 * records)


def test_a_batch_that_made_room_goes_on_where_it_was(world, monkeypatch):
    """Or the time of a turn would pass with what was read before, and its partition would stand still for ever."""
    monkeypatch.setattr(unpacking, "TURNS", 0)
    monkeypatch.setattr(unpacking, "TURN_S", 0.0)
    crowd(world, monkeypatch)
    for turn in range(400):
        for partition, inbox in world.inboxes.items():
            assert world.unpacking.some(inbox, partition, 8)
            assert [each.offset for each in inbox.take(8)] == list(range(8 * turn, 8 * turn + 8))


def test_batches_that_find_no_room_wait_and_are_not_decompressed_for_every_few_packs(world, monkeypatch):
    opened = []
    monkeypatch.setattr(batches, "decompress", lambda *said: opened.append(1) or decompress(*said))
    monkeypatch.setattr(unpacking, "TURNS", 1_000_000)
    monkeypatch.setattr(unpacking, "IDLE_S", 1_000.0)
    crowd(world, monkeypatch)
    got = {partition: [] for partition in world.inboxes}
    while any(inbox.parcels for inbox in world.inboxes.values()):
        for partition, inbox in world.inboxes.items():
            assert world.unpacking.some(inbox, partition, 8)
            got[partition] += inbox.take(8) if inbox.unread else []
    for partition, inbox in world.inboxes.items():
        got[partition] += inbox.take(unpacking.AHEAD_PACKS) if inbox.unread else []
    assert len(opened) <= 2 * len(got)
    assert all([each.offset for each in found] == list(range(5_000)) for found in got.values())


def test_whoever_found_no_room_has_it_when_others_had_theirs_for_some_turns(world, monkeypatch):
    monkeypatch.setattr(unpacking, "IDLE_S", 1_000.0)
    crowd(world, monkeypatch)
    read = dict.fromkeys(world.inboxes, 0)
    for _ in range(400):
        for partition, inbox in world.inboxes.items():
            if len(inbox.unread) < 8:
                assert world.unpacking.some(inbox, partition, 8)
                assert inbox.crowded == (not inbox.unread)
            read[partition] += len(inbox.take(8)) if inbox.unread else 0
    assert min(read.values()) > 0.3 * 8 * 400


def test_a_partition_that_is_not_read_keeps_nobody_from_room(world, monkeypatch):
    monkeypatch.setattr(unpacking, "IDLE_S", -1.0)
    crowd(world, monkeypatch)
    for partition, inbox in world.inboxes.items():
        assert world.unpacking.some(inbox, partition, 8)
        assert len(inbox.take(8)) == 8


# --- not to be read -------------------------------------------------------------------------------------

_GOOD = made.record(0, b"pack")
LIES = {
    "more records than there are": made.batch(_GOOD, count=2),
    "two thousand million records": made.batch(_GOOD, count=2**31 - 1, last=0),
    "fewer records than there are": made.batch(_GOOD * 2, count=1),
    "less than no records": made.batch(_GOOD, count=-1, last=0),
    "a record that is longer than its batch": made.batch(made.varint(10**9) + _GOOD),
    "a record of negative length": made.batch(made.varint(-5) + _GOOD),
    "a key that is longer than its record": made.batch(
        made.varint(8) + b"\0\0\0" + made.varint(10**6) + b"\1\0"
    ),
    "a number without an end": made.batch(b"\xff" * 64),
    "an offset before the batch": made.batch(made.record(-3, b"x")),
    "an offset beyond the batch": made.batch(made.record(9, b"x")),
    "one offset twice": made.batch(_GOOD * 2, count=2),
    "nothing": made.batch(b"", count=1),
    "rubbish for a body": made.batch(b"\xc1" * 100, codec="zstd"),
    "a codec that nobody knows": made.batch(b"", codec=7),
    "another unknown codec": made.batch(b"x", codec=5),
    "a block of negative length": made.batch(
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -4) + b"abc", codec="snappy"
    ),
    "a block that announces 4 GiB": made.batch(b"\xff\xff\xff\xff\x0fxxxx", codec="snappy"),
    "a million empty blocks": made.batch(
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", 1) + b"\0") * 10**6, codec="snappy"
    ),
    "fifty thousand empty members": made.batch(made.compressed(b"", "gzip") * 50_000, codec="gzip"),
    "a body that is cut off": made.batch(made.compressed(_GOOD * 100, "gzip")[:-9], codec="gzip"),
    "a frame that is cut off": made.batch(made.compressed(_GOOD * 100, "zstd")[:-9], count=100, codec="zstd"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_contradicts_itself_is_passed_over_at_once(world, lie):
    """aiokafka would try for ever, or go round within itself."""
    batch = LIES[lie]
    (place,) = walk(batch)
    world.put(batch, made.of([made.record(0, b"next")], base=place.end))
    got = world.everything()
    assert got[-1] == Message(place.end, b"next")
    assert world.skipped() == 1
    assert len(got) <= 3
    assert [each.offset for each in got] == sorted({each.offset for each in got})


@pytest.mark.parametrize(
    ("codec", "library", "package"),
    [(2, "cramjam", "cramjam"), (3, "cramjam", "cramjam"), (4, "_unzstd", "zstandard")],
)
def test_without_the_library_a_codec_is_passed_over_and_gzip_is_read(
    world, monkeypatch, codec, library, package
):
    monkeypatch.setattr(codecs, library, None)
    world.put(made.of([made.record(0, b"a")], NAMES[codec]))
    assert world.some(1) == [Message(0, b"")]
    told = f"the package {package} is missing: pip install {broker.PACKAGES}"
    assert told in world.told.standing["batch_skipped", "0"]
    world.put(made.of([made.record(0, b"b")], "gzip", base=1))
    assert world.everything() == [Message(1, b"b")]
    assert not world.told.standing, "one that can be read ends the trouble"
    assert world.skipped("codec") == 1


def test_a_torn_batch_is_read_again_and_passed_over_the_third_time(world):
    whole = made.of([made.record(0, b"a")])
    torn = whole[:-2] + b"\xff" + whole[-1:]
    for _ in range(unpacking.TORN_TIMES - 1):
        inbox = world.put(torn)
        assert not world.unpacking.some(inbox, 0, 8)
        assert not inbox.parcels
    world.put(torn)
    assert world.everything() == [Message(0, b"")]
    assert world.skipped("torn") == 1


@given(st.binary(max_size=400), st.integers(0, 7), st.integers(-2, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_no_bytes_do_more_than_be_unreadable(body, codec, count, last):
    raw = made.batch(body, codec=codec, count=count, last=last)
    for batch in walk(raw):
        with suppress(Unreadable):
            found, size = records(raw, batch)
            assert size <= BODY_BYTES_MAX
            for record in found:
                assert batch.base <= record[0] < batch.end


@given(st.binary(max_size=300))
def test_no_bytes_of_a_broker_break_the_walk(raw):
    for batch in walk(raw):
        assert 0 <= batch.start < batch.stop <= len(raw)
        with suppress(Unreadable, Torn):
            list(records(raw, batch)[0])


def test_a_frame_that_wants_a_window_of_128_mib_gets_no_memory_for_it():
    frame = b"\x28\xb5\x2f\xfd\x00\x88" + b"\x09\x00\x00" + b"x"  # one raw block of one byte, the last
    assert bytes(cramjam.zstd.decompress(frame)) == b"x"
    before = resident()
    for _ in range(10):
        assert decompress(4, memoryview(frame)) == b"x"
    assert resident() - before < 16 * MIB


def resident():
    with open("/proc/self/statm") as said:  # noqa: PTH123  the one line of it
        return int(said.read().split()[1]) * 4096
