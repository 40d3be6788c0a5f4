"""What the updater writes for frameworks' caches: the bytes that their own serializers make, and the same ones for equal rows."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.config.models import FrameworkSection, ValueSection
from cacheupdater.core import kinds
from cacheupdater.service import components
from cacheupdater_client.protocol import dogpile
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


_VALUES = [row(), rows(1, 2), "text", True, 1.5, None, [], {}]
_INTEGERS = [0, -5, 2**70]
VALUES = pytest.mark.parametrize("value", _VALUES, ids=repr)
INTEGERS = pytest.mark.parametrize("value", _INTEGERS)
ALL_VALUES = pytest.mark.parametrize("value", [*_VALUES, *_INTEGERS], ids=repr)


def made_for(framework, **value):
    """The updater's encoder of a namespace with this framework."""
    text = {name: str(each) for name, each in framework.items()}  # as a file says it
    said = {"framework": FrameworkSection(**text), "value": ValueSection(**value)}
    return components._encoder(SimpleNamespace(**said))


@pytest.fixture
def region(redis_url):
    """A region of dogpile over a real Redis."""
    from dogpile.cache import make_region

    made = []

    def configured(**serializers):
        region = make_region(**serializers)
        made.append(region.configure("dogpile.cache.redis", arguments={"url": redis_url}))
        return made[-1]

    yield configured
    for each in made:
        each.backend.writer_client.close()


@VALUES
def test_bytes_are_those_of_django(value):
    from django.core.cache.backends.redis import RedisSerializer

    assert pickler(5)(value) == RedisSerializer().dumps(value)


@ALL_VALUES
def test_bytes_are_those_of_cachelib(value):
    from cachelib.serializers import RedisSerializer

    assert made_for({"kind": "flask-caching"})(value) == RedisSerializer().dumps(value)


@ALL_VALUES
def test_bytes_but_the_date_are_those_of_dogpile(value, region, plain):
    region().set("k", value)
    metadata, theirs = plain.get("k").split(b"|", 1)
    undated, ours = made_for({"kind": "dogpile"})(value).split(b"|", 1)
    assert ours == theirs
    assert json.loads(undated) | {"ct": 0} == json.loads(metadata) | {"ct": 0}
    plain.set("k", made_for({"kind": "dogpile"})(value))
    assert region().get("k") == value


@pytest.mark.parametrize(
    "value", [{"id": 7, "name": "Stuhl \u00fc", "tags": [1.5, None, True]}, [1, "a"], "t", 5]
)
def test_bytes_of_json_are_those_of_json_dumps(value, region, plain):
    written = made_for({"kind": "dogpile", "serializer": "json"})(value)
    as_json = region(serializer=lambda each: json.dumps(each).encode(), deserializer=json.loads)
    as_json.set("k", value)
    assert dogpile.payload_of(written) == dogpile.payload_of(plain.get("k"))
    plain.set("k", written)
    assert as_json.get("k") == value


@pytest.mark.parametrize("name", ["uuid", "UUID", "int", "decimal", "Decimal", "datetime", "date", "time"])
def test_column_may_be_called_like_a_type(name):
    from django.core.cache.backends.redis import RedisSerializer

    interned = {sys.intern(name): 5, **row()}  # as the attribute of a model
    loaded = {"".join([name[:1], name[1:]]): 5, **row()}  # as a driver reads it from the wire
    assert pickler(5)(loaded) == RedisSerializer().dumps(interned)


@INTEGERS
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
    for encode in (pickler(5), made_for({"kind": "dogpile"}), made_for({"kind": "flask-caching"})):
        with pytest.raises(Inexpressible, match="more than the 1048576"):
            encode("x" * 2**20)
    with pytest.raises(Inexpressible, match="more than the 1048576"):
        made_for({"kind": "dogpile"})("x" * (2**20 - 20))


# --- cashews and aiocache -----------------------------------------------------------------------------


def of_cashews(value, **settings):
    """What cashews hands to Redis."""
    from cashews.picklers import PicklerType
    from cashews.serialize import get_serializer

    kind = PicklerType(settings.get("serializer", "default").replace("pickle", "default"))
    made = asyncio.run(get_serializer(pickle_type=kind).encode(None, "key", value, None))
    return str(made).encode() if isinstance(made, int) else made  # as redis-py sends an integer


def of_aiocache(value, serializer="json", **settings):
    """What aiocache hands to Redis."""
    from aiocache import serializers

    kinds = {
        "json": serializers.JsonSerializer,
        "pickle": serializers.PickleSerializer,
        "string": serializers.StringSerializer,
        "msgpack": serializers.MsgPackSerializer,
    }
    made = kinds[serializer](**settings).dumps(value)
    return made.encode() if isinstance(made, str) else made


