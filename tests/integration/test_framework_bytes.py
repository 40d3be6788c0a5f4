"""What the updater writes for Django's caches: the bytes that their own serializers make, and the same ones for equal rows."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater_client.protocol.errors import Inexpressible
from cacheupdater_client.protocol.pickles import pickler


def row():
    """As a driver makes it: no value is an object that another one is, too."""
    return {
        **json.loads('{"id": 7, "name": "chair", "note": null, "ready": true, "tags": ["a", "bc", ""]}'),
        "price": Decimal("8.90"),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "uuid": UUID(int=5),
        "blob": bytes([0, 255]),
    }


def rows(*numbers):
    """As `QuerySet.values()` makes them: they share the names of their columns."""
    names = list(row())
    return [dict(zip(names, row().values(), strict=True)) for _ in numbers]


PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("value", [row(), rows(1, 2), "text", True, 1.5, None, [], {}], ids=repr)
def test_bytes_are_those_of_django(value):
    from django.core.cache.backends.redis import RedisSerializer

    assert pickler(5)(value) == RedisSerializer().dumps(value)


@pytest.mark.parametrize("name", ["uuid", "UUID", "int", "decimal", "Decimal", "datetime", "date", "time"])
def test_column_may_be_called_like_a_type(name):
    from django.core.cache.backends.redis import RedisSerializer

    interned = {sys.intern(name): 5, **row()}  # as the attribute of a model
    loaded = {"".join([name[:1], name[1:]]): 5, **row()}  # as a driver reads it from the wire
    assert pickler(5)(loaded) == RedisSerializer().dumps(interned)


@pytest.mark.parametrize("value", [0, -5, 2**70])
def test_integer_stays_text_for_incr(value):
    from django.core.cache.backends.redis import RedisSerializer

    assert RedisSerializer().loads(pickler(5)(value)) == value
    assert pickler(5)(value) == str(value).encode()


@given(PARTS)
def test_reader_gets_an_equal_value(value):
    made = pickler(4)(value)
    assert (int(made) if type(value) is int else pickle.loads(made)) == value


def test_equal_rows_are_equal_bytes_whatever_they_share():
    shared = "a long text"
    apart = json.loads(f'{{"one": "{shared}", "two": "{shared}"}}')
    assert pickle.dumps({"one": shared, "two": shared}) != pickle.dumps(apart)
    assert pickler(5)({"one": shared, "two": shared}) == pickler(5)(apart)


def test_drivers_types_become_pythons_own():
    from asyncpg.pgproto.pgproto import UUID as DRIVERS

    made = pickler(5)({"id": DRIVERS(str(UUID(int=5)))})
    assert b"asyncpg" not in made
    assert pickle.loads(made) == {"id": UUID(int=5)}


def test_what_only_a_driver_knows_is_refused_with_its_column():
    from asyncpg import Range

    with pytest.raises(Inexpressible, match="column 'during', of type Range"):
        pickler(5)({"id": 7, "during": Range(1, 2)})


def test_what_no_pickle_holds_is_refused_with_its_column():
    with pytest.raises(Inexpressible, match="column 'made', of type function"):
        pickler(5)({"id": 7, "made": lambda: None})


def test_too_large_a_value_is_refused():
    with pytest.raises(Inexpressible, match="more than the 1048576"):
        pickler(5)("x" * 2**20)
