"""A loader's result becomes bytes that any client can read, or a clear refusal that names the column."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest

from cacheupdater_client.protocol.encoding import VALUE_BYTES_MAX, encoder
from cacheupdater_client.protocol.errors import Inexpressible

SOME = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")


class Secret:
    """What no encoding knows."""

    def __repr__(self):
        return "canary"


ROW = {
    "id": 7,
    "price": Decimal("9.90"),
    "uid": SOME,
    "at": datetime(2026, 5, 1, 12, 30, tzinfo=UTC),
    "blob": b"\x00\xff",
    "note": None,
    "name": "Käse",
    "on": True,
}


def test_json_spells_every_column_type_as_documented():
    assert json.loads(encoder("json")(ROW)) == {
        "id": 7,
        "price": "9.90",
        "uid": str(SOME),
        "at": "2026-05-01T12:30:00Z",
        "blob": "AP8=",
        "note": None,
        "name": "Käse",
        "on": True,
    }


def test_json_takes_lists_of_rows_and_spells_not_a_number_as_null():
    assert encoder("json")([{"a": 1}, {"a": float("nan")}]) == b'[{"a":1},{"a":null}]'


def test_msgpack_keeps_bytes_as_they_are():
    decoded = msgspec.msgpack.decode(encoder("msgpack")(ROW))
    assert decoded["blob"] == b"\x00\xff"
    assert decoded["price"] == "9.90"
    assert decoded["at"] == ROW["at"]


def test_hash_has_a_field_for_each_column_that_is_not_null():
    assert encoder("hash")(ROW | {"tags": ["a", "b"]}) == {
        b"id": b"7",
        b"price": b"9.90",
        b"uid": str(SOME).encode(),
        b"at": b"2026-05-01T12:30:00Z",
        b"blob": b"\x00\xff",
        b"name": "Käse".encode(),
        b"on": b"true",
        b"tags": b'["a","b"]',
    }


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ("Käse", "Käse".encode()),
        (7, b"7"),
        (1.5, b"1.5"),
        (Decimal("1.10"), b"1.10"),
        (b"\xff", b"\xff"),
        (SOME, str(SOME).encode()),
        ('"q"', b'"q"'),
        (False, b"false"),
    ],
)
def test_string_is_the_only_column_or_the_value_itself(value, spelled):
    assert encoder("string")(value) == spelled
    assert encoder("string")({"body": value}) == spelled


def test_raw_is_the_bytes_of_the_only_column():
    assert encoder("raw")({"body": b"\x00"}) == b"\x00"
    assert encoder("raw")(memoryview(b"ab")) == b"ab"


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("json", {"a": 1, "z": Secret()}, "column 'z', of type Secret"),
        ("msgpack", {"a": 1, "n": 2**70}, "column 'n', of type int"),
        ("json", Secret(), "a value of type Secret"),
        ("json", {"s": "\udc80canary"}, "column 's', of type str"),
        ("string", {"a": 1, "b": 2}, "one column, got a, b"),
        ("string", {"a": None}, "column 'a': it is NULL"),
        ("string", [1], "use json"),
        ("string", Secret(), "of type Secret"),
        ("hash", [{"a": 1}], "one row of named columns, got a value of type list"),
        ("hash", {"a": None}, "no column that is not NULL"),
        ("hash", {"s": "\udc80canary"}, "column 's', of type str"),
        ("raw", {"a": "text"}, "column 'a' is of type str"),
        ("raw", "text", "the value is of type str"),
    ],
)
def test_encoding_refuses_what_it_cannot_express_and_names_it(kind, value, why):
    with pytest.raises(Inexpressible, match=why) as refused:
        encoder(kind)(value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("raw", b"x" * VALUE_BYTES_MAX),
        ("string", "x" * VALUE_BYTES_MAX),
        ("json", "x" * (VALUE_BYTES_MAX - 2)),
        ("msgpack", "x" * (VALUE_BYTES_MAX - 5)),
        ("hash", {"f": "x" * (VALUE_BYTES_MAX - 1)}),
    ],
)
def test_encoding_takes_values_of_1_mib_and_no_larger_ones(kind, value):
    encoder(kind)(value)
    larger = {"f": value["f"] + "x"} if isinstance(value, dict) else value + value[:1]
    with pytest.raises(Inexpressible, match="more than the 1048576"):
        encoder(kind)(larger)
