"""A unit that has been paid for starts with the keys that fit its pattern; the others are nobody's, and cost nothing."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source

A, B = b"p:1", b"p:2"
NOBODYS = b"p:x"


def story_of(rows: float, *, slots: int = 1, **changed: float) -> Story:
    """Two namespaces share this budget and these slots."""
    source = Source("db", Bucket(rows, rows, now=-1.0), concurrency=slots)
    return Story(namespace("p", source=source), namespace("q", source=source), **changed)


def test_a_unit_starts_with_the_captures_of_its_keys():
    story = Story()
    story.touch(A, B, at=0.0)
    unit = story.start(0.0)
    assert (unit.keys, list(unit.captures)) == ([A, B], [(1,), (2,)])


def test_keys_that_do_not_parse_are_counted_and_what_they_had_paid_pays_for_others():
    story = story_of(2.0, slots=2)
    story.touch(NOBODYS, A, at=0.0)
    assert story.starts(0.0) == [[A]]
    assert story.count("dropped", "unknown") == 1
    story.touch(b"q:1", at=0.01)
    assert story.starts(0.01) == [[b"q:1"]]


def test_a_unit_of_nobodys_keys_leaves_its_slot_to_another_in_the_same_step():
    story = story_of(100.0)
    story.touch(NOBODYS, at=0.0)
    story.touch(b"q:1", at=0.0)
    assert story.starts(0.0) == [[b"q:1"]]


def test_a_step_that_finds_many_keys_of_nobody_leaves_the_rest_to_the_next():
    story = story_of(100.0, turn_keys=2, unit_keys=2, strangers=1)
    story.touch(*(b"p:x%d" % n for n in range(6)), at=0.0)
    work = story.step(0.0)
    assert (work.units, work.wake) == ([], 0.0)
    while story.step(0.0).wake <= 0.0:
        pass
    assert story.count("dropped", "unknown") == 6
