"""Each checker of the simulation accepts a correct history and rejects a wrong one.

The histories are written by hand, as the fakes would have recorded them: one key, one owner, few events.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from simulated import invariants
from simulated.application import Change
from simulated.feeds import Confirmed, Told
from simulated.history import (
    UNREAD,
    CacheEvent,
    CommitCall,
    Drop,
    Expired,
    Flight,
    ForeignGone,
    HandOver,
    Hint,
    Intake,
    Owner,
    Prolonged,
    Read,
    Removal,
    Restart,
    RowCommit,
    Seen,
)
from simulated.plan import draw
from simulated.served import Served

from cacheupdater.core.answers import Result
from cacheupdater.core.hints import KIND_OF
from cacheupdater.core.slots import Slots
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH

KEY = b"a:1"
OWNER = Owner("updater1", 0, 1)
OTHER = Owner("updater2", 0, 3)
PLAN = replace(
    draw(0),
    every=1.0,
    missing_ttl=2.0,
    budget=10.0,
    burst=10.0,
    fleet=False,
    quota=0.0,
    concurrency=2,
    lag=0.0,
)
GAP = PLAN.limits.gap
HEAD_TIMEOUT = PLAN.limits.head_timeout


@pytest.fixture
def seen():
    history = Seen(lambda: 0.0)
    history.starts_of_processes["updater1"] = 0.0
    return history


def refresh(seen, began, *, owner=OWNER, keys=(KEY,), version=1, result=Result.WRITTEN, takes=0.03):
    """A flight whose token, read, write and answer lie a few milliseconds apart."""
    flight = Flight(owner, began, began + 0.001, tuple(keys), began + 0.001, began + 0.002)
    flight.found = dict.fromkeys(keys, version)
    flight.landed = dict.fromkeys(keys, (began + takes - 0.001, result))
    flight.answers = dict.fromkeys(keys, result)
    flight.ended = began + takes
    seen.flights.append(flight)
    return flight


def hint(seen, at, kind):
    """A pack on the queue that its owner has read at once."""
    one = Hint(at, 0, len(seen.hints), KIND_OF[kind], (KEY,), is_set=kind == SET)
    seen.hints.append(one)
    seen.intakes.append(Intake(at, OWNER, one))


def rows(seen, *commits):
    seen.rows[KEY] = [RowCommit(*commit) for commit in commits]


def l1(seen):
    return invariants.l1_no_hint_is_lost(seen, Served(seen, PLAN))


# --- L1 -------------------------------------------------------------------------------------------------


def test_l1_wants_a_read_after_each_change(seen):
    hint(seen, 1.0, CHANGE)
    refresh(seen, 0.99)
    assert l1(seen)
    refresh(seen, 1.01)
    assert not l1(seen)


def test_l1_takes_no_refused_write_for_a_refresh(seen):
    hint(seen, 1.0, CHANGE)
    refresh(seen, 1.01, result=Result.REFUSED)
    assert l1(seen)


def test_l1_wants_a_dropped_change_to_remove_its_value(seen):
    hint(seen, 1.0, CHANGE)
    seen.drops.append(Drop(1.1, OWNER, KEY, "aged"))
    seen.removals.append(Removal((KEY,), at=1.1))
    assert l1(seen)
    seen.removals[0].acked = 1.2
    assert not l1(seen)


def test_l1_wants_a_refresh_that_finished_around_a_miss(seen):
    hint(seen, 1.0, MISS)
    refresh(seen, 0.9)
    assert l1(seen)
    refresh(seen, 0.96)
    assert not l1(seen)


def test_l1_lets_a_live_absent_mark_answer_misses(seen):
    hint(seen, 1.5, MISS)
    refresh(seen, 0.5, version=None)
    assert not l1(seen)


@pytest.mark.parametrize("kind", [TOUCH, CHANGE])
def test_l1_ends_an_absent_mark_at_a_touch_or_change(seen, kind):
    refresh(seen, 0.5, version=None)
    hint(seen, 0.6, kind)
    refresh(seen, 0.61, result=Result.FAILED)
    hint(seen, 1.5, MISS)
    assert any("miss" in violation for violation in l1(seen))


def test_l1_ends_an_absent_mark_with_its_ttl_and_its_owner(seen):
    refresh(seen, 0.5, version=None, owner=OTHER)
    refresh(seen, 0.5, version=None)
    hint(seen, 2.6, MISS)
    assert l1(seen)
    seen.flights.pop()
    seen.hints.clear()
    hint(seen, 1.0, MISS)
    assert l1(seen)


def test_l1_wants_a_refresh_within_the_hold_of_a_touch(seen):
    hint(seen, 2.0, TOUCH)
    refresh(seen, 0.99)
    assert l1(seen)
    refresh(seen, 1.01)
    assert not l1(seen)


def test_l1_takes_a_counted_drop_of_a_touch(seen):
    hint(seen, 2.0, TOUCH)
    seen.drops.append(Drop(1.9, OWNER, KEY, "backlog"))
    assert l1(seen)
    seen.drops.append(Drop(2.1, OWNER, KEY, "backlog"))
    assert not l1(seen)


def test_l1_takes_hints_that_vanished_and_were_counted(seen):
    hint(seen, 1.0, CHANGE)
    hint(seen, 1.1, CHANGE)
    seen.expired.append(Expired(1.2, 0, 0, 1))
    assert [violation for violation in l1(seen) if "offset 1" in violation] == l1(seen) != []
    seen.expired.append(Expired(1.3, 1, 0, 9))
    assert l1(seen)
    seen.expired.append(Expired(1.3, 0, 1, 2))
    assert not l1(seen)


# --- L2 -------------------------------------------------------------------------------------------------


def test_l2_sees_two_heads_of_one_key(seen):
    refresh(seen, 1.0, takes=0.2)
    refresh(seen, 1.1, owner=OTHER)
    assert not invariants.l2_one_head_per_key_and_owner(seen, PLAN)
    refresh(seen, 1.1)
    assert invariants.l2_one_head_per_key_and_owner(seen, PLAN)


def test_l2_forgives_what_comes_after_an_eviction(seen):
    refresh(seen, 1.0, takes=5.0)
    refresh(seen, 1.0 + HEAD_TIMEOUT)
    assert not invariants.l2_one_head_per_key_and_owner(seen, PLAN)


# --- S1, S2, S3 -----------------------------------------------------------------------------------------


def stale_set(seen, *, acked):
    """Version 1 is read, replaced and invalidated, then written."""
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(1.1, KEY, "invalidate", covers=1.1, acked=acked))
    seen.cache.append(CacheEvent(1.2, KEY, "write", 1, begun=0.9))


def test_s1_sees_a_value_older_than_an_invalidation(seen):
    stale_set(seen, acked=True)
    assert invariants.s1_nothing_older_than_an_invalidation(seen)


def test_s1_promises_nothing_before_the_acknowledgement(seen):
    stale_set(seen, acked=False)
    assert not invariants.s1_nothing_older_than_an_invalidation(seen)


def test_s1_excepts_what_began_before_a_data_loss(seen):
    stale_set(seen, acked=True)
    seen.cache.insert(1, CacheEvent(1.15, KEY, "loss"))
    assert not invariants.s1_nothing_older_than_an_invalidation(seen)
    seen.cache[-1].begun = 1.16
    assert invariants.s1_nothing_older_than_an_invalidation(seen)


def test_s1_takes_a_write_through_for_an_invalidation_of_what_was_before(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(1.1, KEY, "set_through", 2, begun=0.9, covers=1.0, acked=True))
    assert not invariants.s1_nothing_older_than_an_invalidation(seen)
    seen.cache.append(CacheEvent(1.2, KEY, "write", 1, begun=0.9))
    assert invariants.s1_nothing_older_than_an_invalidation(seen)


def at_rest(seen, value):
    """A world with one key, whose value at the end is this."""
    server = SimpleNamespace(get=lambda key: value)
    cache = SimpleNamespace(server=server)
    return SimpleNamespace(seen=seen, plan=PLAN, keys=[KEY], changes=[], cache=cache, fed=None)


def test_s2_sees_an_announced_change_that_the_cache_has_not(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    world = at_rest(seen, b"1")
    assert not invariants.s2_at_rest_empty_or_equal(world)
    world.changes.append(Change(KEY, 1.0, "invalidate", fenced=1.1, covers=1.1))
    assert invariants.s2_at_rest_empty_or_equal(world)
    for fine in (None, b"2"):
        world.cache.server.get = lambda key, fine=fine: fine
        assert not invariants.s2_at_rest_empty_or_equal(world)


def test_s2_takes_every_change_since_a_feed_began_for_an_announcement(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    world = at_rest(seen, b"1")
    world.fed = SimpleNamespace(began=1.1)
    assert not invariants.s2_at_rest_empty_or_equal(world)
    world.fed.began = 0.0
    assert invariants.s2_at_rest_empty_or_equal(world)


def test_s2_takes_a_queued_hint_for_an_announcement(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    hint(seen, 1.1, CHANGE)
    assert invariants.s2_at_rest_empty_or_equal(at_rest(seen, b"1"))


def test_s2_promises_nothing_for_a_hint_that_vanished(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    hint(seen, 1.1, CHANGE)
    seen.expired.append(Expired(1.2, 0, 0, 1))
    world = at_rest(seen, b"1")
    assert not invariants.s2_at_rest_empty_or_equal(world)
    world.changes.append(Change(KEY, 1.0, "invalidate", fenced=1.1, covers=1.1))
    assert invariants.s2_at_rest_empty_or_equal(world)


def test_s2_knows_that_a_value_written_through_announces_no_later_change(seen):
    """The hint that goes with the value does; it has vanished here."""
    rows(seen, (0.0, 1), (1.0, 2), (1.1, 3))
    seen.cache.append(CacheEvent(1.2, KEY, "set_through", 2, begun=0.9, covers=1.0))
    world = at_rest(seen, b"2")
    world.changes.append(Change(KEY, 1.0, "write_through", fenced=1.2, covers=1.0))
    assert not invariants.s2_at_rest_empty_or_equal(world)
    hint(seen, 1.3, CHANGE)
    assert invariants.s2_at_rest_empty_or_equal(world)


def test_s2_takes_a_set_for_an_announcement_unless_its_value_was_spared(seen):
    """Nothing loads a paused key, and its value is the application's own. A later writer of its row has to announce the change."""
    rows(seen, (0.0, 1), (1.0, 2), (1.1, 3))
    seen.cache.append(CacheEvent(1.2, KEY, "set_through", 2, begun=0.9, covers=1.0))
    hint(seen, 1.3, SET)
    seen.drops += [Drop(1.2, OWNER, KEY, "paused"), Drop(1.4, OWNER, KEY, "aged")]
    world = at_rest(seen, b"2")
    assert invariants.s2_at_rest_empty_or_equal(world)
    seen.drops.append(Drop(1.3, OWNER, KEY, "paused"))
    assert not invariants.s2_at_rest_empty_or_equal(world)
    hint(seen, 1.3, CHANGE)
    assert invariants.s2_at_rest_empty_or_equal(world)


