"""Many patterns of one prefix are resolved by the same rule, at the cost of a few."""

from __future__ import annotations

import time
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheupdater.core.keyspace import Keyspace
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.errors import Misspelled
from cacheupdater_client.protocol.patterns import Pattern

_compiled = lru_cache(Pattern.compile)


def _slowly(texts: list[str], key: bytes) -> str | None:
    """The rule as it is told: the longest prefix, then the most literal text, then the one declared first."""
    patterns = [_compiled(text) for text in texts]
    ranked = sorted(patterns, key=lambda each: (-len(each.prefix), -sum(map(len, each.literals))))
    beginning = [each for each in ranked if key.startswith(each.prefix)]
    if len(beginning) == 1:
        return beginning[0].text
    return next((each.text for each in beginning if each.parse(key) is not None), None)


@st.composite
def _crowd(draw):
    """Patterns that differ by little, and keys that nearly fit."""
    captures = st.sampled_from(["{%s:int}", "{%s}", "{%s:uuid}"])
    behind = st.sampled_from([":", ":t1:", ":t12:", ":t1", ":t12", "-", "x", ":x-"])
    ends = st.sampled_from(["", ":t1", ":t12", ".png", "x", "0", ":"])
    texts = []
    for _ in range(draw(st.integers(1, 12))):
        text = draw(st.sampled_from(["a:", "a:b", "a:b:", "a"]))
        for number in range(draw(st.integers(0, 2))):
            text += draw(captures) % f"c{number}" + draw(behind)
        texts.append(text + draw(captures) % "last" + draw(ends))
    kept = []
    for text in texts:
        try:
            Keyspace([(_compiled(each), each) for each in (*kept, text)])
        except (Misconfigured, Misspelled):
            continue
        kept.append(text)
    uuid = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    piece = st.sampled_from(
        ["a", ":", "b", "t1", "t12", "7", "0", "-7", "007", "x", ".png", "-", uuid, "é", " ", "\n", "a:"]
    )
    keys = [draw(st.lists(piece, max_size=9).map("".join)) for _ in range(6)]
    for text in kept:
        spelled = text
        said = [draw(st.sampled_from(["7", "0", "-12", "a-x", uuid, "b"])) for _ in range(3)]
        for name, value in zip(("c0", "c1", "last"), said, strict=True):
            for kind in ("", ":int", ":uuid"):
                spelled = spelled.replace("{" + name + kind + "}", value)
        keys.append(spelled)
    return kept, [key.encode() for key in keys]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_crowd())
def test_keyspace_resolves_as_the_rule_says_whatever_stands_beside(crowd):
    texts, keys = crowd
    space = Keyspace([(_compiled(text), text) for text in texts])
    for key in keys:
        assert space.resolve(key) == _slowly(texts, key), (texts, key)


@lru_cache
def _crowded(form: str, size: int) -> list[tuple[Pattern, str]]:
    texts = ["app:{x}:{y}:{z}:{w}", *(form % number for number in range(size))]
    return [(Pattern.compile(text), text) for text in texts]


@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("app:{tenant}:t%d:{id:int}", 3_000),
        ("app:{id:int}.t%d", 600),
        ("app:{a:int}-t%d-{b}", 600),
        ("app:%d:{id}", 600),
    ],
)
def test_resolving_costs_the_same_with_three_and_three_thousand_patterns_of_one_prefix(form, size):
    few, many = (Keyspace(_crowded(form, number)) for number in (3, size))
    keys = [b"app:acme:lock:%d" % n for n in range(50)] + [b"app:7-t1-x", b"app:8.t2", b"app:acme:t0:7"] * 10
    least = {space: min(_seconds(space, keys) for _ in range(7)) for space in (few, many)}

    assert least[many] < 8 * least[few], "it took hundreds of times as long"


def _seconds(space: Keyspace[str], keys: list[bytes]) -> float:
    began = time.process_time()
    for key in keys:
        space.resolve(key)
    return time.process_time() - began


def test_thousands_of_patterns_of_one_prefix_are_compared_with_their_like_only():
    pairs = _crowded("app:{tenant}:t%d:{id:int}", 3_000)
    began = time.process_time()
    space = Keyspace(pairs)

    assert time.process_time() - began < 1.0, "pair by pair it takes several"
    assert space.resolve(b"app:x:t2999:7") == "app:{tenant}:t2999:{id:int}"
