"""A wrong declaration is refused where it stands: the error names the file, the line and the loader, and says what to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest

import cacheupdater_client.asyncio
from cacheupdater_client import Cache, Redis
from cacheupdater_client.asyncio import Cache as AsyncCache
from cacheupdater_client.buffer import UNIT_BYTES
from cacheupdater_client.cache.declared import Keywords, Settings, declare
from cacheupdater_client.cache.errors import Misdeclared
from cacheupdater_client.cache.keys import captures_of_items
from cacheupdater_client.protocol.errors import Inexpressible
from cacheupdater_client.protocol.patterns import Pattern


@pytest.fixture
def cache():
    return Cache(Redis(emit="none"))


@pytest.fixture
def async_cache():
    return AsyncCache(cacheupdater_client.asyncio.Redis(emit="none"))


def good(id: int) -> dict: ...


def many(ids: list[int]) -> dict[int, str]: ...


def unannotated(id) -> dict: ...


def of_text(id: str) -> dict: ...


def of_another_name(number: int) -> dict: ...


def of_two(id: int, shop: str) -> dict: ...


def of_nothing() -> dict: ...


async def awaited(id: int) -> dict: ...


def of_an_unknown_name(id: Missing) -> dict: ...  # noqa: F821  the mistake


def of_an_unreadable_type(id: int) -> Exception: ...


def of_a_hidden_one(id: int) -> dict[str, list[Exception | None]]: ...


def one_of_many(ids: int) -> dict: ...


def texts(ids: list[str]) -> dict: ...


def two_lists(ids: list[int], others: list[int]) -> dict: ...


def said(error, loader):
    """The error's text behind the place of the loader."""
    line = inspect.getsourcelines(loader)[1]
    place = f"{__file__}:{line}: {loader.__qualname__}: "
    assert str(error.value).startswith(place)
    return str(error.value).removeprefix(place)


@pytest.mark.parametrize(
    ("loader", "pattern", "settings", "text"),
    [
        (unannotated, "p:{id:int}", {}, "annotate id as int"),
        (of_text, "p:{id:int}", {}, "annotate id as int"),
        (good, "p:{id}", {}, "annotate id as str"),
        (good, "p:{id:uuid}", {}, "annotate id as UUID"),
        (of_another_name, "p:{id:int}", {}, "captures id; the loader takes number"),
        (of_two, "p:{id:int}", {}, "captures id; the loader takes id, shop"),
        (of_nothing, "p:{id:int}", {}, "captures id; the loader takes nothing"),
        (of_an_unknown_name, "p:{id:int}", {}, "cannot be found"),
        (of_an_unreadable_type, "p:{id:int}", {}, "a result of the type Exception cannot be read back"),
        (of_a_hidden_one, "p:{id:int}", {}, "a result of the type Exception cannot be read back"),
        (awaited, "p:{id:int}", {}, "must be a plain function; cacheupdater_client.asyncio.Cache takes"),
        (good, "p:{id:float}", {}, "unknown type 'float'"),
        (good, "{id:int}", {}, "must begin with literal text"),
        (good, "p:7", {}, "no capture"),
        (good, "p:{id:int}", {"ttl": "soon"}, "ttl must be a duration such as"),
        (good, "p:{id:int}", {"ttl": 60}, "ttl must be a duration such as"),
        (good, "p:{id:int}", {"ttl": "0s"}, "from 0.001s to"),
        (good, "p:{id:int}", {"ttl": "366d"}, "to 3.1536e+07s"),
        (good, "p:{id:int}", {"timeout": "50ms"}, "timeout must be a duration such as"),
        (good, "p:{id:int}", {"codec": bytes}, "codec must be a pair of functions"),
        (good, "p:{id:int}", {"codec": (repr, repr), "encoding": "string"}, "leave out encoding, numbers"),
        (good, "p:{id:int}", {"timeout": "31s"}, "from 0.1s to 30s; got '31s'"),
        (good, "p:{id:int}", {"missing": "2m"}, "missing must be a duration such as"),
        (
            good,
            "p:{id:int}",
            {"encoding": "hash"},
            "encoding must be one of json, msgpack, string, raw; got 'hash'",
        ),
        (good, "p:{id:int}", {"encoding": "pickle"}, "encoding must be one of"),
        (good, "p:{id:int}", {"numbers": "float"}, "numbers must be one of text, plain"),
        (good, "p:{id:int}", {"times": "unix"}, "times must be one of rfc3339, iso, str"),
        (good, "p:{id:int}", {"encoding": "raw"}, "annotate the loader's result as bytes"),
    ],
)
def test_a_wrong_declaration_of_one_key_is_refused_with_file_and_line(cache, loader, pattern, settings, text):
    with pytest.raises(Misdeclared) as error:
        cache.value(pattern, **{"ttl": "1m", **settings})(loader)
    assert text in said(error, loader)