def test_s2_holds_for_unannounced_changes_from_the_next_refresh_on(seen):
    rows(seen, (0.0, 1), (1.0, 2))
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    refresh(seen, 1.1, version=2)
    assert invariants.s2_at_rest_empty_or_equal(at_rest(seen, b"1"))


def test_s3_sees_a_deleted_row_come_back(seen):
    rows(seen, (0.0, 1), (1.0, None), (2.0, 3))
    world = at_rest(seen, None)
    world.changes.append(Change(KEY, 1.0, "invalidate", fenced=1.1, covers=1.1))
    seen.cache.append(CacheEvent(1.05, KEY, "write", 1, begun=0.9))
    seen.cache.append(CacheEvent(2.1, KEY, "write", 3, begun=2.0))
    assert not invariants.s3_deletes_stay_deleted(world)
    seen.cache.append(CacheEvent(1.2, KEY, "write", 1, begun=0.9))
    assert invariants.s3_deletes_stay_deleted(world)


# --- F1, F2, F3 -----------------------------------------------------------------------------------------

SAFE = replace(PLAN, ttl=2.0, fail_safe=1.0, away=True)


def readings(seen, *times, found=True):
    seen.reads += [Read(at, KEY, found) for at in times]
    seen.reads.sort()


def test_f1_sees_a_value_that_is_older_than_it_may_get(seen):
    seen.cache.append(CacheEvent(0.5, KEY, "write", 1, begun=0.4))
    readings(seen, 3.39)
    assert not invariants.f1_no_value_is_older_than_ttl_and_fail_safe(seen, SAFE)
    readings(seen, 3.41)
    assert invariants.f1_no_value_is_older_than_ttl_and_fail_safe(seen, SAFE)
    seen.cache.append(CacheEvent(3.405, KEY, "write", 1, begun=3.404))
    assert not invariants.f1_no_value_is_older_than_ttl_and_fail_safe(seen, SAFE)


