"""The decoder of pgoutput: what each message says, and that no bytes whatever stop or deceive it."""

from __future__ import annotations

from uuid import UUID

import pytest
from feeds import pgoutput as pg
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.adapters.feed_replication.decode import (
    Begin,
    Commit,
    Decoder,
    Said,
    Table,
    Truncated,
)
from cacheupdater.errors import Faulty
from cacheupdater.feed_ports import Changed

SKU = UUID("8215766c-c33a-48f6-8f72-2bbce15dac22")
ITEMS, OTHER, WIDE = 16384, 16390, 16400
COLUMNS = [
    ("id", pg.BIGINT, True),
    ("shelf", pg.INTEGER, False),
    ("sku", pg.UUID, False),
    ("note", pg.TEXT, False),
]


def described(*watched, identity=b"d", bases=None):
    """A decoder that has read what `items` is."""
    decoder = Decoder({("public", "items"): Table("public.items", watched)}, bases)
    decoder.event(pg.relation(ITEMS, "public", "items", *COLUMNS, identity=identity))
    decoder.event(pg.relation(OTHER, "public", "others", *COLUMNS))
    return decoder


def test_a_new_row_is_told_with_its_watched_columns_by_their_types():
    told = described("id", "sku", "note").event(pg.insert(ITEMS, pg.row(7, 2, SKU, "Ångström")))
    assert told == Changed("public.items", ({"id": 7, "sku": SKU, "note": "Ångström"},))


def test_null_is_none():
    assert described("id", "shelf").event(pg.insert(ITEMS, pg.row(7, None, None, None))).rows == (
        {"id": 7, "shelf": None},
    )


def test_a_row_whose_identity_did_not_change_is_told_as_it_is():
    assert described("id", "shelf").event(pg.update(ITEMS, pg.row(7, 3, SKU, "x"))).rows == (
        {"id": 7, "shelf": 3},
    )


def test_a_changed_key_is_told_as_it_was_without_the_columns_that_the_server_leaves_out():
    message = pg.update(ITEMS, pg.row(8, 3, SKU, "x"), key=pg.row(7, None, None, None))
    assert described("id", "shelf").event(message).rows == ({"id": 7}, {"id": 8, "shelf": 3})


def test_a_whole_old_row_is_told_if_a_watched_column_changed():
    message = pg.update(ITEMS, pg.row(7, 3, SKU, "x"), old=pg.row(7, 2, SKU, "x"))
    assert described("id", "shelf", identity=b"f").event(message).rows == (
        {"id": 7, "shelf": 2},
        {"id": 7, "shelf": 3},
    )


def test_a_whole_old_row_is_not_told_if_only_other_columns_changed():
    message = pg.update(ITEMS, pg.row(7, 3, SKU, "y"), old=pg.row(7, 2, SKU, "x"))
    assert described("id", "sku", identity=b"f").event(message).rows == ({"id": 7, "sku": SKU},)


def test_a_large_value_that_did_not_change_is_left_out_or_taken_from_the_old_row():
    new = pg.row(7, 3, SKU, pg.UNCHANGED)
    assert described("id", "note").event(pg.update(ITEMS, new)).rows == ({"id": 7},)
    message = pg.update(ITEMS, new, old=pg.row(7, 3, SKU, "long"))
    assert described("id", "note", identity=b"f").event(message).rows == ({"id": 7, "note": "long"},)


@pytest.mark.parametrize(
    ("gone", "row"),
    [
        ({"key": pg.row(7, None, None, None)}, {"id": 7}),
        ({"old": pg.row(7, None, SKU, "x")}, {"id": 7, "shelf": None}),
    ],
)
def test_a_deleted_row_is_told_as_far_as_the_server_tells_it(gone, row):
    assert described("id", "shelf").event(pg.delete(ITEMS, **gone)).rows == (row,)


def test_a_truncate_tells_the_watched_tables():
    decoder = described("id")
    assert decoder.event(pg.truncate(ITEMS, OTHER)) == Truncated(("public.items",))
    assert decoder.event(pg.truncate(OTHER)) is None


def test_rows_of_other_tables_and_messages_that_mean_nothing_to_us_are_passed_over():
    decoder = described("id")
    for message in (
        pg.insert(OTHER, pg.row(1, 2, SKU, "x")),
        pg.update(OTHER, pg.row(1, 2, SKU, "x")),
        pg.delete(OTHER, key=pg.row(1, None, None, None)),
        b"O" + bytes(8) + b"origin\0",
        b"Y" + bytes(4) + b"public\0mood\0",
        pg.said(9, "ours", b"in a transaction", transactional=True),
    ):
        assert decoder.event(message) is None


