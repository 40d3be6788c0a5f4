"""A key of no namespace leads to the patterns for which it was perhaps meant."""

import pytest

from cacheupdater.config.models import NamespaceSection
from cacheupdater.service.whose import declared

LOAD = {"source": "shop", "table": "products"}
PATTERNS = ("products:{id:int}", "product_list:{page:int}", "myshop:product:{id:int}", "basket:{user}")


def sections(*patterns):
    return {
        f"n{at}": NamespaceSection(key=each, load=LOAD).called(f"n{at}") for at, each in enumerate(patterns)
    }


@pytest.mark.parametrize(
    ("key", "patterns", "alike"),
    [
        (b"product:7", PATTERNS[:1], ["products:{id:int}"]),
        (b"product:7", PATTERNS, ["products:{id:int}", "product_list:{page:int}"]),
        (b"product:7", PATTERNS[2:], ["myshop:product:{id:int}"]),
        (b"baskets:ann", PATTERNS, ["basket:{user}"]),
        (b"session:0f3c", PATTERNS, []),
    ],
)
def test_a_key_that_begins_like_no_pattern_is_told_those_that_look_most_alike(key, patterns, alike):
    assert declared(sections(*patterns), key).plain()["alike"] == alike


def test_a_key_that_begins_like_a_pattern_is_told_no_other():
    told = declared(
        sections("product:{id:int}:a", "product:{id:int}:b", "products:{id:int}"), b"product:seven:a"
    )
    assert (told.namespace, told.begins, told.alike) == (None, True, ())


def test_a_key_as_a_framework_says_it_is_told_no_other():
    web = {"kind": "django", "key_prefix": "web"}
    view = NamespaceSection(key="view:{id:int}", load=LOAD, framework=web).called("view")
    told = declared({"view": view, **sections("views:{id:int}")}, b"view:7")
    assert (told.full, told.alike) == (b"web:1:view:7", ())
