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


def test_protocols_are_the_frameworks(load):
    assert load({"kind": "django"}).framework.pickled == 5
    assert load({"kind": "django-redis"}).framework.pickled == 4
    assert load({"kind": "django-redis", "protocol": 5}).framework.pickled == 5


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
        ({"kind": "django"}, {"value": {"encoding": "json"}}, "the framework's to say"),
        ({"kind": "django"}, {"value": {"times": "iso"}}, "the framework's to say"),
        ({"kind": "django", "key_prefix": "x" * 190}, {"key": "y" * 900 + ":{id:int}"}, "leaves no room"),
    ],
)
def test_mistake_is_refused_with_its_line(load, framework, more, words):
    with pytest.raises(ConfigErrors) as caught:
        load(framework, **more)
    assert words in str(caught.value)
    assert "c.yaml:" in str(caught.value)