@pytest.mark.parametrize(
    ("loader", "pattern", "text"),
    [
        (one_of_many, "p:{id:int}", "annotate ids as list[int]"),
        (texts, "p:{id:int}", "annotate ids as list[int]"),
        (many, "p:{id:int}:{shop}", "annotate ids as list[tuple[int, str]]"),
        (two_lists, "p:{id:int}", "takes one list of them; this one takes ids, others"),
        (of_nothing, "p:{id:int}", "takes one list of them; this one takes nothing"),
        (awaited, "p:{id:int}", "must be a plain function"),
    ],
)
def test_a_wrong_declaration_of_many_keys_is_refused_with_file_and_line(cache, loader, pattern, text):
    with pytest.raises(Misdeclared) as error:
        cache.values(pattern, ttl="1m")(loader)
    assert text in said(error, loader)


def test_a_function_is_refused_where_a_coroutine_is_needed(async_cache):
    with pytest.raises(Misdeclared) as error:
        async_cache.value("p:{id:int}", ttl="1m")(good)
    assert "must be an `async def`" in said(error, good)
    with pytest.raises(Misdeclared):
        async_cache.values("p:{id:int}", ttl="1m")(many)


@pytest.mark.parametrize("pattern", ["p:{id:int}", "p:{name}", "p:1{id:int}"])
def test_a_pattern_whose_keys_are_taken_is_refused_with_the_name_of_the_other(cache, pattern):
    cache.value("p:{id:int}", ttl="1m")(good)

    def other(id: int) -> dict: ...

    def named(name: str) -> dict: ...

    loader = named if "name" in pattern else other
    with pytest.raises(Misdeclared) as error:
        cache.value(pattern, ttl="1m")(loader)
    assert f"the pattern {pattern!r} takes keys that good has already, by 'p:{{id:int}}'" in said(
        error, loader
    )


def test_two_values_of_one_name_are_refused_for_stats_would_mix_them(cache):
    cache.value("p:{id:int}", ttl="1m")(good)
    with pytest.raises(Misdeclared, match="a value of the name good is declared already"):
        cache.value("q:{id:int}", ttl="1m")(good)


def test_what_is_no_function_and_what_is_no_setting_is_refused(cache):
    with pytest.raises(TypeError, match="a loader must be a function, got int"):
        cache.value("p:{id:int}", ttl="1m")(7)
    with pytest.raises(TypeError, match="tttl"):
        cache.value("p:{id:int}", tttl="1m")(good)
    with pytest.raises(TypeError, match="ttl"):
        cache.value("p:{id:int}")(good)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"refresh_after": "soon"}, "refresh_after must be a duration"),
        ({"refresh_after": "59s"}, "refresh_after must be a duration .* from 0.1s to 48s"),
        ({"fail_safe": "8d"}, "fail_safe must be a duration"),
        ({"soft_timeout": "1s"}, "soft_timeout needs refresh_after or fail_safe"),
        ({"soft_timeout": "11s", "fail_safe": "1h"}, "soft_timeout must be a duration .* to 10s"),
    ],
)
def test_ages_that_make_no_sense_are_refused(cache, settings, why):
    with pytest.raises(Misdeclared, match=why):
        cache.value("p:{id:int}", ttl="60s", **settings)(good)


# --- where an updater fills ---------------------------------------------------------------------------


