"""Which differences between an application's value and ours a reader would notice."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import msgspec
import pytest

from cacheupdater.core.kinds import compared, decoded, reads, says_nothing


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ({"price": 8.9}, {"price": "8.90"}, ['price: 8.9 -> "8.90"']),
        ({"price": "8.9"}, {"price": "8.90"}, []),
        ({"price": 8}, {"price": 8.5}, []),
        ({"price": None}, {"price": "8.90"}, []),
        ({"price": 8.9}, {"price": None}, []),
        ({"on": True}, {"on": 1}, ["on: true -> 1"]),
        ({"id": 7, "old": 1}, {"id": 7, "new": 1}, ["old: 1 -> gone"]),
        ({"at": "2024-01-01T00:00:00+00:00"}, {"at": "2024-01-02T00:00:00.5+02:00"}, []),
        (
            {"at": "2024-01-01T00:00:00+00:00"},
            {"at": "2024-01-01T00:00:00Z"},
            ['at: "2024-01-01T00:00:00+00:00" -> "2024-01-01T00:00:00Z"'],
        ),
        ({"at": "2024-01-01 00:00:00"}, {"at": "2024-01-01T00:00:00"}, 1),
        ({"at": "2024-01-01T00:00:00"}, {"at": "2024-01-01T00:00:00Z"}, 1),
        ({"at": 1704067200}, {"at": "2024-01-01T00:00:00Z"}, 1),
        ({"for": "1:00:00"}, {"for": "PT1H"}, ['for: "1:00:00" -> "PT1H"']),
        ({"for": "P1DT2H3M4.5S"}, {"for": "PT1H"}, []),
        ({"a": {"b": [{"c": 1}]}}, {"a": {"b": [{"c": "1"}]}}, ['a.b[].c: 1 -> "1"']),
        ([{"price": 8.9}, {}], [{"price": "8.9"}], ['[].price: 8.9 -> "8.9"']),
        ([], [{"price": "8.9"}], []),
        ({"id": 7}, [{"id": 7}], ['the value: {"id":7} -> [{"id":7}]']),
        ("some text", "other text", []),
    ],
)
def test_difference_is_told_field_by_field(theirs, ours, told):
    found = [str(each) for each in compared(theirs, ours) if each.what]
    assert found == told if isinstance(told, list) else len(found) == told


def test_what_differs_is_told_without_any_value():
    [one] = compared({"price": 8.9}, {"price": "canary"})
    assert one.what == "price is a number and would become text"


def test_name_that_the_database_has_put_into_lower_case_is_told_apart_from_one_that_is_not_loaded():
    theirs = {"inStock": True, "Colour": 1, "size": 2}
    assert [each.what for each in compared(theirs, {"instock": True, "id": 7})] == [
        "inStock would be gone, for its name is loaded in lower case",
        "Colour would be gone",
        "size would be gone",
    ]


@pytest.mark.parametrize(("empty", "kind"), [([], "a list"), ({}, "an object")])
def test_empty_list_that_would_become_null_is_told_for_its_readers_go_through_it(empty, kind):
    [one] = compared({"lines": empty}, {"lines": None})
    assert one.what == f"lines is {kind} and would become NULL where it is empty"
    [alike] = compared({"lines": empty}, {"lines": empty})
    assert (alike.field, alike.what) == (one.field, "")
    assert list(compared({"lines": None}, {"lines": empty})) == []


def test_what_is_alike_is_told_too_but_null_tells_nothing():
    both = (
        {"id": 7, "at": None, "on": True, "lines": []},
        {"id": 8, "at": "2024-01-01", "on": None, "lines": [1]},
    )
    assert [(each.field, each.what) for each in compared(*both)] == [("id", "")]


def test_value_reads_in_its_own_form_alone():
    packed, text, pickled = msgspec.msgpack.encode({"id": 7}), b'{"id":7}', pickle.dumps({"id": 7})
    assert [reads("json", each) for each in (text, packed, pickled, b"", {b"id": b"7"})] == [True] + [
        False
    ] * 4
    assert [reads("msgpack", each) for each in (packed, text, pickled)] == [True, False, False]
    assert [reads("hash", each) for each in ({b"id": b"7"}, text, None)] == [True, False, False]
    assert [reads("string", each) for each in (pickled, text, b"", {b"id": b"7"})] == [
        True,
        True,
        True,
        False,
    ]
    assert decoded("json", b"null") == (None,)


DATED = b'{"ct": 1800000000.5, "v": 2}|'


def test_values_of_cachelib_and_dogpile_are_what_stands_behind_their_signs():
    row = pickle.dumps({"id": 7})
    assert decoded("cachelib", b"!" + row) == decoded("dogpile", DATED + row) == decoded("pickle", row)
    assert decoded("cachelib", b"-7") == (-7,)
    assert decoded("dogpile-json", DATED + b'{"id": 7}') == ({"id": 7},)
    for form, others in {
        "cachelib": (row, b"!7", DATED + row),
        "dogpile": (row, b"7", b"!" + row, DATED + b"[1]", DATED, b""),
        "dogpile-json": (row, b"7", b'{"id": 7}', DATED + row, DATED, b""),
    }.items():
        assert not any(reads(form, other) for other in others)


def test_of_djangos_values_only_integers_are_read_and_a_pickle_is_never_loaded():
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle was loaded",)

    trap, row = pickle.dumps(Trap()), pickle.dumps({"id": 7})
    assert decoded("pickle", b"-7") == (-7,)
    assert reads("pickle", trap)
    assert decoded("pickle", trap) == decoded("pickle", bytes(trap)) != decoded("pickle", row)
    for other in (b'{"id":7}', b"text", b"", {b"id": b"7"}, None):
        assert not reads("pickle", other)
    [trapped] = compared(decoded("pickle", trap)[0], decoded("pickle", row)[0])
    [other] = compared(7, decoded("pickle", row)[0])
    assert trapped.what == "the value is a _pytest.outcomes._Fail and would become an object"
    assert other.what == "the value is a number and would become an object"
    assert str(other) == 'the value: 7 -> {"id":7}'


@pytest.mark.parametrize(
    ("form", "value", "nothing"),
    [
        *[("json", each, True) for each in (b"null", b"{}", b" [] ", b'""')],
        *[("json", each, False) for each in (b"0", b"false", b'{"id":null}', b"no json")],
        *[("pickle", pickle.dumps(each), True) for each in (None, {}, ())],
        ("pickle", pickle.dumps({"id": 7}), False),
        ("msgpack", b"\xc0", True),
        ("hash", {b"id": b""}, False),
    ],
)
def test_a_value_says_by_itself_that_there_is_no_row(form, value, nothing):
    assert says_nothing(form, value) is nothing


@pytest.mark.parametrize("before", [b"", b"!"], ids=["django", "flask-caching"])
def test_pickles_are_compared_field_by_field_without_being_loaded(before):
    form = "cachelib" if before else "pickle"

    def said(value):
        return decoded(form, before + pickle.dumps(value))[0]

    theirs = {"id": 7, "price": 8.9, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "tags": ("a",), "stock": 3}
    ours = {"id": 7, "price": Decimal("8.90"), "at": dt.datetime(2026, 2, 2, tzinfo=dt.UTC), "tags": ["b"]}
    assert [each.what for each in compared(said(theirs), said(ours)) if each.what] == [
        "price is a number and would become a decimal.Decimal",
        "stock would be gone",
    ]
    [_, price, *_] = compared(said(theirs), said(ours))
    assert str(price) == "price: 8.9 -> a decimal.Decimal"
    long = said(theirs | {"text": "x" * 20_000})
    assert [each.what for each in compared(long, said(ours))] == [""], "what cannot be read tells nothing"