def lost(seen, plan=SAFE, changes=()):
    """The database is away from 1 s to 4 s."""
    seen.outages = [(1.0, 4.0)]
    world = SimpleNamespace(seen=seen, plan=plan, keys=[KEY], changes=list(changes))
    return invariants.f2_what_is_read_lives_on(world)


def test_f2_sees_a_value_expire_that_was_read_within_its_ttl(seen):
    seen.cache.append(CacheEvent(0.9, KEY, "write", 1, begun=0.8))
    readings(seen, 1.7, 2.2)
    assert not lost(seen)
    readings(seen, 2.9, found=False)
    assert lost(seen)
    assert not lost(seen, changes=[Change(KEY, 1.5, "hint")])
    assert not lost(seen, replace(SAFE, away=False))


@pytest.mark.parametrize(
    "reads",
    [(1.2, 1.3), (1.7,), (1.7, 1.8)],
    ids=["before the outage is known", "alone", "too soon after each other"],
)
def test_f2_promises_nothing_for_reads_that_leave_no_time_to_act(seen, reads):
    seen.cache.append(CacheEvent(0.9, KEY, "write", 1, begun=0.8))
    readings(seen, *reads)
    readings(seen, 2.9, found=False)
    assert not lost(seen)


def test_f2_lets_a_value_go_that_is_as_old_as_it_may_get(seen):
    seen.cache.append(CacheEvent(0.1, KEY, "write", 1, begun=0.0))
    readings(seen, 1.7, 2.2)
    readings(seen, 3.0, found=False)
    assert not lost(seen)


