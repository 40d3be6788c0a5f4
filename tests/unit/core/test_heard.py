"""Hints counted by namespace, from one key of each pack."""

from __future__ import annotations

from random import Random

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.heard import count_hints
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.metrics import Tally

SPACES = [namespace(name) for name in "pq"]
KEYSPACE = Keyspace([(each.pattern, each) for each in SPACES])


def counted(tally):
    """The hints by namespace."""
    return {label: amount for (name, label, _), amount in tally.drain().items() if name == "namespace_hints"}


def test_each_namespace_has_its_share_of_mixed_packs():
    """All packs begin with the same keys, as those of one page would."""
    tally, rng, true = Tally(), Random(5), {"p": 0, "q": 0}
    keys = [b"p:%d" % number for number in range(75)] + [b"q:%d" % number for number in range(25)]
    for offset in range(3_000):
        counts = [rng.choice((1, 1, 2, 12)) if key.startswith(b"p") else rng.choice((1, 2)) for key in keys]
        for key, count in zip(keys, counts, strict=True):
            true[key[:1].decode()] += count
        count_hints(Hints(offset, Kind.TOUCH, keys, counts), KEYSPACE, tally)

    assert counted(tally) == pytest.approx(true, rel=0.1)


def test_keys_of_nobody_count_for_no_namespace_and_a_pack_without_counts_by_its_keys():
    story = Story(*SPACES)
    story.touch(b"r:1", b"r:2", at=0.0)
    story.touch(b"p:1", b"p:2", b"p:3", at=0.0)

    assert counted(story.engine.tally) == {"p": 3}
