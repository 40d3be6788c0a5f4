"""A hint that is given up is counted once; a change leaves no old value behind, and only then its pack ends."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.answers import SPARED

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
    assert story.engine.tally.drain()["dropped", "p", "quarantined"] == 1
    assert (work.invalidation is not None) is removes


@pytest.mark.parametrize(
    ("hint", "why", "spares"),
    [
        ("set_", "quarantined", True),
        ("set_", "paused", True),
        ("set_", "backlog", False),
        ("change", "quarantined", False),
        ("change", "paused", False),
        ("fed", "quarantined", False),
        ("fed", "paused", False),
    ],
)
def test_what_the_application_sets_stays_while_its_key_is_paused_or_in_quarantine(hint, why, spares):
    """Whoever announces a change may have left the old value there."""
    story = Story(namespace(max_backlog=1))
    if why == "quarantined":
        story.engine.quarantine.put(A, "poison", 0.0)
    elif why == "paused":
        story.engine.pause(story.namespaces, 0.0)
    getattr(story, hint)(A, at=0.0)
    if why == "backlog":
        story.change(B, at=0.0)
    invalidation = story.step(0.0).invalidation

    assert invalidation.keys == [A]
    assert set(invalidation.only_ours) == ({A} if spares else set())


def test_a_key_that_was_set_and_announced_while_it_was_paused_goes():
    story = Story()
    story.engine.pause(story.namespaces, 0.0)
    story.set_(A, at=0.0)
    story.change(A, at=0.0)
    invalidation = story.step(0.0).invalidation

    assert invalidation.keys == [A, A]
    assert not invalidation.only_ours


def test_a_value_that_is_spared_ends_its_pack():
    story = Story()
    story.engine.pause(story.namespaces, 0.0)
    story.set_(A, at=0.0)
    story.engine.on_invalidated(story.step(0.0).invalidation, [SPARED], 0.1)

    assert story.done == 1
    assert story.engine.removals_waiting == 0


@pytest.mark.parametrize(
    ("hints", "spares"),
    [
        (["set_"], True),
        (["touch", "set_"], True),
        (["miss", "set_", "set_"], True),
        (["set_", "touch", "miss"], True),
        (["change", "set_"], False),
        (["set_", "change"], False),
        (["touch", "change", "set_"], False),
    ],
)
@pytest.mark.parametrize("when", ["they wait", "the last try runs"])
def test_of_merged_hints_all_changes_must_have_set_the_value(hints, spares, when):
    """An announced change that has merged with a SET still removes, wherever the two have met."""
    story = Story()
    if when == "they wait":
        for hint in hints:
            getattr(story, hint)(A, at=0.0)
        story.engine.pause(story.namespaces, 0.0)
        invalidation = story.step(0.1).invalidation
    else:
        story.miss(A, at=0.0)
        for at in range(5):
            unit = story.start(3.0 * at)
            if at == 4:
                for hint in hints:
                    getattr(story, hint)(A, at=12.0)
            story.fail(unit, 3.0 * at, own=True)
        invalidation = story.step(13.0).invalidation
        assert list(story.engine.quarantine.keys) == [A]

    assert (invalidation.keys, set(invalidation.only_ours)) == ([A], {A} if spares else set())


def waiting(story):
    story.set_(A, at=0.0)
    story.change(A, at=0.0)


def behind_a_running_refresh(story):
    story.miss(A, at=0.0)
    story.start(0.0)
    story.set_(A, at=0.1)
    story.change(A, at=0.1)


def behind_one_that_fails(story):
    story.set_(A, at=0.0)
    unit = story.start(0.0)
    story.change(A, at=0.1)
    story.fail(unit, 0.2, own=True)


def behind_one_that_fails_for_the_last_time(story):
    story.set_(A, at=0.0)
    for at in range(5):
        unit = story.start(3.0 * at)
        if at == 4:
            story.change(A, at=12.0)
        story.fail(unit, 3.0 * at, own=True)


@pytest.mark.parametrize(
    "met", [waiting, behind_a_running_refresh, behind_one_that_fails, behind_one_that_fails_for_the_last_time]
)
def test_an_announced_change_that_has_met_a_set_is_not_forgotten_before_it(met):
    """A crash would leave the set alone, and a set may spare an old value."""
    story = Story()
    met(story)

    assert story.engine.cursor.finished() == []