def test_f3_sees_more_time_for_a_value_whose_change_was_read_and_not_served(seen):
    seen.prolonged.append(Prolonged(2.0, KEY, OWNER, 1.9))
    hint(seen, 1.8, CHANGE)
    assert invariants.f3_no_changed_value_lives_on(seen, Served(seen, PLAN))
    refresh(seen, 1.81)
    assert not invariants.f3_no_changed_value_lives_on(seen, Served(seen, PLAN))


def test_f3_forgives_a_change_that_came_after_the_request(seen):
    seen.prolonged.append(Prolonged(2.0, KEY, OWNER, 1.9))
    hint(seen, 1.95, CHANGE)
    assert not invariants.f3_no_changed_value_lives_on(seen, Served(seen, PLAN))


# --- K1 -------------------------------------------------------------------------------------------------


def k1(seen):
    return invariants.k1_done_passes_only_what_is_finished(seen, Served(seen, PLAN))


def test_k1_sees_a_commit_past_what_is_not_finished(seen):
    hint(seen, 1.0, CHANGE)
    refresh(seen, 1.01)
    seen.commits.append(CommitCall(1.2, OWNER, 1, True))
    assert not k1(seen)
    seen.commits[0] = CommitCall(1.02, OWNER, 1, True)
    assert k1(seen)
    seen.commits[0] = CommitCall(1.02, OWNER, 1, False)
    assert not k1(seen)


def k1_of_a_feed(seen, *, memory, gave_up=False, confirmed=1.2, by="updater1"):
    """A log tells of a change of the key at 1.0, and a row of another table concerns the key at 1.1."""
    fed = SimpleNamespace(
        told=[[Told(1.0, 1, (KEY,)), Told(1.1, 2, (), (KEY,))]],
        confirmed=[[Confirmed(confirmed, 2, by)]],
        gave_up=gave_up,
    )
    world = SimpleNamespace(seen=seen, fed=fed, plan=SimpleNamespace(fed=SimpleNamespace(memory=memory)))
    return invariants.k1_feeds_confirm_only_what_is_safe(world, Served(seen, PLAN))


def test_k1_sees_a_feed_confirmed_before_its_changes_are_on_the_queue(seen):
    hint(seen, 1.15, TOUCH)
    assert len(k1_of_a_feed(seen, memory=False)) == 2
    hint(seen, 1.05, CHANGE)
    assert len(k1_of_a_feed(seen, memory=False)) == 1, "the second change came later"
    assert not k1_of_a_feed(seen, memory=False, gave_up=True), "then all keys in Redis count as changed"
    hint(seen, 1.15, CHANGE)
    assert not k1_of_a_feed(seen, memory=False)
    assert k1_of_a_feed(seen, memory=False, confirmed=1.12)
    assert not k1_of_a_feed(seen, memory=False, confirmed=1.12, by=""), "the log has lost them"