FRAMEWORKS = {"cashews": of_cashews, "aiocache": of_aiocache}
BOTH = [
    {"kind": "cashews"},
    {"kind": "cashews", "serializer": "json"},
    {"kind": "aiocache"},
    {"kind": "aiocache", "serializer": "pickle"},
    {"kind": "aiocache", "serializer": "pickle", "protocol": 5},
    {"kind": "aiocache", "serializer": "msgpack"},
]
PLAIN = {
    "id": 7,
    "name": "Stühle / «é»",
    "price": 8.5,
    "large": 1e16,
    "note": None,
    "ready": True,
    "tags": ["a", ""],
}


@pytest.mark.parametrize("framework", BOTH, ids=str)
@pytest.mark.parametrize(
    "value", [PLAIN, [PLAIN, PLAIN | {"id": 8}], "text", 7, 0, True, 1.5, None, [], {}], ids=str
)
def test_bytes_are_those_of_cashews_and_aiocache(framework, value):
    fresh = json.loads(json.dumps(value))
    theirs = FRAMEWORKS[framework["kind"]](
        fresh, **{name: said for name, said in framework.items() if name != "kind"}
    )
    assert made_for(framework)(value) == theirs


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text("abc"), inner, max_size=20),
    max_leaves=30,
))  # fmt: skip
def test_any_json_and_msgpack_is_as_the_frameworks_spell_it(value):
    assert made_for({"kind": "aiocache"})(value) == of_aiocache(value)
    assert made_for({"kind": "aiocache", "serializer": "msgpack"})(value) == of_aiocache(value, "msgpack")


def test_decimals_and_times_are_spelled_as_the_value_says():
    row = {"price": Decimal("8.90"), "at": datetime(2026, 1, 1, tzinfo=UTC)}
    for kind in FRAMEWORKS:
        made = made_for({"kind": kind, "serializer": "json"}, numbers="plain", times="iso")(row)
        assert made == json.dumps({"price": 8.9, "at": "2026-01-01T00:00:00+00:00"}).encode()


@pytest.mark.parametrize(
    "value", ["Stühle", 7, True, 1e16, Decimal("8.90"), UUID(int=5), datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_string_is_the_text_of_the_value_or_of_its_only_column(value):
    encode = made_for({"kind": "aiocache", "serializer": "string"})
    assert encode(value) == encode({"column": value}) == of_aiocache(value, "string")


@pytest.mark.parametrize("value", [None, {"a": 1, "b": 2}, [1], b"x", {"a": None}, {"a": {}}])
def test_string_that_nobody_reads_back_is_refused(value):
    with pytest.raises(Inexpressible, match="takes one plain value"):
        made_for({"kind": "aiocache", "serializer": "string"})(value)


@pytest.mark.parametrize("framework", BOTH, ids=str)
def test_what_the_framework_writes_is_no_foreign_value(framework):
    section = FrameworkSection(kind=framework["kind"], serializer=framework.get("serializer"))
    form = components.form_in(SimpleNamespace(framework=section))
    theirs = FRAMEWORKS[framework["kind"]](
        PLAIN, **{name: said for name, said in framework.items() if name != "kind"}
    )
    assert kinds.reads(form, theirs)
    assert kinds.reads(form, made_for(framework)(PLAIN))


@pytest.mark.parametrize(
    "settings", [{"secret": "s"}, {"compress_type": "gzip"}, {"compress_type": "zlib"}], ids=str
)
@pytest.mark.parametrize(("pickle_type", "form"), [("default", "pickle"), ("json", "json")])
def test_what_cashews_signs_or_compresses_is_foreign_and_stays(settings, pickle_type, form):
    from cashews.picklers import PicklerType
    from cashews.serialize import get_serializer

    serializer = get_serializer(pickle_type=PicklerType(pickle_type), **settings)
    assert not kinds.reads(form, asyncio.run(serializer.encode(None, "key", PLAIN, None)))


def test_bytes_that_cashews_would_take_for_nothing_are_refused():
    with pytest.raises(Inexpressible, match="list or a dict"):
        made_for({"kind": "cashews"})(b"image")
    assert pickle.loads(made_for({"kind": "cashews"})({"image": b"image"})) == {"image": b"image"}


@pytest.mark.parametrize("serializer", ["json", "string"])
def test_too_large_a_text_is_refused(serializer):
    with pytest.raises(Inexpressible, match="more than the 1048576"):
        made_for({"kind": "aiocache", "serializer": serializer})("é" * 2**19 + "x" * 2**10)