@pytest.fixture(params=[Cache, AsyncCache])
def filled_by_an_updater(request):
    module = cacheupdater_client if request.param is Cache else cacheupdater_client.asyncio
    loader = good if request.param is Cache else awaited
    return module.Cache(module.Redis(emit="none"), fill="updater"), loader


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"timeout": "10s"}, 'timeout concerns loads by the application, and the cache has fill="updater"'),
        ({"refresh_after": "10s"}, "refresh_after concerns loads by the application"),
        ({"soft_timeout": "1s"}, "soft_timeout concerns loads by the application"),
        ({"fail_safe": "1h"}, "fail_safe concerns loads by the application"),
        ({"missing": "4s"}, "missing must be a duration such as .* from 5s to 60s"),
    ],
)
def test_settings_of_loads_are_refused_where_an_updater_fills(filled_by_an_updater, settings, why):
    cache, loader = filled_by_an_updater
    with pytest.raises(Misdeclared, match=why) as error:
        cache.value("p:{id:int}", ttl="60s", **settings)(loader)
    said(error, loader)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fill": "nobody"}, "fill must be one of loader, updater; got 'nobody'"),
        ({"wait": "1s"}, 'wait says how long a reader waits for an updater, so it needs fill="updater"'),
        (
            {"fill": "updater", "wait": "9ms"},
            "wait must be a duration such as .* from 0.01s to 30s; got '9ms'",
        ),
        ({"fill": "updater", "wait": "31s"}, "from 0.01s to 30s; got '31s'"),
        ({"fill": "updater", "wait": 1}, "wait must be a duration"),
    ],
)
def test_a_cache_that_says_wrongly_who_fills_is_refused_with_file_and_line(options, why):
    with pytest.raises(Misdeclared, match=why) as error:
        Cache(Redis(emit="none"), **options)
    line = inspect.currentframe().f_lineno - 1
    assert str(error.value).startswith(f"{__file__}:{line}: Cache: ")


def test_the_keywords_are_the_settings():
    """mypy reads the one, and the other is what is kept."""
    assert Keywords.__annotations__.keys() == set(Settings.__dataclass_fields__)


# --- what is accepted ---------------------------------------------------------------------------------


def anything(id: int): ...


def loosely(id: int) -> Any: ...


def perhaps(id: int) -> dict[str, int | None] | None: ...


class Node(msgspec.Struct):
    """A type that holds itself."""

    children: list[Node]


def recursive(id: int) -> Node: ...


@pytest.mark.parametrize("loader", [anything, loosely, perhaps, recursive])
def test_a_result_may_be_of_any_type_that_can_be_read_back(loader):
    declared = declare(loader, "p:{id:int}", Settings(ttl="1m"), batch=False, waits=False)
    assert declared.codec.decode(b"null" if loader is not recursive else b'{"children":[]}') in (
        None,
        Node([]),
    )


def test_a_decorated_loader_is_judged_by_what_it_wraps(cache):
    @functools.wraps(good)
    def wrapper(*args, **named):
        return good(*args, **named)

    assert cache.value("p:{id:int}", ttl="1m")(wrapper).declared.name == "good"


@pytest.mark.parametrize("keys", [list[int], Sequence[int]])
@pytest.mark.parametrize("result", [dict[int, str], Mapping[int, str]])
def test_a_loader_of_many_may_take_any_sequence_and_return_any_mapping(keys, result):
    def loader(ids): ...

    loader.__annotations__ = {"ids": keys, "return": result}
    declared = declare(loader, "p:{id:int}", Settings(ttl="1m"), batch=True, waits=False)
    with pytest.raises(ValueError, match="Expected `str`"):
        declared.codec.decode(b"7")


# --- keys ---------------------------------------------------------------------------------------------


def two(shop: str, id: int) -> dict: ...


@pytest.fixture
def pair():
    return declare(two, "p:{id:int}:100%:{shop}", Settings(ttl="1m"), batch=False, waits=False)


def test_arguments_are_taken_in_the_loaders_order_and_by_name(pair):
    assert pair.captures_of(("books", 7), {}) == (7, "books")
    assert pair.captures_of((), {"id": 7, "shop": "books"}) == (7, "books")
    assert pair.captures_of(("books",), {"id": 7}) == (7, "books")
    assert pair.keys.of((7, "books")) == b"p:7:100%:books"
    assert pair.arguments((7, "books")) == ["books", 7]


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1, 2), {"id": 3}), ((1,), {"name": 3}), ((1,), {"shop": 2})],
)
def test_wrong_arguments_raise_what_python_raises(pair, args, named):
    with pytest.raises(TypeError, match=r"two\(\) takes shop, id"):
        pair.captures_of(args, named)


@pytest.mark.parametrize(
    "captures",
    [
        ("7", "books"),
        (7, "a:b"),
        (7, "a b"),
        (7, "é"),
        (7, ""),
        (True, "books"),
        (7, 8),
        (2**63, "x"),
        (7, "x" * 2000),
    ],
)
def test_what_no_key_can_say_is_refused(pair, captures):
    with pytest.raises(Inexpressible, match="cannot stand in a key"):
        pair.keys.of(captures)


