"""Members share partitions by rules that each of them computes alike, and a member never believes in its session for too long."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.core.membership import Plan, Roster, Session, plan, rightful

NAMES = st.sets(st.sampled_from("abcdefgh"), min_size=1)


def _roster(members, owners=()):
    return Roster(frozenset(members), dict(owners))


def _owners(members, partitions):
    return {partition: rightful(partition, members) for partition in range(partitions)}


@given(members=NAMES, joining=st.sampled_from("xyz"))
def test_only_partitions_to_or_from_a_member_that_joins_or_leaves_move(members, joining):
    without, with_it = _owners(members, 200), _owners({*members, joining}, 200)
    assert {with_it[p] for p in without if without[p] != with_it[p]} <= {joining}


def test_a_fourth_member_gets_a_quarter_of_many_partitions_and_no_member_is_left_with_little():
    owners = _owners(["one", "two", "three", "four"], 5_000)
    assert all(0.22 < count / 5_000 < 0.28 for count in Counter(owners.values()).values())


def test_every_process_of_every_release_finds_the_same_rightful_members():
    owners = _owners("abc", 24)
    assert "".join(owners.values()) == "ccaabccccbccbcbcbcabbbbc"


def test_a_member_alone_claims_all_that_is_free():
    assert plan(_roster("a"), "a", 3) == Plan(claim=(0, 1, 2), release=())
    assert plan(_roster("a", {1: "a"}), "a", 3) == Plan(claim=(0, 2), release=())


def test_a_member_waits_for_partitions_that_another_has_not_released():
    roster = _roster("ab", dict.fromkeys(range(20), "a"))
    assert plan(roster, "b", 20) == Plan((), ())


@given(members=NAMES, start=NAMES, count=st.integers(0, 40))
def test_plans_lead_to_the_rightful_members_in_two_steps(members, start, count):
    owners = {p: m for p, m in _owners(start, count).items() if m in members}
    for _ in range(2):
        plans = {me: plan(_roster(members, owners), me, count) for me in members}
        for planned in plans.values():
            for partition in planned.release:
                del owners[partition]
        for me, planned in plans.items():
            assert not owners.keys() & planned.claim
            owners |= dict.fromkeys(planned.claim, me)
    assert owners == _owners(members, count)


@given(members=NAMES, owners=st.dictionaries(st.integers(0, 19), st.sampled_from("abcdefgh")))
def test_no_plan_touches_what_another_member_owns(members, owners):
    owners = {p: m for p, m in owners.items() if m in members}
    for me in members:
        planned = plan(_roster(members, owners), me, 20)
        assert all(owners[p] == me for p in planned.release)
        assert not owners.keys() & set(planned.claim)


def test_a_session_counts_from_before_its_renewal_was_sent():
    session = Session(5.0)
    assert not session.runs(100.0)
    session.renewed(sent=100.0)
    assert session.runs(104.999)
    assert not session.runs(105.0)


def test_the_answer_to_an_older_renewal_does_not_shorten_a_session():
    session = Session(5.0)
    session.renewed(sent=101.0)
    session.renewed(sent=100.0)
    assert session.runs(105.9)


def test_a_session_that_was_ended_runs_no_more():
    session = Session(5.0)
    session.renewed(sent=100.0)
    session.end()
    assert not session.runs(100.0)


def test_a_session_is_renewed_often_enough_to_lose_some_renewals_and_to_see_a_takeover_within_a_second():
    assert all(Session(length).every <= length / 5 for length in (0.1, 1.0, 5.0, 60.0))
    assert Session(60.0).every < 1.0
