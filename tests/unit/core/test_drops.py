"""A hint that is given up is counted once; a change leaves no old value behind, and only then its pack ends."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace

A, B, ALIEN = b"p:1", b"p:2", b"p:seven"


def test_a_dropped_read_is_counted_and_its_pack_ends():
    story = Story(namespace(max_backlog=1))
    story.miss(A, B, at=0.0)
    story.starts(0.0)

    assert story.count("dropped", "backlog") == 1


def test_a_dropped_change_is_removed_before_its_pack_ends():
    story = Story(namespace(max_backlog=1))
    story.change(A, at=0.0)
    story.change(B, at=0.0)
    work = story.step(0.0)

    assert work.invalidation.keys == [A]
    (unit,) = work.units
    story.end(unit, 0.1)
    assert story.done == 0
    story.removed(work.invalidation, 0.2)
    assert story.done == 2


def test_a_dropped_change_of_a_key_that_only_begins_like_ours_is_removed_by_nobody():
    story = Story(namespace(max_backlog=1))
    story.change(ALIEN, at=0.0)
    story.change(B, at=0.0)
    work = story.step(0.0)

    assert work.invalidation is None
    assert story.count("dropped", "unknown") == 1


@pytest.mark.parametrize(("hint", "removes"), [("change", True), ("touch", False), ("miss", False)])
def test_of_the_hints_of_a_quarantined_key_only_a_change_removes(hint, removes):
    story = Story()
    story.engine.quarantine.put(A, "poison", 0.0)
    getattr(story, hint)(A, at=0.0)
    work = story.step(0.0)

    assert work.units == []
    assert story.count("dropped", "quarantined") == 1
    assert (work.invalidation is not None) is removes
