"""`framework:` of a namespace: where its keys are, how its values are spelled, and what may not stand beside it."""

from __future__ import annotations

import json

import pytest

from cacheupdater.config import ConfigErrors, load_config


@pytest.fixture
def load(tmp_path):
    def namespace(framework, **more):
        said = {
            "version": 1,
            "cache": {"url": "redis://127.0.0.1"},
            "sources": {"main": {"url": "sqlite+aiosqlite:///shop.db", "budget": "500/s"}},
            "defaults": {"value": {"encoding": "hash", "times": "iso", "foreign": "replace"}},
            "namespaces": {
                "product": {
                    "key": "product:{id:int}",
                    "load": {"source": "main", "table": "products"},
                    "framework": framework,
                    **more,
                }
            },
        }
        file = tmp_path / "c.yaml"
        file.write_text(json.dumps(said, indent=1))
        return load_config(file, {}).namespaces["product"]

    return namespace


@pytest.mark.parametrize("prefix", [None, "", "shop_", "{tag}", "a:b"])
def test_keys_are_those_of_flask_caching(load, prefix):
    from flask import Flask
    from flask_caching import Cache

    stock = {"CACHE_TYPE": "RedisCache"} | ({} if prefix is None else {"CACHE_KEY_PREFIX": prefix})
    cache = Cache(Flask("shop"), config=stock)
    said = {"kind": "flask-caching"} | ({} if prefix is None else {"key_prefix": prefix})
    key = f"{cache.cache._get_prefix()}product:7".encode()
    assert load(said).pattern.parse(key) == (7,)


def test_keys_of_dogpile_are_what_the_region_sends(load):
    assert load({"kind": "dogpile"}).pattern.parse(b"product:7") == (7,)
    assert load({"kind": "dogpile", "key_prefix": "shop:"}).pattern.parse(b"shop:product:7") == (7,)


@pytest.mark.parametrize("kind", ["django", "django-redis"])
@pytest.mark.parametrize("prefix", ["", "shop", "{tag}", "a:b"])
def test_keys_are_those_of_django(load, kind, prefix):
    from django.core.cache.backends.base import default_key_func

    one = load({"kind": kind, "key_prefix": prefix, "version": 3})
    assert one.pattern.parse(default_key_func("product:7", prefix, 3).encode()) == (7,)
    assert one.pattern.parse(b"product:7") is None


def test_defaults_are_djangos(load):
    from django.core.cache.backends.locmem import LocMemCache

    one = load({"kind": "django"})
    assert one.pattern.parse(LocMemCache("", {}).make_key("product:7").encode()) == (7,)


@pytest.mark.parametrize("prefix", ["", "shop", "a:b"])
def test_keys_are_those_of_cashews(load, prefix):
    from cashews.key import get_cache_key, get_cache_key_template

    async def product(number): ...

    template = get_cache_key_template(product, key="product:{number}", prefix=prefix)
    one = load({"kind": "cashews", "prefix": prefix})
    assert one.pattern.parse(get_cache_key(product, template, (7,)).encode()) == (7,)
    assert (one.pattern.parse(b"product:7") is None) == bool(prefix)


@pytest.mark.parametrize("namespace", ["", "shop", "{tag}", "a:b"])
def test_keys_are_those_of_aiocache(load, namespace):
    from aiocache import RedisCache

    one = load({"kind": "aiocache", "namespace": namespace})
    assert one.pattern.parse(RedisCache(namespace=namespace).build_key("product:7", namespace).encode()) == (
        7,
    )
    assert (one.pattern.parse(b"product:7") is None) == bool(namespace)


def test_serializers_are_the_frameworks(load):
    from aiocache import RedisCache, serializers

    assert isinstance(RedisCache().serializer, serializers.JsonSerializer)
    assert load({"kind": "aiocache"}).encoding == "json"
    assert load({"kind": "cashews"}).encoding == "pickle"
    assert load({"kind": "cashews", "serializer": "json"}).encoding == "json"
    assert load({"kind": "django"}).encoding == "pickle"


@pytest.mark.parametrize("framework", [{"kind": "aiocache"}, {"kind": "aiocache", "serializer": "msgpack"}])
def test_numbers_and_times_of_json_and_msgpack_are_the_applications_to_spell(load, framework):
    one = load(framework, value={"numbers": "plain", "times": "str"})
    assert (one.value.numbers, one.value.times) == ("plain", "str")
    assert load(framework).value.times == "rfc3339", "those of the defaults are for other namespaces"


