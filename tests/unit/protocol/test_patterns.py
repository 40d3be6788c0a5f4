"""A key names its row in exactly one spelling."""

from __future__ import annotations

import string
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater_client.protocol.errors import Inexpressible, Misspelled
from cacheupdater_client.protocol.patterns import Pattern

PATTERNS = [
    Pattern.compile(text)
    for text in (
        "product:{id:int}",
        "basket:{user:int}:{shop}",
        "user:{id:uuid}:profile",
        "range:{low:int}-{high:int}",
        "img:{name}.png",
        "cart:{{{user:int}}}:items",
        "5,{id:int}5",
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
    with pytest.raises(Inexpressible, match="cannot stand in a key"):
        Pattern.compile("basket:{user:int}:{shop}").format((7, "a:b"))
    with pytest.raises(Inexpressible, match="cannot stand in a key"):
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
    with pytest.raises(Misspelled, match=why):
        Pattern.compile(text)


@given(st.sampled_from(PATTERNS), st.data())
def test_pattern_reads_many_keys_as_it_reads_each(pattern, data):
    good = st.tuples(*(VALUES[kind] for kind in pattern.types)).map(pattern.format)
    prefix, behind = pattern.prefix, pattern.literals[-1]
    numbers = b"007", b" 7", b"7 ", b"-0", b"7.0", b"7e1", b"7,8", b"9223372036854775808", b"true", b'"7"'
    bad = st.sampled_from(
        [prefix, behind, b"", b"\n", prefix + b"7\n", prefix + b"7" + behind + b"\n" + prefix + b"8" + behind]
        + [prefix + number + behind for number in numbers]
    )
    keys = data.draw(st.lists(st.one_of(good, good, good, bad), min_size=1, max_size=8))
    each = [pattern.parse(key) for key in keys]
    assert pattern.parse_many(keys) == (None if None in each else each)


@given(st.sampled_from(PATTERNS), st.data())
def test_pattern_writes_many_keys_as_it_writes_each(pattern, data):
    good = st.tuples(*(VALUES[kind] for kind in pattern.types))
    odd = {
        int: st.sampled_from(["7", 2**63]),
        str: st.sampled_from(["a:b", "\ud800", "a\nb", ""]),
        UUID: st.just("7"),
    }
    bad = st.tuples(*(odd[kind] for kind in pattern.types))
    captures = data.draw(st.lists(st.one_of(good, good, good, bad), max_size=8))
    each = [_written(pattern, one) for one in captures]
    assert pattern.format_many(captures) == (None if None in each else each)


def _written(pattern, captures):
    try:
        return pattern.format(captures)
    except (Inexpressible, UnicodeEncodeError):
        return None
