"""The wire format: records that must never change, and readers that no input can break."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from itertools import product
from pathlib import Path

import msgspec
import pytest

from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.mailbox import Mailbox
from cacheupdater_client.protocol.wire import (
    CHANGE,
    FRAME_BYTES_MAX,
    MISS,
    NO_PARTITION,
    PACK_BYTES_MAX,
    SET,
    TOUCH,
    FrameReader,
    Hello,
    Malformed,
    Pack,
    ReplyReader,
    as_announced,
    decode_clients,
    decode_hello,
    decode_pack,
    encode_ack,
    encode_clients,
    encode_frame,
    encode_hello,
    encode_pack,
    is_change,
    partition_of,
)

ROOT = Path(__file__).parents[3]
GOLDEN = json.loads((ROOT / "tests/contract/golden/wire.json").read_text("utf-8"))


FILLS = [record for record in GOLDEN["packs"] if "tokens" in record]
SETS = [record for record in GOLDEN["packs"] if record.get("set")]


def named(records):
    return [pytest.param(record, id=record["name"]) for record in records]


@pytest.mark.parametrize("record", named(GOLDEN["packs"]))
def test_golden_pack_is_read_as_ever(record):
    keys = [bytes.fromhex(key) for key in record["keys"]]
    assert decode_pack(bytes.fromhex(record["hex"])) == Pack(
        SET if record.get("set") else record["kind"],
        record["emitted_ms"],
        keys,
        record["counts"],
        record.get("tokens", ()),
    )


@pytest.mark.parametrize("record", named([*GOLDEN["packs"][:5], *FILLS, *SETS]))
def test_golden_pack_is_written_as_ever(record):
    keys, tokens = [bytes.fromhex(key) for key in record["keys"]], record.get("tokens", ())
    kind = SET if record.get("set") else record["kind"]
    pack = encode_pack(kind, record["emitted_ms"], keys, record["counts"], tokens=tokens)
    assert pack.hex() == record["hex"]


@pytest.mark.parametrize("record", named(GOLDEN["refused"]))
def test_golden_refused_pack_is_refused_with_its_reason(record):
    with pytest.raises(Malformed) as refused:
        decode_pack(bytes.fromhex(record["hex"]))
    assert refused.value.reason == record["reason"]


def test_golden_stream_is_written_and_read_as_ever():
    streams = GOLDEN["streams"]
    for name in ("hello", "hello_of_one_that_hears_of_clients", "hello_every_key"):
        record = streams[name]
        prefixes = [bytes.fromhex(prefix) for prefix in record["prefixes"]]
        hello = Hello(record["partitions"], prefixes, record.get("clients", 1))
        assert encode_hello(hello).hex() == record["hex"]
        assert list(ReplyReader().feed(bytes.fromhex(record["hex"]))) == [hello]
    frame, ack = streams["frame"], streams["ack"]
    pack = bytes.fromhex(frame["pack"])
    assert encode_frame(frame["partition"], pack).hex() == frame["hex"]
    assert list(FrameReader().feed(bytes.fromhex(frame["hex"]))) == [(frame["partition"], pack)]
    clients = streams["clients"]
    assert encode_clients(clients["clients"]).hex() == clients["hex"]
    [(partition, said)] = FrameReader().feed(bytes.fromhex(clients["hex"]))
    assert (partition, decode_clients(said)) == (NO_PARTITION, clients["clients"])
    assert encode_ack(ack["accepted"]).hex() == ack["hex"]
    reader = ReplyReader()
    assert list(reader.feed(bytes.fromhex(streams["hello"]["hex"] + ack["hex"])))[1] == ack["accepted"]


@pytest.mark.parametrize("record", GOLDEN["partitions"], ids=lambda record: record["key"])
def test_golden_partition_of_a_key_stays(record):
    key = bytes.fromhex(record["key"])
    assert (partition_of(key, 12), partition_of(key, 7)) == (record["of_12"], record["of_7"])


def test_golden_records_stand_in_the_documented_page():
    page = (ROOT / "docs/reference/wire.md").read_text("utf-8")
    records = [*GOLDEN["packs"][:3], *FILLS, *SETS, *GOLDEN["streams"].values()]
    assert [record["hex"] for record in records if record["hex"] not in page] == []


@pytest.mark.parametrize("more", [None, 7, [], {}, {"later": 1}])
def test_an_updater_that_says_nothing_of_clients_counts_each_sender_as_one(more):
    body = msgspec.msgpack.encode((1, 4, [b"p:"], more))
    assert decode_hello(body) == Hello(4, [b"p:"], 1)


def test_an_older_client_reads_three_elements_of_a_hello_and_ignores_what_follows():
    body = encode_hello(Hello(4, [b"p:"], 64))[4:]
    assert decode_hello(msgspec.msgpack.encode(msgspec.msgpack.decode(body)[:3])) == Hello(4, [b"p:"])


@pytest.mark.parametrize("said", [{"clients": 0}, {"clients": "2"}, {"clients": 2.5}, [1, 20], 20, None])
def test_a_number_of_clients_that_is_none_is_refused(said):
    with pytest.raises(Malformed, match="garbage"):
        decode_clients(msgspec.msgpack.encode(said))


def test_what_a_newer_collector_says_beside_its_clients_is_ignored():
    assert decode_clients(msgspec.msgpack.encode({"later": [1], "clients": 7})) == 7


def test_an_older_reader_takes_fills_for_touches():
    """It reads five elements and ignores the others."""
    record = FILLS[0]
    first_five = msgspec.msgpack.decode(bytes.fromhex(record["hex"]))[:5]
    pack = decode_pack(msgspec.msgpack.encode(first_five))
    assert (pack.kind, len(pack.keys), pack.tokens) == (TOUCH, 2, ())


def test_changes_that_a_feed_told_carry_the_times_of_their_commits():
    pack = encode_pack(CHANGE, 1, [b"a", b"b"], tokens=[7, 8])
    assert is_change(pack)
    assert decode_pack(pack) == Pack(CHANGE, 1, [b"a", b"b"], [], [7, 8])


def test_a_set_is_a_change_on_the_wire_and_an_older_reader_takes_it_for_one():
    pack = encode_pack(SET, 1, [b"a", b"b"], [3, 1])
    assert is_change(pack)
    assert decode_pack(pack) == Pack(SET, 1, [b"a", b"b"], [3, 1])
    assert msgspec.msgpack.decode(pack) == [1, CHANGE, 1, [b"a", b"b"], [3, 1], {"set": True}]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (TOUCH, {"set": True}),
        (MISS, {"set": True}),
        (CHANGE, {"set": 1}),
        (CHANGE, {"set": False}),
        (CHANGE, {"set": True, "tokens": [7]}),
    ],
)
def test_only_a_change_without_a_time_is_taken_for_a_set(kind, more):
    assert decode_pack(msgspec.msgpack.encode((1, kind, 1, [b"a"], [], more))).kind == kind


def test_no_pack_says_on_the_wire_that_it_is_a_set():
    with pytest.raises(Malformed, match="garbage"):
        decode_pack(msgspec.msgpack.encode((1, SET, 1, [b"a"], [])))


def test_sets_that_wait_in_a_mailbox_stay_sets():
    box = Mailbox()
    box.open(Hello(1, []))
    assert box.put(0, encode_pack(SET, 1, [b"%d" % n for n in range(20)]))
    box.open(Hello(3, []))
    assert {decode_pack(pack).kind for _, pack in box.take()} == {SET}


def test_a_change_from_any_sender_carries_no_time_however_it_is_spelled():
    told = encode_pack(CHANGE, 1, [b"a", b"b"], [3, 1], tokens=[7, 8])
    wide = told[:1] + b"\xcc" + told[1:2] + b"\xcc" + told[2:]  # the same numbers, in two bytes each
    # the length of a long array reads like the version and the kind of a touch, or of a miss
    long = [b"\xdc" + size.to_bytes(2) + told[1:] + b"\xc0" * (size - 6) for size in (256, 257)]
    for pack in (told, wide, *long):
        assert decode_pack(pack).tokens == [7, 8]
        assert decode_pack(as_announced(pack)) == Pack(CHANGE, 1, [b"a", b"b"], [3, 1])


@pytest.mark.parametrize(
    "pack",
    [
        encode_pack(CHANGE, 1, [b"a"]),
        encode_pack(SET, 1, [b"a"]),
        encode_pack(TOUCH, 1, [b"a"], tokens=[7]),
        encode_pack(MISS, 1, [b"a"], tokens=[0]),
        encode_pack(CHANGE, 1, [b"a"], tokens=[7])[:-1],
        b"",
    ],
)
def test_any_other_pack_of_any_sender_is_taken_as_it_is(pack):
    assert as_announced(pack) is pack


@pytest.mark.parametrize("more", [None, 7, "tokens", [1], {"later": [1, 2, 3]}, {"tokens": []}])
def test_what_a_newer_writer_appends_is_ignored(more):
    pack = msgspec.msgpack.encode((1, TOUCH, 1, [b"a"], [], more, "more"))
    assert decode_pack(pack) == Pack(TOUCH, 1, [b"a"], [])


@pytest.mark.parametrize("tokens", [[1, 2], ["1"], [-1], [1.5], [float("nan")], [None], {"a": 1}, 7, None])
def test_tokens_that_are_none_are_garbage(tokens):
    with pytest.raises(Malformed, match="garbage"):
        decode_pack(msgspec.msgpack.encode((1, TOUCH, 1, [b"a"], [], {"tokens": tokens})))


def test_fills_that_wait_in_a_mailbox_keep_their_tokens_when_partitions_change():
    box = Mailbox()
    box.open(Hello(1, []))
    keys = [b"%d" % n for n in range(20)]
    assert box.put(0, encode_pack(TOUCH, 1, keys, tokens=list(range(20))))
    box.open(Hello(3, []))
    found = [decode_pack(pack) for _, pack in box.take()]
    assert len(found) == 3
    assert {k: t for pack in found for k, t in zip(pack.keys, pack.tokens, strict=True)} == dict(
        zip(keys, range(20), strict=True)
    )


def test_pack_over_the_limit_is_refused_unread():
    with pytest.raises(Malformed, match="too_large"):
        decode_pack(b"\x95" * (PACK_BYTES_MAX + 1))


@pytest.mark.parametrize("seed", range(20))
def test_frame_reader_cuts_a_stream_alike_however_it_arrives(seed):
    chance = random.Random(seed)
    frames = [
        (chance.randint(0, 99), encode_pack(TOUCH, 1, [chance.randbytes(chance.randint(1, 1024))]))
        for _ in range(50)
    ]
    stream = b"".join(encode_frame(partition, pack) for partition, pack in frames)
    reader, found = FrameReader(), []
    while stream:
        size = chance.choice([1, 3, 8, 1000, 5000])
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == frames


@pytest.mark.parametrize("seed", range(20))
def test_frame_reader_and_packs_survive_any_bytes(seed):
    """Random, truncated and damaged streams: frames, Malformed, or more to come; nothing else, and bounded memory."""
    chance = random.Random(seed)
    good = b"".join(encode_frame(1, encode_pack(TOUCH, 1, [b"k" * size])) for size in range(1, 60))
    for _ in range(200):
        damaged = bytearray(good[: chance.randint(0, len(good))])
        for _ in range(chance.randint(0, 8)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        reader = FrameReader()
        try:
            for _, pack in reader.feed(bytes(damaged) + chance.randbytes(chance.randint(0, 40))):
                with contextlib.suppress(Malformed):
                    decode_pack(pack)
        except Malformed:
            pass
        assert len(reader._data) <= max(FRAME_BYTES_MAX + 4, len(damaged) + 40)


@pytest.mark.parametrize("seed", range(20))
def test_pack_of_damaged_bytes_is_a_pack_or_malformed(seed):
    chance = random.Random(seed)
    good = encode_pack(TOUCH, 1795283558296, [b"product:%d" % number for number in range(5)], [1, 2, 3, 4, 5])
    for _ in range(500):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            pack = decode_pack(bytes(damaged))
        except Malformed:
            continue
        assert all(1 <= len(key) <= 1024 for key in pack.keys)
        assert len(pack.counts) in {0, len(pack.keys)}


def test_mailbox_gives_frames_to_the_right_partition_after_a_change_of_partitions():
    box = Mailbox()
    keys = [b"%d" % number for number in range(100)]
    box.open(Hello(1, []))
    assert box.put(0, encode_pack(TOUCH, 5, keys, list(range(1, 101))))
    box.close()
    assert not box.put(0, b"")
    box.open(Hello(3, []))
    counts = {}
    for partition, payload in box.take():
        pack = decode_pack(payload)
        assert {partition_of(key, 3) for key in pack.keys} == {partition}
        counts |= dict(zip(pack.keys, pack.counts, strict=True))
    assert counts == {key: number + 1 for number, key in enumerate(keys)}


@pytest.mark.parametrize(
    "head", [b"\xa4", b"\xd9\x04", b"\xda\x00\x04", b"\xdb\x00\x00\x00\x04"], ids=bytes.hex
)
def test_no_key_may_be_a_str_however_long_its_head_says_that_it_may_be(head):
    """A writer may spell a short text with a head for a long one."""
    with pytest.raises(Malformed) as refused:
        decode_pack(b"\x95\x01\x01\x00\x91" + head + b"AAAA\x90")

    assert refused.value.reason == "garbage"


@pytest.mark.parametrize("place", [0, 1, 500, 999])
@pytest.mark.parametrize("text", ["aaaa", "aGVsbG8=", "a" * 28, "a" * 32, "a" * 400], ids=len)
def test_no_key_of_a_pack_may_be_a_str_wherever_it_stands(place, text):
    keys = [b"product:%d" % n for n in range(1000)]
    keys[place] = text
    with pytest.raises(Malformed) as refused:
        decode_pack(encode_pack(TOUCH, 1_700_000_000_000, keys))

    assert refused.value.reason == "garbage"


NUMBERS = {
    0: "B",
    0xCC: ">BB",
    0xCD: ">BH",
    0xCE: ">BI",
    0xCF: ">BQ",
    0xD0: ">Bb",
    0xD1: ">Bh",
    0xD2: ">Bi",
    0xD3: ">Bq",
}
ARRAYS = {0x90: "B", 0xDC: ">BH", 0xDD: ">BI"}


def _like_an_array(head):
    """A number with this head in whose bytes an array seems to begin."""
    size = struct.calcsize(NUMBERS[head]) - 1
    return int.from_bytes(b"\xdc" * size, signed=head >= 0xD0) if head else 5


def _spelled(number, head):
    """The number with this head, or without any."""
    return struct.pack(NUMBERS[head], *([head] if head else []), number)


def _array(items, head):
    return struct.pack(
        ARRAYS[head], *([head | len(items)] if head == 0x90 else [head, len(items)])
    ) + b"".join(items)


@pytest.mark.parametrize("key", [b"\xa4AAAA", b"\xc4\x04AAAA"], ids=["str", "bin"])
def test_a_key_that_is_a_str_is_found_however_all_else_is_spelled(key):
    numbers = product(NUMBERS, NUMBERS, NUMBERS, ARRAYS, ARRAYS)
    others = [b"\xc4\x01b"] * 7
    for (version, kind, time, keys, counts), first, odd in product(numbers, (True, False), (True, False)):
        all_keys = [key, *others] if first else [*others, key]
        payload = b"\x95" + _spelled(1, version) + _spelled(MISS, kind)
        payload += _spelled(_like_an_array(time) if odd else 5, time)
        payload += _array(all_keys, keys) + _array([_spelled(7, 0)] * 8, counts)
        if key.startswith(b"\xc4"):
            assert len(decode_pack(payload).keys) == 8
        else:
            with pytest.raises(Malformed, match="bin"):
                decode_pack(payload)


@pytest.mark.parametrize("keys", [4, 15, 16, 0xA4, 0xB8, 420, 1000])
@pytest.mark.parametrize("emitted_ms", [0xA4, 0xA4A4, 0xA4A4A4A4, 0xA4A4A4A4A4A4A4A4 // 2, 1_700_000_000_000])
def test_a_pack_is_decoded_once_whatever_its_time_and_its_size_look_like(keys, emitted_ms, monkeypatch):
    monkeypatch.delattr(wire, "_decode_any")  # the slow second look
    pack = decode_pack(encode_pack(TOUCH, emitted_ms, [b"product:%d" % n for n in range(keys)], [1] * keys))
    assert len(pack.keys) == keys


def test_keys_that_hold_what_a_str_begins_with_are_read_as_they_are():
    keys = [bytes(range(256)), b"\xa4aaaa", b"\xd9\x04aaaa", b"k" * 0xA4, b"k" * 0xD9]

    assert decode_pack(encode_pack(TOUCH, 0, keys, [0xA4] * 5)).keys == keys


def test_the_old_name_of_the_module_says_the_same_for_one_release():
    import cacheupdater_client.wire as old

    assert old.encode_pack is encode_pack
    assert old.FrameReader is FrameReader
    assert old.Mailbox is Mailbox