def test_k1_sees_a_feed_confirmed_before_its_changes_in_a_memory_queue_are_served(seen):
    hint(seen, 1.15, CHANGE)
    assert k1_of_a_feed(seen, memory=True)
    refresh(seen, 1.16)
    assert not k1_of_a_feed(seen, memory=True)
    assert k1_of_a_feed(seen, memory=True, confirmed=1.17)


def test_l1_owes_a_touch_of_a_key_whose_fed_change_was_removed(seen):
    hint(seen, 1.0, TOUCH)
    seen.drops.append(Drop(1.1, OWNER, KEY, UNREAD))
    assert invariants.l1_no_hint_is_lost(seen, Served(seen, PLAN))


def test_k1_sees_done_move_back_within_an_epoch(seen):
    seen.commits += [CommitCall(1.0, OWNER, 5, True), CommitCall(1.1, OTHER, 3, True)]
    assert not k1(seen)
    seen.commits.append(CommitCall(1.2, OWNER, 4, True))
    assert k1(seen)


def test_k1_lets_done_pass_only_what_was_counted_as_vanished_by_then(seen):
    hint(seen, 1.0, CHANGE)
    seen.expired.append(Expired(1.2, 0, 0, 1))
    seen.commits.append(CommitCall(1.3, OWNER, 1, True))
    assert not k1(seen)
    seen.commits[0] = CommitCall(1.1, OWNER, 1, True)
    assert k1(seen)


def test_k1_knows_a_topic_that_began_anew_from_the_old_one(seen):
    hint(seen, 1.0, CHANGE)
    refresh(seen, 1.01)
    seen.commits.append(CommitCall(1.2, OWNER, 1, True))
    seen.hints.append(Hint(1.3, 0, 0, CHANGE, (KEY,), topic=1))
    assert not k1(seen)
    seen.commits.append(CommitCall(1.4, OTHER, 1, True, topic=1))
    assert k1(seen)


def test_k1_sees_a_commit_for_a_partition_that_is_somebody_elses(seen):
    seen.commits.append(CommitCall(1.0, OWNER, 1, True, OWNER))
    assert not k1(seen)
    seen.commits.append(CommitCall(1.1, OWNER, 2, False, OTHER))
    assert not k1(seen)
    seen.commits.append(CommitCall(1.1, OWNER, 2, True, OTHER))
    assert k1(seen)


# --- H1 -------------------------------------------------------------------------------------------------


def test_h1_wants_everything_finished_to_be_said_before_a_hand_over(seen):
    seen.hand_overs.append(HandOver(1.0, OWNER, done=3, said=3))
    assert not invariants.h1_hand_over_says_what_is_finished(seen)
    seen.hand_overs.append(HandOver(1.0, OWNER, done=3, said=2))
    assert invariants.h1_hand_over_says_what_is_finished(seen)


# --- O1 -------------------------------------------------------------------------------------------------


def test_o1_wants_each_pack_once_and_in_order(seen):
    for offset, owner in ((3, OWNER), (5, OWNER), (4, OTHER)):
        seen.intakes.append(Intake(1.0, owner, Hint(0.5, 0, offset, TOUCH, (KEY,))))
    assert not invariants.o1_each_pack_once_and_in_order(seen)
    seen.intakes.append(Intake(1.0, OWNER, Hint(0.5, 0, 0, TOUCH, (KEY,), topic=1)))
    assert not invariants.o1_each_pack_once_and_in_order(seen)
    seen.intakes.append(Intake(1.0, OTHER, Hint(0.5, 0, 4, TOUCH, (KEY,))))
    assert len(invariants.o1_each_pack_once_and_in_order(seen)) == 1


# --- Q1 -------------------------------------------------------------------------------------------------


def test_q1_sees_rows_beyond_the_budget(seen):
    refresh(seen, 0.5, keys=[b"a:%d" % n for n in range(5)])
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    refresh(seen, 0.6, keys=[b"a:%d" % n for n in range(5, 9)])
    assert any("budget" in each for each in invariants.q1_budget_hold_and_gap(seen, PLAN))


