"""A key says which row it is, in exactly one spelling, and belongs to at most one namespace."""

from __future__ import annotations

import string
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.core.keyspace import Keyspace, Pattern, overlaps
from cacheupdater.errors import Faulty, Misconfigured

PATTERNS = [
    Pattern.compile(text)
    for text in (
        "product:{id:int}",
        "basket:{user:int}:{shop}",
        "user:{id:uuid}:profile",
        "range:{low:int}-{high:int}",
        "img:{name}.png",
        "cart:{{{user:int}}}:items",
    )
]
TEXT = "".join(chr(code) for code in range(33, 127) if chr(code) != ":")
VALUES = {
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(TEXT, min_size=1, max_size=40),
    UUID: st.uuids(),
}


@st.composite
def _said(draw):
    pattern = draw(st.sampled_from(PATTERNS))
    return pattern, tuple(draw(VALUES[kind]) for kind in pattern.types)


@given(_said())
def test_pattern_reads_back_what_it_wrote(said):
    pattern, captures = said
    assert pattern.parse(pattern.format(captures)) == captures


@given(
    st.sampled_from(PATTERNS),
    st.one_of(
        st.binary(max_size=60), st.text(string.printable + "\uff10\uff17\u0663", max_size=30).map(str.encode)
    ),
)
def test_pattern_writes_back_every_key_that_it_reads(pattern, rest):
    key = pattern.prefix + rest
    captures = pattern.parse(key)
    assert captures is None or pattern.format(captures) == key


@pytest.mark.parametrize(
    "alias",
    [
        "007",
        " 12 ",
        "12 ",
        "+7",
        "1_000",
        "\uff17",  # full-width digit
        "\u0663",  # Arabic digit
        "-0",
        "00",
        "-07",
        "",
        "-",
        "1.0",
        "1e3",
        "0x1f",
        "12\n",
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 400,
    ],
)
def test_int_capture_refuses_other_spellings_of_a_number(alias):
    assert Pattern.compile("product:{id:int}").parse(b"product:" + alias.encode()) is None


@pytest.mark.parametrize("number", [0, 7, -7, 10**18, 2**63 - 1, -(2**63)])
def test_int_capture_reads_every_bigint(number):
    assert Pattern.compile("product:{id:int}").parse(b"product:%d" % number) == (number,)


@pytest.mark.parametrize(
    "spelled",
    [
        "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "6f9619ff8b86d011b42d00c04fc964ff",
        "{6f9619ff-8b86-d011-b42d-00c04fc964ff}",
        "urn:uuid:6f9619ff-8b86-d011-b42d-00c04fc964ff",
    ],
)
def test_uuid_capture_refuses_other_spellings(spelled):
    pattern = Pattern.compile("user:{id:uuid}")
    assert pattern.parse(b"user:6f9619ff-8b86-d011-b42d-00c04fc964ff") is not None
    assert pattern.parse(b"user:" + spelled.encode()) is None


@pytest.mark.parametrize("spelled", [b"", b"a b", b"a:b", b"a\0", b"\xff", "é".encode(), b"a\n"])
def test_str_capture_takes_printable_ascii_without_space_and_colon_only(spelled):
    assert Pattern.compile("banner:{slot}").parse(b"banner:" + spelled) is None


def test_pattern_takes_keys_of_1024_bytes_and_no_longer_ones():
    pattern = Pattern.compile("k:{name}")
    assert pattern.parse(b"k:" + b"x" * 1022) is not None
    assert pattern.parse(b"k:" + b"x" * 1023) is None


def test_pattern_reads_hostile_keys_in_linear_time():
    pattern = Pattern.compile("k:{a}:{b}:{c}.png")
    start = time.thread_time()
    for _ in range(100):
        assert pattern.parse(b"k:" + b".pn" * 340) is None
        assert pattern.parse(b"k:a:b:" + b".pn" * 339) is None
    assert time.thread_time() - start < 1.0, "100 pairs of 1 KiB keys take milliseconds"


def test_pattern_writes_only_what_it_can_read():
    with pytest.raises(Faulty, match="cannot stand in a key"):
        Pattern.compile("basket:{user:int}:{shop}").format((7, "a:b"))
    with pytest.raises(Faulty, match="cannot stand in a key"):
        Pattern.compile("product:{id:int}").format(("7",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:{}", "needs a name"),
        ("a:{:int}", "needs a name"),
        ("a:{b.c}", "needs a name"),
        ("a:{b}:{b}", "two captures named 'b'"),
        ("a:{b:float}", "unknown type 'float'"),
        ("a:{b!r}", "write {b:int}"),
        ("a:{b}{c}", "literal text between"),
        ("a:{b}-{c}", "put a colon"),
        ("a:{b:int}0:{c}", "put no digit"),
        ("ä:{b}", "printable ASCII"),
        ("a b:{c}", "printable ASCII"),
        ("banner", "no capture"),
        ("", "no capture"),
        ("a:{b", "unbalanced braces"),
        ("a:b}", "unbalanced braces"),
        ("{a}:b", "must begin with literal text"),
        ("a:{keys}", "use another name"),
        ("a" * 1024 + "{b}", "no room"),
    ],
)
def test_pattern_that_cannot_work_is_refused_with_the_reason(text, why):
    with pytest.raises(Misconfigured, match=why):
        Pattern.compile(text)


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


@given(st.sampled_from(PATTERNS), st.data())
def test_pattern_reads_many_keys_as_it_reads_each(pattern, data):
    good = st.tuples(*(VALUES[kind] for kind in pattern.types)).map(pattern.format)
    bad = st.sampled_from(
        [pattern.prefix, b"", b"\n", pattern.prefix + b"007\n", pattern.prefix + b"9223372036854775808"]
    )
    keys = data.draw(st.lists(st.one_of(good, good, good, bad), min_size=1, max_size=8))
    each = [pattern.parse(key) for key in keys]
    assert pattern.parse_many(keys) == (None if None in each else each)
