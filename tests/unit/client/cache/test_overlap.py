"""Two patterns share a key exactly if some key parses by both."""

from __future__ import annotations

import random

import pytest

from cacheupdater_client.cache.overlap import share_a_key
from cacheupdater_client.protocol.errors import Misspelled
from cacheupdater_client.protocol.patterns import Pattern

ONE_UUID = "0f1e2d3c-0000-4000-8000-000000000007"


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("p:{id:int}", "p:{id:int}", True),
        ("p:{id:int}", "p:{name}", True),
        ("p:{id:int}", "q:{id:int}", False),
        ("p:{name}", "p:x{name}", True),  # p:xy
        ("p:{name}", "p:{name}:{part}", False),  # no text holds a colon
        ("p:{id:int}", "p:{id:uuid}", False),
        ("p:{name}", "p:{id:uuid}", True),
        ("p:{id:int}", "p:0{id:int}", False),  # no number begins with a 0
        ("p:{id:int}", "p:-{id:int}", True),  # p:-1
        ("p:{id:int}x", "p:{name}", True),
        ("p:{id:int}x", "p:{id:int}", False),
        ("p:{{{id:int}}}", "p:{name}", True),
        ("p:{a:int}:{b}", "p:{a}:{b:int}", True),
    ],
)
def test_patterns_share_a_key_if_some_key_parses_by_both(one, other, shared):
    one, other = Pattern.compile(one), Pattern.compile(other)
    assert share_a_key(one, other) == share_a_key(other, one) == shared


PIECES = ["{%d:int}", "{%d}", "{%d:uuid}", ":", "1", "-", "0", "x"]
VALUES = ["1", "0", "-1", "x", "x1", "1x", ONE_UUID, "-", "10"]


def drawn(draw):
    """Pieces of a pattern."""
    return [draw.choice(PIECES) for _ in range(draw.randint(1, 4))]


def spelled(pieces):
    return "p:" + "".join(each.replace("%d", f"c{at}") for at, each in enumerate(pieces))


def test_a_key_that_parses_by_both_is_always_found():
    shared = 0
    for seed in range(3_000):
        draw = random.Random(seed)
        one, other = drawn(draw), drawn(draw)
        try:
            a, b = Pattern.compile(spelled(one)), Pattern.compile(spelled(other))
        except Misspelled:
            continue
        key = "p:" + "".join(draw.choice(VALUES) if each.startswith("{") else each for each in one)
        if a.parse(key.encode()) is not None and b.parse(key.encode()) is not None:
            shared += 1
            assert share_a_key(a, b), f"seed {seed}: {key} is taken by {a.text} and {b.text}"
    assert shared > 20