@pytest.mark.parametrize(
    ("pattern", "items"),
    [
        ("p:{id:int}", [7, -1, 0, 2**63 - 1, -(2**63)]),
        ("p:{id:int}", [7, (8,)]),
        ("p:{id}", ["a", "x1", "~!"]),
        ("p:{id:uuid}", [UUID(int=7), UUID(int=8)]),
        ("p:{id:int}:{shop}", [(7, "a"), (8, "b")]),
        ("%p%%:{id:int}%", [7]),
        ("p:{id}", ["x" * 700, "y" * 700]),
    ],
)
def test_keys_of_many_are_the_keys_of_each(pattern, items):
    declared = declare(of_many(pattern), pattern, Settings(ttl="1m"), batch=True, waits=False)
    captures = captures_of_items(items)
    assert declared.keys.of_items(items) == list(map(declared.keys.of, captures))
    assert [declared.pattern.parse(key) for key in declared.keys.of_items(items)] == captures


@pytest.mark.parametrize(
    ("pattern", "item"),
    [
        ("p:{id:int}", 2**63),
        ("p:{id:int}", True),
        ("p:{id:int}", "7"),
        ("p:{id}", "a:b"),
        ("p:{id}", "a b"),
        ("p:{id}", "a\nb"),
        ("p:{id}", ""),
        ("p:{id}", "é"),
        ("p:{id}", 7),
        ("p:{id}", "x" * 2000),
        ("p:{id:uuid}", str(UUID(int=7))),
        ("p:{id:int}:{shop}", 7),
    ],
)
def test_among_many_what_no_key_can_say_is_refused(pattern, item):
    declared = declare(of_many(pattern), pattern, Settings(ttl="1m"), batch=True, waits=False)
    with pytest.raises(Inexpressible):
        declared.keys.of_items([item])
    good_one = {"p:{id:int}": 7, "p:{id}": "a", "p:{id:uuid}": UUID(int=7), "p:{id:int}:{shop}": (7, "a")}[
        pattern
    ]
    with pytest.raises(Inexpressible):
        declared.keys.of_items([good_one, item])


@pytest.mark.parametrize(
    ("pattern", "short"),
    [
        ("p:{id:int}", True),
        ("p:{id:uuid}", True),
        ("p:{id}", False),
        ("p:{id:int}:{other:int}", False),
        (f"{'p' * 140}{{id:int}}", True),
        (f"{'p' * 141}{{id:int}}", False),
    ],
)
def test_keys_are_short_where_no_capture_can_make_a_longer_one(pattern, short):
    declared = declare(of_many(pattern), pattern, Settings(ttl="1m"), batch=True, waits=False)
    assert declared.keys.are_short is short
    if short:
        longest = {int: -(2**63), UUID: UUID(int=7)}[declared.pattern.types[0]]
        assert len(declared.keys.of((longest,))) <= UNIT_BYTES


def of_many(pattern):
    def loader(items): ...

    kinds = Pattern.compile(pattern).types
    loader.__annotations__ = {"items": list[kinds[0] if len(kinds) == 1 else tuple[kinds]], "return": dict}
    return loader


def test_a_key_says_what_the_pattern_reads():
    def of_uuid(id: UUID) -> dict: ...

    of_uuid.__annotations__["id"] = UUID
    declared = declare(of_uuid, "p:{id:uuid}", Settings(ttl="1m"), batch=False, waits=False)
    key = declared.keys.of((UUID(int=7),))
    assert declared.pattern.parse(key) == (UUID(int=7),)


def test_a_codec_of_the_application_fails_as_an_encoding_does():
    def encode(value):
        return value["bytes"]

    def decode(spelled):
        raise LookupError

    codec = declare(
        good, "p:{id:int}", Settings(ttl="1s", codec=(encode, decode)), batch=False, waits=False
    ).codec

    assert codec.encode({"bytes": b"x"}) == b"x"
    with pytest.raises(Inexpressible, match="the codec raised KeyError for a value of type dict"):
        codec.encode({})
    with pytest.raises(Inexpressible, match="must return at most"):
        codec.encode({"bytes": "text"})
    with pytest.raises(ValueError, match="the codec raised LookupError"):
        codec.decode(b"x")
