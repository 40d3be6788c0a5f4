"""A pickle is read without being loaded: plain values as they are, of everything else the name."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import random
import time
from collections import OrderedDict
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.core.pickled import READ_MAX, Instance, Unread, read

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(PLAIN, st.integers(3, 5))  # before 3, bytes are made by a call
def test_plain_values_are_read_as_they_were_written(value, protocol):
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (dt.datetime(2026, 11, 28, tzinfo=dt.UTC), "datetime.datetime"),
        (decimal.Decimal("8.90"), "decimal.Decimal"),
        (OrderedDict(a=1), "collections.OrderedDict"),
        ({1, 2}, "set"),
    ],
)
def test_of_an_object_the_name_of_its_class_is_read(value, name, protocol):
    said = read(pickle.dumps({"before": 1, "it": value, "behind": [2]}, protocol))
    assert said == {"before": 1, "it": Instance(name), "behind": [2]}


def test_an_instance_of_a_class_of_the_application_is_known_by_its_name():
    class_of_this_module = pickle.dumps(Product(7))
    assert read(class_of_this_module).name.endswith("test_pickled.Product")
    assert isinstance(read(pickle.dumps(UUID(int=7))), Instance)


class Product:
    def __init__(self, number):
        self.number = number


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_nothing_that_a_pickle_names_is_called():
    assert isinstance(read(pickle.dumps([Evil()]))[0], Instance)


def test_a_few_bytes_that_ask_for_gigabytes_get_none():
    """LONG_BINPUT with a high place makes Python's own reader fill a table up to there."""
    assert read(b"\x80\x04}r\xff\xff\xff\xff.") == {}


def test_containers_within_each_other_end():
    deep = [[]]
    for _ in range(50):
        deep = [deep, deep]
    assert read(pickle.dumps(deep))[1] is None
    turning = []
    turning.append(turning)
    assert read(pickle.dumps(turning)) == [None]


def unread(pickled):
    with pytest.raises(Unread):
        read(pickled)


def test_a_name_is_not_made_of_names_again_and_again():
    """Each step would double the name: some hundred bytes would take gigabytes."""
    step = b"h\x00h\x00\x93q\x00"
    unread(b"\x80\x04\x8c\x01aq\x00" + step * 40 + b".")


def test_a_text_that_stands_there_thousands_of_times_is_not_read():
    for size, read_all in ((3_000, False), (10, True)):
        texts = ["x" * size] * 500
        if read_all:
            assert read(pickle.dumps(texts)) == texts
        else:
            unread(pickle.dumps(texts))


@pytest.mark.parametrize("name", ["a\nWARNING forged", "x" * 300, "secret 4711"])
def test_a_name_that_is_none_is_not_read(name):
    unread(b"\x80\x04\x8c\x01mX" + len(name).to_bytes(4, "little") + name.encode() + b"\x93.")


def test_what_is_deep_or_odd_is_not_read():
    deep = b"\x80\x04" + b"]" + b"]" * 4_000 + b"a" * 4_000
    unread(deep + b".")
    unread(deep + b"\x8c\x01a\x93.")  # a list for the name of a module
    unread(pickle.dumps({(1, 2): 3}))
    unread(pickle.dumps(1 << 2_000))


def test_marks_cost_no_more_than_their_items():
    def took(pickled):
        began = time.thread_time()
        with suppress(Unread):
            read(pickled)
        return time.thread_time() - began

    marks, plain = (b"\x80\x04(" + b"(" * 4_990 + b"l" * 4_991 + b"."), (b"\x80\x04(" + b"N" * 9_980 + b"l.")
    assert took(marks) < 10 * min(took(plain) for _ in range(3)), (
        "a look at all marks for each of them takes 130 times as long"
    )


def test_bytes_of_the_first_protocols_are_bytes():
    assert read(pickle.dumps(b"\xff", 2)) == Instance("bytes")


def test_a_long_pickle_is_not_read():
    with pytest.raises(Unread):
        read(pickle.dumps("x" * READ_MAX))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_pickles_are_read_or_not_and_nothing_else(seed):
    chance = random.Random(seed)
    good = pickle.dumps({"id": 7, "when": dt.date(2026, 1, 1), "lines": [{"a": (1, 2)}, None]})
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with suppress(Unread):
            read(bytes(damaged[: chance.randint(1, len(damaged))]))
