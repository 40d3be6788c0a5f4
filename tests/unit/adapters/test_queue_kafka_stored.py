"""The packs in batches of a topic, read by a program that is no member: in pieces, whatever stands there."""

from __future__ import annotations

import pytest

pytest.importorskip("aiokafka")

from brokers import batches as made

from cacheupdater.adapters.queue_kafka.stored import packs
from cacheupdater.ports import Message

MIB = 1024 * 1024


def rows(first, *values, codec="none", **named):
    return made.of([made.record(n, value) for n, value in enumerate(values)], codec, base=first, **named)


def all_in_pieces(raw, limit, after=0):
    found = []
    while True:
        some, further = packs(raw, after, limit)
        found += some
        if further == after:
            return found
        assert len(some) <= limit
        after = further


@pytest.mark.parametrize("codec", list(made.CODECS))
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pieces_of_any_length_make_the_whole_and_begin_where_they_should(codec, limit):
    raw = rows(5, b"a", b"b", b"c", codec=codec) + rows(8, b"d", codec=codec)
    whole = [
        Message(offset, value) for offset, value in zip(range(5, 9), (b"a", b"b", b"c", b"d"), strict=True)
    ]
    assert all_in_pieces(raw, limit) == whole
    assert all_in_pieces(raw, limit, after=7) == whole[2:]


def test_a_batch_that_nobody_can_read_is_one_empty_pack_and_those_behind_it_are_read():
    bomb = made.of([made.record(0, bytes(64 * MIB))], "gzip")
    torn = bytearray(rows(1, b"a", b"b"))
    torn[-1] ^= 1
    assert all_in_pieces(bomb + bytes(torn) + rows(3, b"c"), 10) == [
        Message(0, b""),
        Message(2, b""),
        Message(3, b"c"),
    ]


def test_marks_of_transactions_and_the_cut_end_of_a_fetch_are_no_packs():
    mark, cut = rows(0, b"mark", attributes=0x20), rows(2, b"b")[:-1]
    assert packs(mark + rows(1, b"a") + cut, 0, 10) == ([Message(1, b"a")], 2)
    assert packs(mark, 0, 10) == ([], 1)
    assert packs(b"", 7, 10) == ([], 7)
