"""What events of Debezium say: recorded ones of two connectors, and whatever else may lie in a topic."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from feeds.debezium_events import COMMITTED_US, event, key
from feeds.recorded import CONNECTORS, FORMS, recording, table_topic
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.adapters.feed_debezium.decode import SCHEMAS_MAX, Decoder, Told, Unread
from cacheupdater.adapters.feed_debezium.values import UNTOLD, cell, is_filler

FIRST, SECOND = "7f0e9a52-0000-4000-8000-000000000001", "7f0e9a52-0000-4000-8000-000000000002"


def told_of(connector, form, table, *columns):
    """The rows of each recorded event of the table; None for a tombstone, nothing for a truncate."""
    decoder = Decoder(columns)
    topic = table_topic(connector, table)
    found = [decoder.told(each.key, each.value) for each in recording(connector, form) if each.topic == topic]
    return [None if told is None else [dict(row) for row in told.rows] for told in found]


@pytest.fixture(params=[(connector, form) for connector in CONNECTORS for form in FORMS], ids="-".join)
def recorded(request):
    return request.param


# --- recorded events ------------------------------------------------------------------------------------


def test_recorded_rows_tell_their_key_as_a_whole_number_in_the_order_of_commits(recorded):
    connector, form = recorded
    ids = [row["id"] for rows in told_of(connector, form, "items", "id") for row in rows or ()]
    rest = {"postgresql": [4, 5, 4, 1, 6], "mysql": [4, 5, 4, 1]}[connector] if form == "plain" else []
    assert ids == [1, 2, 1, 2, 3, *rest]


def test_a_recorded_update_tells_the_row_as_it_was_where_the_database_tells_it(recorded):
    connector, _ = recorded
    updated = told_of(*recorded, "items", "id", "shelf")[2]
    now = {"id": 1, "shelf": 11}
    assert updated == ([now] if connector == "postgresql" else [{"id": 1, "shelf": 10}, now])
    assert told_of(*recorded, "stock", "item_id", "place")[2] == [{"item_id": 1, "place": "north"}]


def test_a_recorded_change_of_a_key_tells_both_keys(recorded):
    told = told_of(*recorded, "stock", "item_id", "place")
    assert told[3:6] == [[{"item_id": 1, "place": "north"}], None, [{"item_id": 1, "place": "west"}]]


def test_a_recorded_deletion_tells_what_the_database_tells_and_nothing_that_the_connector_has_filled_in(
    recorded,
):
    connector, _ = recorded
    deleted = told_of(*recorded, "items", "id", "shelf", "code")[3]
    if connector == "postgresql":  # its identity is the primary key
        assert deleted == [{"id": 2}]
    else:
        assert deleted == [{"id": 2, "shelf": 20, "code": SECOND}]
    whole = told_of(*recorded, "stock", "item_id", "place", "pieces")
    assert whole[3] == [{"item_id": 1, "place": "north", "pieces": 6}]


def test_a_recorded_truncate_tells_no_row_but_that_any_may_have_changed(recorded):
    decoder, topic = Decoder(("id",)), table_topic(recorded[0], "items")
    last = [each for each in recording(*recorded) if each.topic == topic][-1]
    assert decoder.told(last.key, last.value).rows == ()


def test_with_a_schema_decimals_and_uuids_are_told_as_the_other_feeds_tell_them():
    rows = told_of("postgresql", "schema", "items", "price", "amount", "code")
    assert rows[0] == [{"price": "12.50", "amount": "7", "code": UUID(FIRST)}]
    assert rows[1] == [{"price": "-0.05", "amount": "123456789.125", "code": UUID(SECOND)}]
    assert told_of("mysql", "schema", "items", "price", "code")[1] == [{"price": "-0.05", "code": SECOND}]


def test_with_a_schema_times_and_booleans_are_not_told():
    [row] = told_of("postgresql", "schema", "items", "id", "day", "done", "note")[0]
    assert row == {"id": 1, "note": None}


def test_a_large_value_that_has_not_changed_is_not_told_as_its_placeholder():
    told = told_of("postgresql", "plain", "items", "id", "note")
    assert [{"id": 6}] in told


def test_a_large_value_that_has_not_changed_is_told_as_the_old_row_has_it():
    placed = {"id": 1, "note": "__debezium_unavailable_value"}
    told = rows(Decoder(("id", "note")), "u", {"id": 1, "note": "long"}, placed)
    assert told == [{"id": 1, "note": "long"}]


def test_recorded_events_tell_when_they_were_committed(recorded):
    topic = table_topic(recorded[0], "items")
    record = next(each for each in recording(*recorded) if each.topic == topic)
    said = json.loads(record.value)
    source = said.get("payload", said)["source"]
    assert Decoder(("id",)).told(record.key, record.value).committed == source["ts_us"] / 1e6


def test_marks_of_transactions_heartbeats_and_changes_of_schemas_are_foreign_and_messages_tell_nothing(
    recorded,
):
    decoder = Decoder(("id",))
    tables = {table_topic(recorded[0], each) for each in ("items", "stock")}
    others = [each for each in recording(*recorded) if each.topic not in tables]
    assert others
    for each in others:
        if each.topic == "shop.message":
            assert decoder.told(each.key, each.value) is None
        else:
            with pytest.raises(Unread, match="foreign"):
                decoder.told(each.key, each.value)


# --- the old row of PostgreSQL --------------------------------------------------------------------------


def rows(decoder, *of_event, **named):
    return [dict(row) for row in decoder.told(key(1), event(*of_event, **named)).rows]


ZEROS = {"id": 1, "shelf": 0, "name": "", "place": "x"}  # the column place has the default x
REAL = {"id": 1, "shelf": 7, "name": "", "place": "y"}


def test_before_any_update_an_old_row_of_zeros_tells_its_key_alone():
    decoder = Decoder(("id", "shelf"))
    assert rows(decoder, "d", {"id": 1, "shelf": 0, "name": ""}) == [{"id": 1}]
    assert rows(decoder, "d", REAL) == [{"id": 1, "shelf": 7}]


def test_once_an_update_has_told_no_old_row_an_old_row_tells_its_key_alone_whatever_it_holds():
    decoder = Decoder(("id", "shelf"))
    assert rows(decoder, "u", None, REAL) == [{"id": 1, "shelf": 7}]
    assert rows(decoder, "d", ZEROS) == [{"id": 1}]


def test_once_an_update_has_told_its_old_row_every_old_row_is_told_even_of_zeros():
    decoder = Decoder(("id", "shelf"))
    rows(decoder, "u", REAL, {**REAL, "shelf": 8})
    assert rows(decoder, "d", {"id": 1, "shelf": 0, "name": ""}) == [{"id": 1, "shelf": 0}]


def test_other_databases_tell_old_rows_whole():
    assert rows(Decoder(("id", "shelf")), "d", {"id": 1, "shelf": 0}, connector="mysql") == [
        {"id": 1, "shelf": 0}
    ]


def test_defaults_of_the_schema_count_as_filled_in():
    assert is_filler("x", {"type": "string", "default": "x"})
    assert not is_filler("y", {"type": "string", "default": "x"})
    assert not is_filler(5, None)


def test_a_schema_that_changes_changes_the_types_and_only_a_few_are_remembered():
    decoder = Decoder(("id",))
    for scale in range(3 * SCHEMAS_MAX):
        field = {"field": "id", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
                 "parameters": {"scale": str(scale)}}  # fmt: skip
        schema = {"fields": [{"field": "after", "fields": [field]}]}
        said = {"schema": schema, "payload": json.loads(event("c", None, {"id": "BQ=="}))}
        [row] = decoder.told(None, json.dumps(said).encode()).rows
        assert row["id"] == (f"0.{5:0{scale}}" if scale else "5")
    assert len(decoder._types) <= SCHEMAS_MAX


def test_a_deletion_without_an_old_row_tells_the_record_s_key():
    assert rows(Decoder(("id", "shelf")), "d") == [{"id": 1}]


def test_a_deletion_whose_key_is_no_json_tells_what_its_old_row_tells():
    said = Decoder(("id",)).told(b"Struct{id=1}", event("d", {"id": 1, "shelf": 0}, connector="mysql"))
    assert said.rows == [{"id": 1}]
    said = Decoder(("id",)).told(b"Struct{id=1}", event("d", {"id": 1, "shelf": 0}))
    assert said.rows == [{"id": 1}], "a number that is no zero shows that the row is told"
    assert Decoder(("id",)).told(b"7", event("d", None, connector="mysql")).rows == [{}]


def test_an_update_that_changes_no_watched_column_tells_one_row():
    assert rows(Decoder(("id",)), "u", REAL, {**REAL, "shelf": 8}) == [{"id": 1}]


# --- values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (7, None, 7),
        ("7", None, "7"),
        (None, None, None),
        (True, None, UNTOLD),
        (1.5, None, UNTOLD),
        ([1], None, UNTOLD),
        ({"a": 1}, None, UNTOLD),
        ({"scale": 1, "value": "ew=="}, None, "12.3"),
        ({"scale": 10**9, "value": "ew=="}, None, UNTOLD),
        ({"scale": 1, "value": "?"}, None, UNTOLD),
        (7, {"type": "int64"}, 7),
        (7, {"type": "int32", "name": "io.debezium.time.Date"}, UNTOLD),
        ("a", {"type": "string", "name": "io.debezium.data.Enum"}, "a"),
        ("a", {"type": "bytes"}, UNTOLD),
        ("no uuid", {"type": "string", "name": "io.debezium.data.Uuid"}, UNTOLD),
    ],
)
def test_a_value_is_told_if_a_key_could_say_it(value, schema, expected):
    assert cell(value, schema) is expected or cell(value, schema) == expected


@given(st.integers(-(10**60), 10**60), st.integers(0, 40))
def test_a_decimal_is_told_with_all_its_digits(unscaled, scale):
    from base64 import b64encode
    from decimal import Decimal, localcontext

    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)
    text = cell({"scale": scale, "value": b64encode(data).decode()}, None)
    with localcontext(prec=200):
        assert Decimal(text) == Decimal(unscaled).scaleb(-scale)
    assert len(text.partition(".")[2]) == scale


# --- whatever bytes there are ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "malformed"),
        (b"\0\0\0\0\7avro", "malformed"),
        (b"[1]", "malformed"),
        (b"7", "malformed"),
        (b"[" * 100_000, "malformed"),
        (b"\xff", "malformed"),
        (b"{}", "foreign"),
        (b'{"id":1,"shelf":7,"__op":"u"}', "foreign"),
        (b'{"op":"c","after":{"id":1}}', "foreign"),
        (event("c"), "foreign"),
        (event("x", None, {"id": 1}), "foreign"),
        (event({}, None, {"id": 1}), "foreign"),
        (event("c", None, "a text, as of MongoDB"), "foreign"),
        (b'{"schema":null,"payload":null}', "foreign"),
    ],
)
def test_what_tells_no_change_says_whether_it_is_malformed_or_foreign(value, reason):
    with pytest.raises(Unread, match=reason):
        Decoder(("id",)).told(None, value)


def test_a_tombstone_tells_nothing_and_is_no_mistake():
    assert Decoder(("id",)).told(key(1), None) is None


WORDS = st.sampled_from(["op", "before", "after", "source", "connector", "payload", "schema", "fields", "field", "type",
                         "name", "parameters", "scale", "value", "default", "id", "ts_us"])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=6),
    max_leaves=30,
)  # fmt: skip
ENVELOPES = st.builds(
    lambda op, source, **rows: {"op": op, "source": source, **rows},
    st.sampled_from("crudtm") | JSON,
    st.fixed_dictionaries(
        {"connector": st.sampled_from(["postgresql", "mysql"]) | JSON}, optional={"ts_us": JSON}
    ),
    before=JSON,
    after=JSON,
)


def answer(columns, key, value):
    """What the record tells, or the reason by which it is counted. Any other error fails the test."""
    try:
        return Decoder(columns).told(key, value)
    except Unread as e:
        return e.reason


@given(st.binary(max_size=200) | JSON.map(lambda each: json.dumps(each).encode()), st.data())
def test_no_bytes_raise_anything_but_being_counted(key, data):
    envelope = ENVELOPES | st.builds(
        lambda schema, payload: {"schema": schema, "payload": payload}, JSON, ENVELOPES
    )
    value = data.draw(st.binary(max_size=200) | (JSON | envelope).map(lambda each: json.dumps(each).encode()))  # fmt: skip
    for each in (key, None):
        said = answer(("id", "value"), each, value)
        cells = [cell for row in said.rows for cell in row.values()] if isinstance(said, Told) else []
        assert all(isinstance(cell, int | str | UUID | None) for cell in cells)


@given(st.data())
def test_a_recorded_event_that_is_spoiled_anywhere_is_read_or_counted(data):
    record = data.draw(st.sampled_from([r for r in recording("postgresql", "schema") if r.value]))
    at = data.draw(st.integers(0, len(record.value) - 1))
    spoiled = record.value[:at] + data.draw(st.binary(max_size=3)) + record.value[at + 1 :]
    answer(("id", "price"), record.key, spoiled)


def test_the_time_of_a_commit_is_told_in_microseconds_and_nonsense_is_not():
    assert Decoder(("id",)).told(key(1), event("c", None, {"id": 1})).committed == COMMITTED_US / 1e6
    assert Decoder(("id",)).told(key(1), event("c", None, {"id": 1}, committed_us=-5)).committed is None
