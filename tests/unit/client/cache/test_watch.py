"""Waiting for leases: one question for all that wait, and none for those whose wait is over."""

from __future__ import annotations

from cacheupdater_client.cache.watch import POLL_S, Waiter, Waiters, freed, keys_of


def waiting(*groups):
    waiters = Waiters()
    each = [Waiter(set(keys)) for keys in groups]
    for waiter in each:
        waiters.add(waiter)
    return waiters, each


def test_all_that_wait_are_asked_for_together_and_not_twice_within_a_moment():
    waiters, _ = waiting({b"a", b"b"}, {b"b", b"c"})
    assert keys_of(waiters.due(1.0)) == [b"a", b"b", b"c"]
    assert waiters.due(1.0 + POLL_S / 2) == []
    assert len(waiters.due(1.0 + 2 * POLL_S)) == 2


def test_a_caller_is_free_when_its_last_key_is():
    waiters, (one, other) = waiting({b"a", b"b"}, {b"b"})
    asked = waiters.due(1.0)
    assert freed(asked, [b"a", b"b"], [True, False]) == [other]
    assert one.keys == {b"a"}


def test_nobody_is_asked_for_whose_keys_are_free_already():
    """Its thread has not run yet: an MGET for it would have no key."""
    waiters, _ = waiting({b"a"})
    freed(waiters.due(1.0), [b"a"], [False])
    assert waiters.due(2.0) == []


def test_a_caller_that_came_after_the_question_has_no_part_in_the_answer():
    waiters, _ = waiting({b"a"})
    asked = waiters.due(1.0)
    late = Waiter({b"a"})
    waiters.add(late)
    freed(asked, keys_of(asked), [False])
    assert late.keys == {b"a"}
