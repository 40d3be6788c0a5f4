"""Many numbers are read at once, and each must be spelled as a key spells it."""

from __future__ import annotations

import pytest

from cacheupdater_client.protocol import numerals
from cacheupdater_client.protocol.numerals import INT_MAX, INT_MIN, Numerals

ODD = [b"007", b"-0", b"+7", b" 7", b"7\n", b"7.0", b"7e1", b"0x7", b"true", b"null", b'"7"', b"[7]", b""]
TOO_LARGE = [b"%d" % (INT_MAX + 1), b"%d" % (INT_MIN - 1), b"7" * 40]


def test_numbers_that_a_bigint_holds_are_read():
    spelled = [b"0", b"-1", b"7", b"%d" % INT_MAX, b"%d" % INT_MIN]
    assert numerals.read(spelled) == [0, -1, 7, INT_MAX, INT_MIN]


@pytest.mark.parametrize("odd", ODD + TOO_LARGE)
def test_one_number_in_another_spelling_refuses_all(odd):
    assert numerals.read([b"1", odd, b"2"]) is None


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([b"a:1:b", b"a:2"], id="a key without its end"),
        pytest.param([b"1:b", b"a:2:b"], id="a key without its beginning"),
        pytest.param([b"a:1:b", b"2", b"a:3:b"], id="a bare number in the middle"),
        pytest.param([b"a:1:b\na:2:b"], id="a line feed in a key"),
        pytest.param([b"a:1:b\na:2:b", b""], id="a line feed in one key, and an empty key beside it"),
        pytest.param([b"a:1,2:b"], id="two numbers in a key"),
        pytest.param([b"a:1,2:b", b""], id="two numbers in one key, and an empty key beside it"),
        pytest.param([b"a:b"], id="beginning and end share a byte"),
        pytest.param([], id="no key"),
    ],
)
def test_keys_of_another_form_say_nothing(keys):
    numbers = Numerals(b"a:", b":b")
    assert numbers.parse(b"\n".join([b"a:1:b", b"a:2:b"]), 2) == [(1,), (2,)]
    assert numbers.parse(b"\n".join(keys), len(keys)) is None