def test_protocols_are_the_frameworks(load):
    assert load({"kind": "cashews"}).framework.pickled == 5
    assert load({"kind": "aiocache", "serializer": "pickle"}).framework.pickled == 4
    assert load({"kind": "django"}).framework.pickled == 5
    assert load({"kind": "django-redis"}).framework.pickled == 4
    assert load({"kind": "django-redis", "protocol": 5}).framework.pickled == 5
    assert load({"kind": "flask-caching"}).framework.pickled == 5
    assert load({"kind": "dogpile"}).framework.pickled == 4


def test_json_of_dogpile_leaves_numbers_and_times_to_the_file(load):
    one = load({"kind": "dogpile", "serializer": "json"}, value={"numbers": "plain", "times": "str"})
    assert (one.encoding, one.value.numbers, one.value.times) == ("dogpile-json", "plain", "str")


def test_spelling_of_the_defaults_is_for_other_namespaces(load):
    one = load({"kind": "django"}, value={"columns": ["id", "name"]})
    assert (one.encoding, one.value.encoding, one.value.times) == ("pickle", "json", "rfc3339")
    assert one.value.foreign == "replace"
    assert one.value.columns == ("id", "name")


@pytest.mark.parametrize(
    ("framework", "more", "words"),
    [
        ({"kind": "rails"}, {}, "namespaces.product.framework.kind"),
        ({}, {}, "namespaces.product.framework"),
        ({"kind": "django", "key_prefix": "a b"}, {}, "key_prefix"),
        ({"kind": "django", "version": -1}, {}, "version"),
        ({"kind": "django", "protocol": 1}, {}, "protocol"),
        ({"kind": "django", "codec": "json"}, {}, "codec"),
        ({"kind": "django", "serializer": "json"}, {}, "is no setting of django"),
        ({"kind": "flask-caching", "version": 2}, {}, "is no setting of flask-caching"),
        ({"kind": "dogpile", "version": 2}, {}, "is no setting of dogpile"),
        ({"kind": "dogpile", "serializer": "json", "protocol": 4}, {}, "is for pickles"),
        ({"kind": "dogpile", "serializer": "json"}, {"value": {"encoding": "json"}}, "framework's to say"),
        ({"kind": "dogpile"}, {"value": {"numbers": "plain"}}, "framework's to say"),
        ({"kind": "django"}, {"value": {"encoding": "json"}}, "the framework's to say"),
        ({"kind": "django"}, {"value": {"times": "iso"}}, "the framework's to say"),
        (
            {"kind": "cashews", "key_prefix": "x"},
            {},
            "is no setting of cashews, which has prefix, serializer",
        ),
        ({"kind": "cashews", "secret": "s"}, {}, "framework.secret: unknown key"),
        ({"kind": "cashews", "serializer": "msgpack"}, {}, "serializer: is pickle or json for cashews"),
        ({"kind": "aiocache", "prefix": "x"}, {}, "is no setting of aiocache"),
        ({"kind": "aiocache", "serializer": "dill"}, {}, "serializer"),
        ({"kind": "aiocache", "protocol": 4}, {}, "protocol: is for pickles"),
        ({"kind": "aiocache"}, {"value": {"encoding": "json"}}, "the framework's to say"),
        ({"kind": "aiocache", "serializer": "pickle"}, {"value": {"times": "iso"}}, "the framework's to say"),
        ({"kind": "aiocache", "serializer": "string"}, {}, "string holds a single column"),
        (
            {"kind": "aiocache", "serializer": "string"},
            {"load": {"source": "main", "sql": "SELECT 1 WHERE :id", "rows": "many"}},
            "string cannot hold the list",
        ),
        ({"kind": "django", "key_prefix": "x" * 190}, {"key": "y" * 900 + ":{id:int}"}, "leaves no room"),
    ],
)
def test_mistake_is_refused_with_its_line(load, framework, more, words):
    with pytest.raises(ConfigErrors) as caught:
        load(framework, **more)
    assert words in str(caught.value)
    assert "c.yaml:" in str(caught.value)
