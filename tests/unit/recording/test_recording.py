"""A recording comes back as it was written; anything else is refused with a reason."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from cacheupdater.errors import Misconfigured
from cacheupdater.recording.recording import Recording, Space, Watched, decode, encode

RECORDING = Recording(
    60.0,
    [
        Space("product", "main", 1.0, 60.0, {1: 1000, 7: 3}, 5, 0.4, [Watched(7, 1.0, 40.0, False)]),
        Space("basket", "main", 2.5, None, {}, 0, None, []),
    ],
    12,
)


def test_a_recording_comes_back_as_it_was_written():
    assert decode(encode(RECORDING)) == RECORDING


def test_a_million_keys_are_a_small_file():
    space = Space("p", "main", 1.0, None, dict.fromkeys(range(1, 3000), 5), 0, None, [])
    assert len(encode(Recording(60.0, [space], 0))) < 20_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no recording"),
        (b"version: 1\nsources: {}\n", "is no recording"),
        (encode(RECORDING)[:-1], "is damaged"),
        (encode(RECORDING)[:27], "is damaged"),
        (encode(RECORDING)[:-9] + b"\xff" + encode(RECORDING)[-8:], "is damaged"),
        (encode(RECORDING).replace(b"recording 1", b"recording 2"), "another version"),
    ],
)
def test_what_is_no_recording_is_refused_with_a_reason(content, why):
    with pytest.raises(Misconfigured, match=why):
        decode(content)


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"dropped": -1},
        {"spaces": [{"name": "x"}]},
        {"spaces": 7},
    ],
)
def test_numbers_that_make_no_sense_are_refused_even_with_a_good_checksum(changed):
    content = msgspec.to_builtins(RECORDING)
    forged = encode(content | changed)
    with pytest.raises(Misconfigured, match="is damaged"):
        decode(forged)


def test_no_byte_can_be_changed_unnoticed():
    content = encode(RECORDING)
    for at in range(len(content)):
        forged = bytearray(content)
        forged[at] ^= 1
        with pytest.raises(Misconfigured):
            decode(bytes(forged))


def test_a_name_that_is_no_text_is_refused_even_with_a_good_checksum():
    forged = msgspec.msgpack.encode(RECORDING).replace(b"product", b"produ\xe4t")
    head = encode(RECORDING)[: -len(msgspec.msgpack.encode(RECORDING)) - 4]
    with pytest.raises(Misconfigured, match="is damaged"):
        decode(head + zlib.crc32(forged).to_bytes(4, "big") + forged)