def test_transactions_and_words_have_their_places_and_times():
    decoder = described("id")
    assert decoder.event(pg.begin(committed=1_500_000)) == Begin(946_684_801.5)
    assert decoder.event(pg.commit(700)) == Commit(700)
    assert decoder.event(pg.said(9, "cacheupdater", b"\x00word")) == Said("cacheupdater", b"\x00word", 9)


def test_a_table_that_has_changed_is_read_by_its_new_columns():
    decoder = described("id", "note")
    decoder.event(pg.relation(ITEMS, "public", "items", ("note", pg.TEXT, False), ("id", pg.BIGINT, True)))
    assert decoder.event(pg.insert(ITEMS, pg.row("x", 7))).rows == ({"note": "x", "id": 7},)
    decoder.event(pg.relation(ITEMS, "public", "renamed", *COLUMNS))
    assert decoder.event(pg.insert(ITEMS, pg.row(7, 1, SKU, "x"))) is None


def test_a_table_of_the_same_name_in_another_schema_is_another():
    decoder = described("id")
    decoder.event(pg.relation(WIDE, "other", "items", *COLUMNS))
    assert decoder.event(pg.insert(WIDE, pg.row(7, 1, SKU, "x"))) is None


def test_a_domain_is_read_as_the_type_beneath_it():
    decoder = Decoder({("public", "items"): Table("public.items", ("id",))}, {17000: pg.BIGINT})
    decoder.event(pg.relation(ITEMS, "public", "items", ("id", 17000, True)))
    assert decoder.event(pg.insert(ITEMS, pg.row(7))).rows == ({"id": 7},)


def test_text_that_is_not_utf8_makes_no_error():
    assert described("note").event(pg.insert(ITEMS, pg.row(7, 1, SKU, b"\xff!"))).rows == (
        {"note": "\ufffd!"},
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"Z",
        b"I",
        pg.insert(ITEMS, pg.row("seven", 1, SKU, "x")),
        pg.insert(ITEMS, pg.row(7, 1, "no uuid", "x")),
        pg.insert(ITEMS, pg.row(7)),
        b"I" + pg.update(ITEMS, pg.row(1, 2, SKU, "x"), key=pg.row(1, 2, SKU, "x"))[1:],
        b"U\0\0\x40\0X" + pg.row(1, 2, SKU, "x"),
        pg.insert(ITEMS, b"\0\x04t\xff\xff\xff\xff"),
        pg.insert(ITEMS, b"\0\x04b\0\0\0\x01x"),
        pg.truncate(ITEMS)[:-1],
        pg.said(9, "cacheupdater", b"word")[:-1],
        pg.relation(WIDE, "public", "items", *COLUMNS)[:-1],
    ],
)
def test_what_is_no_message_of_pgoutput_is_an_error_without_its_bytes(message):
    with pytest.raises(Faulty, match="cannot be read") as caught:
        described("id", "shelf", "sku", "note").event(message)
    assert "seven" not in str(caught.value)
    assert caught.value.__cause__ is None


cells = st.one_of(st.none(), st.integers(0, 9), st.text(max_size=5), st.just(pg.UNCHANGED))
rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1), st.one_of(st.none(), st.integers(0, 9)), st.uuids(), cells
).map(lambda values: pg.row(*values))
messages = st.one_of(
    st.builds(pg.insert, st.sampled_from([ITEMS, OTHER]), rows),
    st.builds(lambda new, key: pg.update(ITEMS, new, key=key), rows, rows),
    st.builds(lambda new, old: pg.update(ITEMS, new, old=old), rows, rows),
    st.builds(lambda key: pg.delete(ITEMS, key=key), rows),
    st.builds(pg.commit, st.integers(1, 2**63)),
    st.just(pg.truncate(ITEMS, OTHER)),
    st.just(pg.relation(WIDE, "public", "items", *COLUMNS)),
    st.builds(lambda content: pg.said(9, "p", content), st.binary(max_size=9)),
)


def outcome(message, *watched):
    try:
        return described(*watched or ("id", "sku")).event(message)
    except Faulty:
        return "refused"


@given(messages, st.data())
def test_a_message_that_was_cut_off_says_the_same_or_is_refused(message, data):
    watched = data.draw(st.sampled_from([("id",), ("id", "sku"), ("shelf",), ("id", "note")]))
    whole = outcome(message, *watched)
    assert whole != "refused"
    cut = message[: data.draw(st.integers(0, len(message) - 1))]
    assert outcome(cut, *watched) in ("refused", whole)


@given(messages, st.data())
def test_no_damaged_message_raises_anything_else(message, data):
    at = data.draw(st.integers(0, len(message) - 1))
    outcome(message[:at] + data.draw(st.binary(max_size=9)) + message[at + 1 :])


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(message):
    outcome(message)