def test_q1_sees_what_two_members_spend_together_beyond_the_budget(seen):
    seen.starts_of_processes["updater2"] = 0.0
    refresh(seen, 0.5, keys=[b"a:%d" % n for n in range(5)])
    other = OWNER._replace(process="updater2", partition=OWNER.partition + 1)
    refresh(seen, 1.0, owner=other, keys=[b"a:%d" % n for n in range(5, 10)])
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    refresh(seen, 1.1, owner=other, keys=[b"a:%d" % n for n in range(10, 13)])
    [told] = invariants.q1_budget_hold_and_gap(seen, PLAN)
    assert "the group" in told


def test_q1_counts_a_row_when_its_statement_leaves(seen):
    early = refresh(seen, 0.1, keys=[b"a:%d" % n for n in range(5)])
    refresh(seen, 0.5, keys=[b"a:%d" % n for n in range(5, 10)])
    assert any("budget" in each for each in invariants.q1_budget_hold_and_gap(seen, PLAN))
    early.left = 1.1
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    early.left = 0.6
    assert any("budget" in each for each in invariants.q1_budget_hold_and_gap(seen, PLAN))


def test_q1_sees_touches_less_than_a_hold_apart(seen):
    refresh(seen, 1.0)
    refresh(seen, 2.01)
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    refresh(seen, 2.5)
    assert invariants.q1_budget_hold_and_gap(seen, PLAN)
    hint(seen, 2.4, CHANGE)
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)


def test_q1_sees_starts_for_misses_less_than_a_gap_apart(seen):
    refresh(seen, 1.0)
    hint(seen, 1.01, MISS)
    refresh(seen, 1.0 + GAP / 2)
    assert invariants.q1_budget_hold_and_gap(seen, PLAN)


def test_q1_lets_a_change_follow_a_read_at_once_and_not_another_change(seen):
    refresh(seen, 1.0)
    hint(seen, 1.01, CHANGE)
    refresh(seen, 1.0 + GAP / 4)
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    hint(seen, 1.0 + GAP / 3, CHANGE)
    refresh(seen, 1.0 + GAP / 2)
    assert invariants.q1_budget_hold_and_gap(seen, PLAN)


def test_q1_lets_a_change_follow_a_read_at_once_after_a_change_that_was_dropped(seen):
    hint(seen, 0.5, CHANGE)
    seen.drops.append(Drop(0.7, OWNER, KEY, "backlog"))
    refresh(seen, 1.0)
    hint(seen, 1.01, CHANGE)
    refresh(seen, 1.0 + GAP / 4)
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)
    seen.drops.clear()
    assert invariants.q1_budget_hold_and_gap(seen, PLAN)


def test_q1_excepts_what_follows_a_failure(seen):
    refresh(seen, 1.0, result=Result.FAILED)
    refresh(seen, 1.0 + GAP / 2)
    assert not invariants.q1_budget_hold_and_gap(seen, PLAN)


def test_q1_holds_a_fleet_to_its_budget_whoever_was_thrown_out(seen):
    plan = replace(PLAN, fleet=True, burst=2.0)
    seen.starts_of_processes["updater2"] = 0.0
    for owner, keys in ((OWNER, (b"a:1", b"a:2")), (OTHER, (b"a:3",))):
        refresh(seen, 1.0, owner=owner, keys=keys).lost = owner is OTHER
    assert invariants.q1_budget_hold_and_gap(seen, plan)
    assert not invariants.q1_budget_hold_and_gap(seen, replace(plan, fleet=False))
    assert not invariants.q1_budget_hold_and_gap(seen, replace(plan, burst=3.0))


# --- V1, A1, W1, R1 -------------------------------------------------------------------------------------


def test_v1_knows_the_versions_of_a_row(seen):
    rows(seen, (0.0, 1), (1.0, None))
    seen.cache += [CacheEvent(2.0, KEY, "write", 1), CacheEvent(2.1, KEY, "write", None)]
    assert not invariants.v1_every_value_is_its_rows(seen)
    seen.cache.append(CacheEvent(2.2, KEY, "write", 2))
    assert len(invariants.v1_every_value_is_its_rows(seen)) == 1
    assert not invariants.s1_nothing_older_than_an_invalidation(seen)


