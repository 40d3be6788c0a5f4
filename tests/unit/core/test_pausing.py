"""A paused namespace: nothing of it is loaded, its changes still remove, and its packs end."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.pausing import BY_MOST, Pause, pause_of
from cacheupdater.core.policy import Fixed

A, B, OTHER = b"p:1", b"p:2", b"q:1"


@pytest.fixture
def story():
    return Story(namespace("p"), namespace("q"))


def pause(story, at):
    story.engine.pause([story.namespaces[0]], at)


def resume(story, at):
    story.engine.pause([], at)


def removed(story, at):
    """The keys that Redis is asked to remove now; it removes them."""
    asked = story.step(at).invalidation
    if asked is None:
        return []
    story.removed(asked, at)
    return asked.keys


def test_reads_of_a_paused_namespace_are_dropped_with_a_count_and_its_neighbour_is_served(story):
    pause(story, 0.0)
    story.touch(A, B, OTHER, at=0.0)
    story.miss(A, OTHER, at=0.1)

    assert story.refresh(0.2) == [OTHER]
    assert story.count("dropped", "paused") == 3
    assert story.done == 2


class Listening(Fixed):
    """A policy that notes which keys it hears of."""

    learns = True

    def __init__(self):
        self.heard = []

    def on_hints(self, keys, counts, now):
        self.heard += keys
        return keys

    def on_misses(self, keys, counts, now):
        self.heard += keys


def test_each_repeated_read_counts_and_the_policy_hears_of_none():
    policy = Listening()
    story = Story(namespace("p"), namespace("q"), policy=policy)
    pause(story, 0.0)
    for offset, kind in enumerate((Kind.TOUCH, Kind.MISS)):
        story.engine.on_hints([Hints(offset, kind, [A, OTHER, B], (5, 1, 2))], 0.0)

    assert story.count("dropped", "paused") == 14
    assert policy.heard == [OTHER, OTHER]


def test_what_waits_when_the_pause_begins_is_dropped_and_its_packs_end(story):
    story.touch(A, at=0.0)
    story.miss(B, at=0.0)
    pause(story, 0.1)

    assert story.starts(0.1) == []
    assert story.count("dropped", "paused") == 2
    assert (story.done, story.engine.pending, story.engine.tracked) == (2, 0, 0)


def test_a_change_still_removes_its_value_and_its_pack_ends_only_then(story):
    pause(story, 0.0)
    story.change(A, at=0.0)

    assert story.done == 0
    assert removed(story, 0.1) == [A]
    assert story.done == 1
    assert story.starts(0.2) == []


def test_a_change_that_waits_when_the_pause_begins_removes_its_value(story):
    story.change(A, at=0.0)
    pause(story, 0.0)

    asked = story.step(0.1)
    assert not asked.units
    assert asked.invalidation.keys == [A]
    story.removed(asked.invalidation, 0.2)
    assert story.done == 1


def test_a_refresh_that_runs_ends_as_usual_and_the_change_behind_it_removes(story):
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    pause(story, 0.1)
    story.change(A, at=0.2)
    story.end(unit, 0.3)

    assert story.count("refreshes", "written") == 1
    asked = story.step(9.0)
    assert not asked.units
    assert asked.invalidation.keys == [A]
    story.removed(asked.invalidation, 9.0)
    assert story.done == 2


def test_a_refresh_that_fails_during_a_pause_is_not_tried_again(story):
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    pause(story, 0.1)
    story.fail(unit, 0.2, own=False)

    assert [story.starts(at) for at in (0.3, 5.0, 60.0)] == [[], [], []]
    assert story.done == 1


def test_a_try_that_was_put_off_is_dropped_when_its_time_comes(story):
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.0, own=False)
    pause(story, 0.01)

    assert story.starts(5.0) == []
    assert (story.done, story.count("dropped", "paused")) == (1, 1)


def test_thousands_of_waiting_keys_leave_in_turns():
    story = Story(namespace("p", max_backlog=10_000), turn_keys=100, unit_keys=10)
    for at in range(50):
        story.touch(*(b"p:%d" % n for n in range(10 * at, 10 * at + 10)), at=0.0)
    pause(story, 0.0)
    while story.engine.pending:
        assert story.starts(0.1) == []

    assert story.count("dropped", "paused") == 500
    assert story.done == 50


def test_after_the_pause_all_is_as_at_first(story):
    pause(story, 0.0)
    story.touch(A, at=0.0)
    story.change(B, at=0.0)
    removed(story, 0.1)
    resume(story, 1.0)
    story.touch(A, at=1.0)
    story.miss(B, at=1.0)

    assert story.refresh(1.0) == [B, A]
    assert story.done == 4


def test_a_quarantined_key_is_tried_at_once_and_alone_when_a_person_asks(story):
    story.touch(A, at=0.0)
    for at in range(5):
        story.fail(story.start(3.0 * at), 3.0 * at, own=True)
    assert list(story.engine.quarantine.keys) == [A]
    story.touch(B, at=41.0)

    assert story.engine.retry([A, B, b"p:99"], 41.0) == 1
    assert story.starts(41.0) == [[A], [B]]
    assert not story.engine.quarantine.keys


def test_a_forgotten_key_is_tried_at_its_next_hint_only(story):
    story.touch(A, at=0.0)
    for at in range(5):
        story.fail(story.start(3.0 * at), 3.0 * at, own=True)

    assert story.engine.quarantine.forget(A)
    assert not story.engine.quarantine.forget(A)
    assert story.starts(41.0) == []
    story.miss(A, at=41.0)
    assert story.starts(41.0) == [[A]]


# --- the entry in Redis -----------------------------------------------------------------------------------


def test_an_entry_says_who_has_paused_and_when():
    assert pause_of(Pause("ann@host", 1.5e9).spelled()) == Pause("ann@host", 1.5e9)


@pytest.mark.parametrize(
    "entry", [b"", b"\xff", b"{}", b"[1]", b'{"by": 1, "since": "x"}', b"9" * 5000, b"[" * 9999]
)
def test_an_entry_of_another_program_pauses_too(entry):
    assert pause_of(entry) == Pause("somebody", None)


def test_a_name_without_end_is_cut_and_no_time_is_absurd():
    assert pause_of(Pause("x" * 9999, 1e300).spelled()) == Pause("x" * BY_MOST, None)
