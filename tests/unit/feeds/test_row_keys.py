"""Which keys a changed row concerns."""

from __future__ import annotations

from uuid import UUID

import pytest

from cacheupdater.feed_ports import Changed, Watched
from cacheupdater.feeds.row_keys import Direct, Lookup, RowKeys, key_of
from cacheupdater_client.protocol.patterns import Pattern

PRODUCT = Pattern.compile("product:{id:int}")
BASKET = Pattern.compile("basket:{user:int}:{shop}")
PRODUCTS = Direct("products", "product", PRODUCT, ("id",))
STOCK = Direct("shop.stock", "product", PRODUCT, ("product_id",))
BRANDS = Lookup("brands", "product", PRODUCT, "id", 0)
BASKETS = Direct("baskets", "basket", BASKET, ("user_id", "shop"))
ROWS = RowKeys([PRODUCTS, STOCK, BRANDS, BASKETS])


def keys(*changes):
    return list(ROWS.of(changes).keys)


def test_a_row_s_columns_are_the_captures():
    assert keys(Changed("public.products", [{"id": 7}])) == [b"product:7"]
    assert keys(Changed("baskets", [{"shop": "ulm", "user_id": 3}])) == [b"basket:3:ulm"]


def test_a_row_of_another_table_names_the_key():
    assert keys(Changed("shop.stock", [{"product_id": 7}])) == [b"product:7"]


def test_a_table_with_a_schema_is_that_of_this_schema_alone():
    assert keys(Changed("public.stock", [{"product_id": 7}])) == []
    assert keys(Changed("any.products", [{"id": 7}])) == [b"product:7"]


def test_a_changed_key_concerns_both():
    assert keys(Changed("products", [{"id": 7}, {"id": 8}])) == [b"product:7", b"product:8"]


def test_each_key_comes_once():
    assert keys(*[Changed("products", [{"id": 7}, {"id": 7}])] * 2) == [b"product:7"]


def test_values_of_a_statement_come_once():
    found = ROWS.of([Changed("brands", [{"id": 1}]), Changed("brands", [{"id": 2}, {"id": 1}])])
    assert {lookup: list(values) for lookup, values in found.lookups.items()} == {BRANDS: [1, 2]}


def test_null_is_no_key_and_no_fault():
    found = ROWS.of([Changed("shop.stock", [{"product_id": None}]), Changed("brands", [{"id": None}])])
    assert (found.keys, found.lookups, found.unmapped) == ({}, {}, {})


@pytest.mark.parametrize(
    "row",
    [
        {},  # its identity does not tell the column
        {"user_id": 3},
        {"user_id": "three", "shop": "ulm"},
        {"user_id": 3, "shop": "a:b"},  # a colon parts a key
        {"user_id": 2**63, "shop": "ulm"},
    ],
)
def test_rows_that_make_no_key_are_counted(row):
    found = ROWS.of([Changed("baskets", [row])])
    assert (found.keys, found.unmapped) == ({}, {"baskets": 1})


def test_text_is_read_as_the_capture_says():
    """A feed that knows no types tells text."""
    assert key_of(PRODUCT, ["7"]) == b"product:7"
    assert key_of(PRODUCT, ["007"]) == b"product:7"
    spelled = "0f8fad5b-d9cb-469f-a165-70867728950e"
    of_uuid = Pattern.compile("p:{id:uuid}")
    assert key_of(of_uuid, [spelled.upper()]) == key_of(of_uuid, [UUID(spelled)]) == b"p:" + spelled.encode()
    assert key_of(Pattern.compile("p:{id}"), [7]) == b"p:7"


def test_a_feed_must_tell_every_column_that_a_rule_needs():
    assert ROWS.watched == [
        Watched("products", ("id",)),
        Watched("shop.stock", ("product_id",)),
        Watched("brands", ("id",)),
        Watched("baskets", ("user_id", "shop")),
    ]
    both = RowKeys([PRODUCTS, Lookup("products", "x", PRODUCT, "brand_id", 0)])
    assert both.watched == [Watched("products", ("id", "brand_id"))]


def test_the_namespaces_of_a_table_are_those_of_all_its_rules():
    assert ROWS.patterns_of("public.brands") == {"product": PRODUCT}
    assert ROWS.patterns_of("public.nothing") == {}


def test_a_row_that_makes_no_key_does_not_cost_its_neighbours_theirs():
    rows = [Changed("products", [{"id": each}]) for each in (7, "8", None, "x", 2**63, 9)]
    found = ROWS.of([*rows, Changed("products", [{}])])
    assert list(found.keys) == [b"product:7", b"product:8", b"product:9"]
    assert found.unmapped == {"products": 3}
