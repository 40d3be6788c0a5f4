"""Numbers and times as an application wrote them before: the spelling of FastAPI and float(), and ours."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import msgspec
import pytest

from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.spelling import respeller

ROW = {
    "price": Decimal("8.90"),
    "odd": Decimal("NaN"),
    "at": datetime(2024, 1, 1, 12, tzinfo=UTC),
    "east": datetime(2024, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2))),
    "bare": datetime(2024, 1, 1, 12),  # noqa: DTZ001  a timestamp without a zone
    "day": date(2024, 1, 1),
    "hour": time(12, 30),
    "long": timedelta(minutes=1),
    "parts": [{"price": Decimal(1)}],
}
ISO = {
    "at": "2024-01-01T12:00:00+00:00",
    "east": "2024-01-01T12:00:00.000005+02:00",
    "bare": "2024-01-01T12:00:00",
    "day": "2024-01-01",
    "hour": "12:30:00",
    "long": 60.0,
}


def test_plain_numbers_are_numbers_however_deep_they_lie():
    for decode, kind in (json.loads, "json"), (msgspec.msgpack.decode, "msgpack"):
        value = decode(encoder(kind, "plain")(ROW))
        assert (value["price"], value["odd"], value["parts"]) == (8.9, None, [{"price": 1}])
    assert b'"price":8.90' in encoder("json", "plain")(ROW)
    assert json.loads(encoder("json", "plain")(ROW))["at"] == "2024-01-01T12:00:00Z"


def test_iso_times_are_what_pythons_isoformat_writes():
    value = json.loads(encoder("json", times="iso")(ROW))
    assert {name: value[name] for name in ISO} == ISO
    assert value["price"] == "8.90"
    assert encoder("hash", times="iso")({"at": ROW["at"]}) == {b"at": ISO["at"].encode()}
    assert encoder("string", times="iso")(ROW["at"]) == ISO["at"].encode()


def test_str_times_are_what_pythons_str_writes():
    value = json.loads(encoder("json", times="str")(ROW))
    assert value == json.loads(json.dumps(ROW, default=str)) | {"odd": None, "parts": [{"price": "1"}]}


def test_plain_numbers_are_spelled_as_floats_where_everything_is_text():
    row = {"price": Decimal("8.90"), "whole": Decimal(8), "odd": Decimal("NaN"), "id": 7}
    assert encoder("hash", "plain")(row) == {b"price": b"8.9", b"whole": b"8.0", b"id": b"7"}
    assert encoder("string", "plain")({"price": Decimal("8.90")}) == b"8.9"


@pytest.mark.parametrize("kind", ["json", "msgpack", "hash", "string", "raw"])
def test_usual_spelling_costs_no_call_more(kind):
    assert encoder(kind) is encoder(kind, "text", "rfc3339")


def test_usual_spelling_changes_nothing():
    assert respeller("text", "rfc3339")(ROW) == ROW
