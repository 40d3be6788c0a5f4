"""Which beginnings of keys are one, and how much a key begins like a prefix."""

import pytest

from cacheupdater.core.beginnings import LIKE, beginning, likeness


@pytest.mark.parametrize(
    "alike",
    [
        (b"product:7", b"product:8", b"product:seven"),
        (b":1:product:7", b":2:product:8"),
        (b"user:7:cart", b"user:12345:cart"),
        (b"product-7", b"product-12"),
        (b"product7", b"product12"),
    ],
)
def test_keys_that_differ_only_in_numbers_and_the_last_word_begin_alike(alike):
    assert len(set(map(beginning, alike))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"product:7", b"products:7"),
        (b":1:product:7", b":1:basket:7"),
        (b"user:7:cart", b"user:7"),
        (b"home", b"away"),
        (b"product-7", b"basket-7"),
    ],
)
def test_keys_of_other_words_begin_otherwise(one, other):
    assert beginning(one) != beginning(other)


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        (b"product:7", b"products:"),
        (b"products:7", b"product:"),
        (b"prodcut:7", b"product:"),
        (b"product:7", b"myshop:product:"),
        (b"shop:product:19", b"product:"),
        (b"product-7", b"product:"),
        (b"product7", b"product:"),
        (b"users:7:cart:of:this:week", b"user:"),
    ],
)
def test_a_misspelled_prefix_is_like_the_one_that_was_meant(key, prefix):
    assert likeness(key, prefix) >= LIKE


@pytest.mark.parametrize("key", [b"basket:7", b"session:0f3c", b"home", b"", b":", b"\xff\x00:7"])
def test_another_word_is_not_like_a_prefix(key):
    assert likeness(key, b"product:") < LIKE


def test_the_beginning_counts_and_not_what_follows():
    assert likeness(b"product:7", b"product:") == likeness(b"product:7:a:b:c:d", b"product:") == 1.0


def test_a_key_of_many_words_is_looked_at_only_so_far():
    assert likeness(b"x:" * 100_000 + b"product:", b"product:") < LIKE