def test_a1_compares_what_redis_did_with_what_was_read(seen):
    flight = refresh(seen, 1.0)
    assert not invariants.a1_a_reply_is_read_as_what_it_says(seen)
    flight.answers[KEY] = Result.UNCHANGED
    assert invariants.a1_a_reply_is_read_as_what_it_says(seen)
    flight.landed.clear()  # nothing was sent: the connection that had its token was gone
    assert not invariants.a1_a_reply_is_read_as_what_it_says(seen)


def world_with(seen, value, *, gives_way):
    cache = SimpleNamespace(server=SimpleNamespace(get=lambda key: value))
    return SimpleNamespace(seen=seen, cache=cache, plan=replace(PLAN, replace=gives_way), keys=[KEY])


def test_w1_leaves_foreign_values_to_applications(seen):
    kept, gives_way = (world_with(seen, None, gives_way=each) for each in (False, True))
    assert not invariants.w1_foreign_values_stay(kept)
    seen.foreign_gone.append(ForeignGone(1.0, KEY, "updater1"))
    assert invariants.w1_foreign_values_stay(kept)
    assert not invariants.w1_foreign_values_stay(gives_way)


def test_w1_wants_a_refresh_to_replace_what_gives_way(seen):
    world = world_with(seen, b"foreign 1", gives_way=True)
    refresh(seen, 0.9)
    seen.cache.append(CacheEvent(1.0, KEY, "foreign"))
    assert not invariants.w1_foreign_values_stay(world)
    assert not invariants.s2_at_rest_empty_or_equal(world)
    refresh(seen, 1.1)
    assert invariants.w1_foreign_values_stay(world)


def test_r1_compares_what_was_saved_with_what_is_known(seen):
    seen.restarts.append(Restart(1.0, "updater2", 0.5, 0.5))
    assert not invariants.r1_what_was_learned_survives(seen)
    seen.restarts.append(Restart(1.0, "updater2", frozenset({KEY}), frozenset()))
    assert invariants.r1_what_was_learned_survives(seen)


# --- M1, I1 ---------------------------------------------------------------------------------------------


class FakeEngine:
    """An engine at rest, with the parts that the checkers look at."""

    def __init__(self):
        bucket = SimpleNamespace(_apart=0)
        namespace = SimpleNamespace(max_backlog=10, absent_bucket=bucket)
        backlog = SimpleNamespace(waiting=0, namespace=namespace)
        schedule = SimpleNamespace(waiting=0, _backlogs={"a": backlog})
        self._dedup = SimpleNamespace(tails={}, running_keys=0, schedule=schedule, _running={}, _late=0)
        self._marks, self.quarantine, self._troubles = [], [], []
        self.pending = self.tracked = 0
        self.backlog, self.bucket = backlog, bucket


def world_of(engine):
    source = SimpleNamespace(slots=Slots(PLAN.concurrency))
    process = SimpleNamespace(name="updater1")
    updater = SimpleNamespace(engines=[engine], source=source, process=process)
    outbox = SimpleNamespace(_keys=0, _bytes=0)
    application = SimpleNamespace(client=SimpleNamespace(outbox=outbox))
    broker = SimpleNamespace(done=[0], logs=[[]])
    return SimpleNamespace(
        plan=PLAN, keys=[KEY], updaters=[updater], applications=[application], broker=broker
    )


def test_m1_sees_a_table_beyond_its_cap():
    engine = FakeEngine()
    assert not invariants.over_caps(world_of(engine))
    engine.backlog.waiting = 11
    engine.tracked = 2
    engine._marks = range(PLAN.limits.absent + 1)
    assert len(invariants.over_caps(world_of(engine))) == 3
    assert invariants.reads_on(5, 5)
    assert not invariants.reads_on(4, 5)


def test_i1_sees_what_is_left_and_who_never_came_to_rest():
    engine = FakeEngine()
    assert not invariants.i1_every_key_ends_idle(world_of(engine), idle=True)
    assert invariants.i1_every_key_ends_idle(world_of(engine), idle=False)
    engine._troubles = [KEY]
    assert invariants.i1_every_key_ends_idle(world_of(engine), idle=True)
    engine._troubles = []
    engine.bucket._apart = 1
    assert invariants.i1_every_key_ends_idle(world_of(engine), idle=True)


def test_died_names_the_process(seen):
    assert not invariants.died(seen)
    seen.died.append((1.0, "updater1", "KeyError(0)"))
    assert invariants.died(seen)
