"""In hashes and strings everything is text, so a reader would notice another spelling."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from cacheupdater.core.likeness import compared
from cacheupdater_client.protocol.encoding import encoder

SOME = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def told(theirs, value, form="hash", **settings):
    """By field: what differs, or nothing."""
    row = {"x": value}
    if form == "hash":
        theirs, row = {b"id": b"7"} | ({b"x": theirs} if theirs is not None else {}), row | {"id": 7}
    found = compared(form, theirs, encoder(form, **settings)(row), row)
    return {each.field: each.what for each in found if each.field != "id"}


@pytest.mark.parametrize(
    ("theirs", "value", "what"),
    [
        (b"True", True, "x is True or False and would become true or false"),
        (b"1", True, "x is a whole number and would become true or false"),
        (b"yes", True, "x is text and would become true or false"),
        (b"false", True, ""),
        (b"11.5", Decimal("11.50"), "x is a number such as 1.5 and would become a number such as 1.50"),
        (b"11.5", Decimal("12.50"), "x is a number such as 1.5 and would become a number such as 1.50"),
        (b"11.50", Decimal("12.40"), ""),
        (b"8.0", 8, "x is a number such as 1.5 and would become a whole number"),
        (b"8", 7, ""),
        (b"11.250", Decimal("11.25"), "x is a number such as 1.50 and would become a number"),
        (b"2026-01-01T00:00:00+00:00", AT, "x is a time with an offset and would become a time with zone Z"),
        (b"1767225600", AT, "x is a whole number and would become a time with zone Z"),
        (b"2020-01-01T00:00:00Z", AT, ""),
        (b"6f9619ff8b86d011b42d00c04fc964ff", SOME, "x is text and would become a UUID"),
        (b"chair", "table", ""),
        (b"True", "table", ""),
        (b"True", "false", "x is True or False and would become true or false"),
        (b'["a", "b"]', ["c"], ""),
        (b'["a"]', [1], "x[] is text and would become a number"),
        (b"a,b", ["c"], "x is text and would become a list in JSON"),
        (pickle.dumps(["a"]), ["c"], "x is a pickle and would become a list in JSON"),
    ],
)
def test_field_of_a_hash_is_compared_by_its_spelling(theirs, value, what):
    assert next(iter(told(theirs, value).values())) == what


@pytest.mark.parametrize(("theirs", "value"), [(b"19.99", Decimal("19.99")), (b"19.99", Decimal("20.50"))])
def test_number_that_everybody_spells_alike_tells_nothing(theirs, value):
    assert told(theirs, value) == {}


@pytest.mark.parametrize(
    ("theirs", "what"),
    [(b"None", "x of NULL would be gone"), (b"", "x of NULL would be gone"), (None, ""), (b"a note", None)],
)
def test_null_is_a_question_of_its_own(theirs, what):
    assert told(theirs, None) == ({} if what is None else {"x of NULL": what})


def test_field_of_a_hash_whose_name_is_loaded_in_lower_case_is_told_so():
    theirs, ours = {b"inStock": b"true"}, {b"instock": b"true"}
    [gone] = [each for each in compared("hash", theirs, ours, {"instock": True}) if each.what]
    assert gone.what == "inStock would be gone, for its name is loaded in lower case"


def test_field_that_no_column_has_would_be_gone():
    [gone] = [each for each in compared("hash", {b"views": b"7"}, {b"id": b"7"}, {"id": 7}) if each.what]
    assert str(gone) == 'views: "7" -> gone'


@pytest.mark.parametrize(
    ("theirs", "value", "what"),
    [
        (b"some", "other", ""),
        (b"True", True, "the value is True or False and would become true or false"),
        (pickle.dumps("some"), "other", "the value is a pickle and would become text"),
        (b"x\x9c\xff", "other", "the value is bytes and would become text"),
        (b'{"a":1}', "other", "the value is an object in JSON and would become text"),
        (b'"some"', "other", "the value is a text in JSON and would become text"),
    ],
)
def test_string_is_compared_by_what_it_holds(theirs, value, what):
    assert told(theirs, value, form="string") == {"": what}


def test_bytes_of_a_loader_are_compared_too():
    pickled = pickle.dumps({"id": 7})
    assert [each.what for each in compared("string", pickled, pickle.dumps(8), pickle.dumps(8))] == [""]
    assert [each.what for each in compared("string", pickled, b'{"id":7}', b"")] == [
        "the value is a pickle and would become an object in JSON"
    ]


def test_what_nobody_can_read_is_not_shown():
    [one] = compared("string", pickle.dumps({"id": 7}), b"x" * 70, "x")
    assert str(one) == f'the value: a pickle -> "{"x" * 59}...'


def test_configuration_makes_them_equal():
    settings = {"numbers": "plain", "times": "iso"}
    assert told(b"11.5", Decimal("11.50"), **settings) == {"x": ""}
    assert told(b"2026-01-01T00:00:00+00:00", AT, **settings) == {"x": ""}
    assert told(b"2026-01-01 00:00:00+00:00", AT, times="str") == {"x": ""}


def test_forms_that_know_kinds_are_compared_by_kinds():
    row = {"price": Decimal("8.90")}
    [one] = compared("json", b'{"price":8.9}', encoder("json")(row), row)
    assert str(one) == 'price: 8.9 -> "8.90"'
    assert compared("json", pickle.dumps(7), encoder("json")(row), row) is None
    assert compared("hash", b"text", encoder("hash")(row), row) is None
