"""Keys that readers have filled themselves: what the updater need not load, and what it loads all the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.answers import Result
from cacheupdater.core.fills import Claims
from cacheupdater.core.redis_clock import SKEW_S

A, B = b"p:1", b"p:2"
EVERY, TTL = 5.0, 300.0


@pytest.fixture
def story():
    return Story(namespace(every=EVERY, ttl=TTL))


def test_a_filled_key_is_not_loaded_until_the_next_interval(story):
    story.fill(A, at=10.2, began=10.0)
    story.touch(A, at=10.3)
    story.touch(A, at=14.9)
    assert story.starts(14.9) == []
    story.touch(A, at=15.0)
    assert story.starts(15.0) == [[A]]
    assert story.count("decisions", "filled") == 1


def test_a_filled_key_leaves_no_trace_when_nobody_reads_it_again(story):
    story.fill(A, at=10.2, began=10.0)
    assert (story.done, story.engine.pending, story.engine.tracked) == (1, 0, 1)
    assert story.step(15.0).units == []
    assert story.engine.tracked == 0


def test_a_load_that_waits_for_a_touch_is_not_needed_any_more(story):
    story.touch(A, B, at=10.1)
    story.fill(A, at=10.2, began=10.0)
    assert story.starts(10.2) == [[B]]
    assert story.engine.tracked == 2


@pytest.mark.parametrize("hint", ["change", "miss"])
def test_a_load_that_waits_for_more_than_a_touch_runs(story, hint):
    getattr(story, hint)(A, at=10.1)
    story.fill(A, at=10.2, began=10.15)
    assert story.starts(10.2) == [[A]]


def test_a_change_after_the_fill_is_loaded(story):
    story.fill(A, at=10.2, began=10.0)
    story.change(A, at=10.21)
    assert story.starts(10.21) == [[A]]


def test_a_change_that_was_refused_by_a_newer_floor_is_loaded(story):
    """The floor shows a change that nobody has announced here."""
    story.touch(A, at=10.0)
    unit = story.start(10.0)
    story.end(unit, 10.1, Result.REFUSED)
    story.fill(A, at=10.3, began=10.2)
    assert story.starts(10.3) == [[A]]


def test_a_key_that_waits_for_its_next_try_goes_on_waiting(story):
    story.touch(A, at=10.0)
    story.fail(story.start(10.0), 10.1, own=True)
    story.fill(A, at=10.11, began=10.105)
    assert story.starts(12.2) == [[A]]


def test_a_fill_that_a_later_load_has_overtaken_changes_nothing(story):
    story.touch(A, at=10.0)
    story.end(story.start(10.0), 10.1)
    story.fill(A, at=12.0, began=9.9)
    story.touch(A, at=15.0)
    assert story.starts(15.0) == [[A]]


def test_a_fill_after_our_own_load_puts_the_next_one_off(story):
    story.touch(A, at=10.0)
    story.end(story.start(10.0), 10.1)
    story.fill(A, at=12.0, began=11.9)
    story.touch(A, at=16.8)
    assert story.starts(16.8) == []
    story.touch(A, at=16.9)
    assert story.starts(16.9) == [[A]]


def test_a_fill_of_a_key_that_is_being_loaded_leaves_no_second_load(story):
    story.touch(A, at=10.0)
    unit = story.start(10.0)
    story.fill(A, at=15.5, began=15.2)  # after the hold, a touch would wait behind the running load
    story.end(unit, 15.6)
    assert story.starts(15.7) == []


def test_a_fill_that_came_too_late_is_a_touch(story):
    story.fill(A, at=15.0, began=10.0)
    assert story.starts(15.0) == [[A]]


@pytest.mark.parametrize("began", [10.0 + 2 * SKEW_S, 1e9])
def test_a_token_that_nobody_can_have_taken_yet_is_not_believed(story, began):
    story.fill(A, at=10.0, began=began)
    assert story.starts(10.0) == [[A]]


def test_a_token_of_a_clock_that_is_a_little_ahead_counts_from_now(story):
    story.fill(A, at=10.0, began=10.0 + SKEW_S / 2)
    story.touch(A, at=14.9)
    assert story.starts(14.9) == []
    story.touch(A, at=15.0)
    assert story.starts(15.0) == [[A]]


def test_while_the_time_of_redis_is_unknown_a_fill_is_a_touch(story):
    story.fill(A, at=10.0, began=10.0, known=False)
    assert story.starts(10.0) == [[A]]


def test_a_client_cannot_keep_a_key_old_by_claiming_fills(story):
    """Whoever may send hints may claim a fill every second: one refresh comes an interval late, and no more."""
    starts, at = [], 10.0
    while at < 10.0 + TTL / 2:
        story.fill(A, at=at, began=at)
        starts += [at for _ in story.refresh(at)]
        at += 1.0
    assert starts[0] == 10.0 + EVERY
    assert max(later - earlier for earlier, later in pairwise(starts)) <= EVERY


def test_a_value_that_has_lived_its_life_may_be_filled_again(story):
    for at in (10.0, 10.0 + TTL / 2):
        story.fill(A, at=at, began=at)
        story.touch(A, at=at + EVERY - 0.1)
        assert story.starts(at + EVERY - 0.1) == []


def test_claims_of_many_keys_take_a_bounded_memory():
    story = Story(namespace(every=EVERY, ttl=TTL), claims=10)
    story.fill(*(b"p:%d" % n for n in range(10)), at=10.0, began=10.0)
    story.fill(b"p:100", at=10.0, began=10.0)
    assert story.refresh(10.0) == [b"p:100"]
    assert len(story.engine._fills.claims) == 10
    later = 10.0 + TTL / 2
    story.fill(b"p:100", at=later, began=later)
    assert story.starts(later) == []


def test_a_full_table_of_claims_is_not_searched_at_every_claim():
    claims = Claims(1)
    claims.put([A], until=10.5)
    assert not claims.believes(B, 10.0)
    assert not claims.believes(B, 10.9)  # A is over, and nobody has looked
    assert claims.believes(B, 11.0)


def test_keys_of_one_pack_are_held_from_their_own_loads_on(story):
    story.fill(A, B, at=12.0, began=[10.0, 11.9])
    story.touch(A, B, at=15.0)
    assert story.starts(15.0) == [[A]]


def test_a_key_in_quarantine_stays_there():
    story = Story(namespace(every=EVERY), max_attempts=1)
    story.touch(A, at=10.0)
    story.fail(story.start(10.0), 10.1, own=True)
    story.fill(A, at=10.3, began=10.2)
    assert story.count("dropped", "quarantined") == 2
    assert story.engine.tracked == 0


def test_a_strangers_key_stays_a_strangers(story):
    story.touch(b"z:1", at=10.0)
    story.fill(b"z:1", A, at=10.2, began=10.1)
    assert story.starts(10.2) == []
    assert story.count("dropped", "unknown") == 2


def test_a_key_that_a_pack_names_twice_is_held_once(story):
    story.fill(A, A, at=10.2, began=10.0)
    assert story.engine.tracked == 1
    assert story.starts(10.2) == []
