"""Names, tokens and calls of the fence, without a server."""

from __future__ import annotations

import random

import pytest
from redis.crc import key_slot

from cacheupdater_client.protocol import fence


def test_floor_name_lies_in_the_slot_of_its_key_for_any_bytes():
    rng = random.Random(20261121)
    alphabet = b"{}{}ab\x00\xff:"
    wrong = 0
    for _ in range(200_000):
        key = bytes(rng.choices(alphabet, k=rng.randrange(12)))
        wrong += key_slot(fence.floor_name(key)) != key_slot(key)
    assert wrong == 0


def test_floor_names_never_change():
    # written down in Redis and by clients of other versions and languages
    assert fence.floor_name(b"product:7") == b"__crs:{AKOD}:product:7"
    assert fence.floor_name(b"{user:1}:x{}") == b"__crs:{AILK}:{user:1}:x{}"
    assert fence.floor_name(b"{}") == b"__crs:{A@IL}:{}"
    assert fence.floor_name(b"") == b"__crs:{AKOB}:"


def test_floor_names_of_different_keys_differ():
    keys = [b"a", b"{a}", b"{a}b", b"a}", b"}:a"]
    assert len({fence.floor_name(key) for key in keys}) == len(keys)


def test_token_has_19_digits_and_ends_in_zeros():
    assert fence.token_of(1_795_282_839, 7) == 1_795_282_839_000_007_000


def test_refused_says_how_long_after_the_token_a_new_one_passes():
    token = fence.token_of(1_795_282_839, 0)
    floor = fence.token_of(1_795_282_841, 500_000) + 999
    wait = fence.Refused(floor).wait_after(token)
    assert wait == 2.500001
    assert token + round(wait * 1e9) > floor


def entries_of(*sizes):
    return [(b"k%d" % i, b"v" * size, 1000) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "cuts"),
    [
        ([], []),
        ([1] * 100, [100]),
        ([1] * 101, [100, 1]),
        ([1] * 250, [100, 100, 50]),
        ([2**19, 2**19], [2]),
        ([2**19, 2**19 + 1], [1, 1]),
        ([1, 2**20, 1], [1, 1, 1]),
        ([2**21, 1], [1, 1]),
    ],
)
def test_chunks_hold_at_most_100_keys_and_1_mib_in_order(sizes, cuts):
    entries = entries_of(*sizes)
    chunks = list(fence.chunks(entries))
    assert [len(chunk) for chunk in chunks] == cuts
    assert [entry for chunk in chunks for entry in chunk] == entries


def test_chunks_set_a_key_apart_that_is_too_long():
    entries = [(b"a", b"v", 1), (b"k" * 1025, b"v", 1), (b"k" * 1024, b"v", 1), (b"b", b"v", 1)]
    assert [len(chunk) for chunk in fence.chunks(entries)] == [1, 1, 2]
    assert [fence.fits(entry) for entry in entries] == [True, False, True, True]


def test_size_counts_fields_and_values():
    assert fence.size_of({b"ab": b"cde", b"f": b""}) == 6
    assert fence.size_of(b"abc") == 3
    assert fence.size_of(None) == 0


def test_key_chunks_hold_at_most_100_keys():
    keys = [b"%d" % i for i in range(205)]
    chunks = list(fence.key_chunks(keys))
    assert [len(chunk) for chunk in chunks] == [100, 100, 5]
    assert [key for chunk in chunks for key in chunk] == keys


@pytest.mark.parametrize("hold_off_ms", [-1, 60_001])
def test_hold_off_that_would_look_like_a_clock_step_is_refused(hold_off_ms):
    with pytest.raises(ValueError, match="hold_off must be 0 to 60 s"):
        fence.invalidate_args([b"k"], hold_off_ms=hold_off_ms)


def test_outcomes_reads_text_and_bytes_alike():
    # clients with decode_responses get text
    reply = [1, 0, 2, -1, -2, "1795282839000007999", b"1795282839000007999", "-OOM no", b"-OOM \xff no\r\n"]
    refused = fence.Refused(1_795_282_839_000_007_999)
    assert fence.outcomes(reply) == [
        *(fence.WRITTEN, fence.UNCHANGED, fence.DUPLICATE, fence.TOO_OLD, fence.FOREIGN),
        *(refused, refused),
        *(fence.Failed("OOM no"), fence.Failed("OOM � no")),
    ]
