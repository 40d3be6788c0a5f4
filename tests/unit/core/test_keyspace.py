"""A key belongs to at most one namespace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.core.keyspace import Keyspace
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.patterns import Pattern, overlaps


def _space(*texts: str) -> Keyspace[str]:
    return Keyspace([(Pattern.compile(text), text) for text in texts])


def test_keyspace_resolves_by_prefix_alone_where_one_pattern_has_it():
    space = _space("product:{id:int}", "banner:{slot}")
    assert space.resolve(b"product:7") == "product:{id:int}"
    assert space.resolve(b"product:007") == "product:{id:int}", "its unit will find that nothing parses"
    assert space.resolve(b"produce:7") is None
    assert space.resolve(b"") is None


def test_keyspace_prefers_the_longest_prefix_that_fits():
    space = _space("p:{x}", "p:a{id:int}", "p:ab:{y}")
    assert space.resolve(b"p:z") == "p:{x}"
    assert space.resolve(b"p:a7") == "p:a{id:int}"
    assert space.resolve(b"p:abc") == "p:{x}", "it begins like p:a{id:int}, but is none"
    assert space.resolve(b"p:ab:c") == "p:ab:{y}"
    assert space.resolve(b"p:a:b") is None


def test_keyspace_tells_siblings_apart_by_the_whole_key():
    space = _space("user:{id:uuid}:profile", "user:{id:uuid}:cart", "user:{id:int}:cart", "user:{name}")
    some = b"6f9619ff-8b86-d011-b42d-00c04fc964ff"
    assert space.resolve(b"user:%b:profile" % some) == "user:{id:uuid}:profile"
    assert space.resolve(b"user:%b:cart" % some) == "user:{id:uuid}:cart"
    assert space.resolve(b"user:12:cart") == "user:{id:int}:cart"
    assert space.resolve(b"user:ann") == "user:{name}"
    assert space.resolve(b"user:ann:cart") is None


@pytest.mark.parametrize("number", [0, 10**17, 2**63 - 1, -(2**63), 2**63, 10**18 + 2**63, -(2**63) - 1])
def test_siblings_take_a_number_that_a_column_holds_and_no_larger_one(number):
    space = _space("shop:{id:int}:basket", "shop:{id:int}:cart")
    holds = -(2**63) <= number < 2**63
    key = b"shop:%d:cart" % number
    assert space.resolve(key) == ("shop:{id:int}:cart" if holds else None)
    assert Pattern.compile("shop:{id:int}:cart").takes(key) is holds
    assert (Pattern.compile("shop:{id:int}:cart").parse_many([key]) is not None) is holds


def test_keyspace_gathers_a_namespace_of_several_patterns_in_the_order_of_its_keys():
    texts = ("a:{x}", "b:{x}", "c:{x}:y", "c:{x}:z")
    space = Keyspace([(Pattern.compile(text), "one") for text in texts])
    keys = [b"b:1", b"c:1:z", b"a:1", b"c:1:y", b"b:2", b"a:2"]
    assert space.resolve_many([*keys, b"d:1"]) == ({"one": keys}, [b"d:1"])


def test_keyspace_prefers_the_sibling_with_more_literal_text():
    for texts in (("i:{n}", "i:{n}.png"), ("i:{n}.png", "i:{n}")):
        assert _space(*texts).resolve(b"i:a.png") == "i:{n}.png"


@pytest.mark.parametrize("other", ["p:{id:int}", "p:{slug}", "p:{name:str}"])
def test_keyspace_refuses_two_patterns_that_take_the_same_keys(other):
    with pytest.raises(Misconfigured, match=r"p:\{number:int\}.*take the same keys"):
        _space("p:{number:int}", other)
    assert not overlaps(Pattern.compile("p:{a:int}"), Pattern.compile("p:{a:uuid}"))


def test_keyspace_tells_senders_the_fewest_prefixes_that_cover_every_key():
    assert _space("p:{x}", "p:a:{y}", "q:{x}", "p:a:b:{z}").prefixes == [b"p:", b"q:"]


def test_keyspace_of_nothing_knows_nobody():
    assert Keyspace[str]([]).resolve_many([b"a", b"\0"]) == ({}, [b"a", b"\0"])


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.text("pqab:07z\0", max_size=8).map(str.encode),
            st.sampled_from([b"p:7", b"p:a7", b"p:aa", b"p:ab:7", b"p:b", b"q:7", b"q:7:7", b"ab7"]),
        ),
        max_size=60,
    )
)
def test_keyspace_groups_a_batch_as_it_resolves_each_key(keys):
    space = _space("p:{x}", "p:a{id:int}", "p:ab:{y}", "q:{x}", "q:{x}:{y}", "ab{id:int}")
    known, unknown = space.resolve_many(keys)
    assert unknown == [key for key in keys if space.resolve(key) is None]
    for owner, group in known.items():
        assert group == [key for key in keys if space.resolve(key) == owner]
    assert sum(map(len, known.values())) + len(unknown) == len(keys)


def test_longer_prefix_wins_in_a_batch_that_begins_with_keys_of_the_shorter_one():
    space = _space("p:{id:int}", "p:ab:{id:int}")
    known, unknown = space.resolve_many([b"p:1", b"p:ab:1", b"p:2"])
    assert (known, unknown) == ({"p:{id:int}": [b"p:1", b"p:2"], "p:ab:{id:int}": [b"p:ab:1"]}, [])


def test_keyspace_finds_the_owner_among_thousands():
    space = _space(*(f"ns{number}:{{id:int}}" for number in range(3000)))
    for number in (0, 1, 10, 999, 2999):
        assert space.resolve(b"ns%d:5" % number) == f"ns{number}:{{id:int}}"
    assert len(space.prefixes) == 3000
