"""NaN and infinity are null everywhere; addresses, ranges and bits are texts. Tests with real types are in integration."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import ip_address, ip_interface, ip_network

import asyncpg
import msgspec
import pytest

from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.errors import Inexpressible


@dataclass
class Row:
    """What a Python loader may return."""

    price: object


ODD = [Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN"), float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_finite_number_is_null_wherever_it_stands(odd):
    value = {
        "a": odd,
        "b": [{"c": odd}, (1, odd)],
        "d": Row(odd),
        "text": "NaN or Infinity",
        "e": Decimal("1.10"),
    }
    plain = {
        "a": None,
        "b": [{"c": None}, [1, None]],
        "d": {"price": None},
        "text": value["text"],
        "e": "1.10",
    }
    assert json.loads(encoder("json")(value)) == plain
    assert msgspec.msgpack.decode(encoder("msgpack")(value)) == plain
    assert encoder("json")(odd) == b"null"


@pytest.mark.parametrize(
    "bits", ["7ff0000000000001", "7ffc000000000000", "fff4000000000000", "ffffffffffffffff"]
)
def test_a_float_that_is_none_is_null_in_msgpack_whatever_its_bits(bits):
    (odd,) = struct.unpack(">d", bytes.fromhex(bits))
    assert math.isnan(odd)
    assert msgspec.msgpack.decode(encoder("msgpack")({"a": odd, "b": 1.5})) == {"a": None, "b": 1.5}


@pytest.mark.parametrize("number", [1.5, -1.5, 0.1, 2.0**1023, -(2.0**1023), 5e-324])
def test_a_float_that_is_one_stays_in_msgpack(number):
    value = {"a": number, "b": b"\xcb\x7f\xf0", "c": -1, "d": 127}
    assert msgspec.msgpack.decode(encoder("msgpack")(value)) == value


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_finite_number_has_no_field_in_a_hash_and_refuses_nothing_else(odd):
    assert encoder("hash")({"a": 1, "b": odd, "c": [odd]}) == {b"a": b"1", b"c": b"[null]"}
    with pytest.raises(Inexpressible, match="no column that is not NULL"):
        encoder("hash")({"b": odd})
    with pytest.raises(Inexpressible, match="column 'b': it is NULL or not a number"):
        encoder("string")({"b": odd})


def test_times_and_bytes_beside_what_is_no_number_stay_what_they_are():
    at = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    decoded = msgspec.msgpack.decode(encoder("msgpack")({"at": at, "blob": b"\x00\xff", "odd": float("nan")}))
    assert decoded == {"at": at, "blob": b"\x00\xff", "odd": None}


@pytest.mark.parametrize("kind", ["json", "msgpack", "hash", "string"])
def test_addresses_are_texts(kind):
    for text in ("10.0.0.1", "10.0.0.1/24", "10.0.0.0/8", "::1"):
        for made in (ip_address, ip_interface, ip_network):
            with contextlib.suppress(ValueError):
                value = made(text)
                expected = {"json": f'"{value}"'.encode(), "msgpack": msgspec.msgpack.encode(str(value))}
                if kind == "hash":
                    assert encoder(kind)({"ip": value}) == {b"ip": str(value).encode()}
                else:
                    assert encoder(kind)(value) == expected.get(kind, str(value).encode())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (asyncpg.Range(1, 10), "[1,10)"),
        (asyncpg.Range(None, None), "(,)"),
        (asyncpg.Range(empty=True), "empty"),
        (asyncpg.Range("a,b", "c", upper_inc=True), '["a,b","c"]'),
        (asyncpg.Range(Decimal("1.50"), Decimal("Infinity")), "[1.50,Infinity)"),
        (asyncpg.BitString("0010 1"), "00101"),
        (asyncpg.BitString(), ""),
    ],
)
def test_ranges_and_bits_are_texts_in_the_form_of_postgres(value, text):
    assert encoder("string")(value) == text.encode()
    assert json.loads(encoder("json")([value])) == [text]
