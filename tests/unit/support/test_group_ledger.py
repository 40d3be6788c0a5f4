"""The checks of the group's stories, each on a small correct ledger and on a falsified one."""

from __future__ import annotations

import numpy as np
import pytest
from group import ledger
from group.ledger import MILLISECOND, SECOND, Commits, Hints, Loads, Records, Slack, Values

from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

START = 1_700_000_000 * SECOND
SLACK = Slack(touch=10 * SECOND, miss=3 * SECOND)


def numbers(*values):
    return np.array(values, dtype=np.int64)


def at(*seconds):
    return np.array([START + round(each * SECOND) for each in seconds], dtype=np.int64)


# key 7 is touched twice and changed, key 8 missed
HINTS = Hints(numbers(7, 7, 8, 7), numbers(TOUCH, TOUCH, MISS, CHANGE), at(1.0, 2.0, 2.0, 3.0))
LOADS = Loads(numbers(7, 8, 7), at(1.1, 2.1, 3.1))
# partition 0: both touches at offset 0, the change at 2; partition 1: the miss
RECORDS = Records(
    numbers(0, 0, 1), numbers(0, 2, 5), numbers(TOUCH, CHANGE, MISS), numbers(7, 7, 8), numbers(2, 1, 1)
)
COMMITS = Commits(numbers(0, 1, 0), numbers(1, 6, 3), at(2.5, 2.5, 3.5))
VALUES = Values(numbers(7, 8), numbers(2, 1), at(3.1, 2.1))
ROWS = numbers(0, 0, 0, 0, 0, 0, 0, 2, 1)


def early(hints=HINTS, records=RECORDS, commits=COMMITS, loads=LOADS):
    return ledger.early(hints, records, commits, loads=loads, slack=SLACK).tolist()


def test_where_all_is_well_no_check_complains():
    assert not ledger.lost(HINTS, LOADS, SLACK).any()
    assert not ledger.unserved(HINTS, VALUES, SLACK).any()
    assert early() == [False] * 3
    assert ledger.moved_back(COMMITS) == ledger.astray(HINTS, RECORDS) == 0
    assert not ledger.stale(VALUES, ROWS).any()


def test_a_change_is_lost_without_a_load_that_began_after_it():
    loads = Loads(numbers(7, 8), at(2.999, 2.1))
    assert ledger.lost(HINTS, loads, SLACK).tolist() == [False, False, False, True]


def test_a_load_of_another_key_serves_nobody():
    assert ledger.lost(HINTS, Loads(numbers(6, 9), at(5, 5)), SLACK).all()
    assert ledger.lost(HINTS, Loads(numbers(), numbers()), SLACK).all()


def test_a_touch_is_served_by_a_load_within_the_hold_before_it_and_no_earlier():
    touch = Hints(numbers(7), numbers(TOUCH), at(20.0))
    assert not ledger.lost(touch, Loads(numbers(7), at(10.0)), SLACK).any()
    assert ledger.lost(touch, Loads(numbers(7), at(9.999)), SLACK).all()


def test_a_miss_is_not_served_by_a_load_that_must_have_ended_before_it():
    miss = Hints(numbers(8), numbers(MISS), at(20.0))
    assert not ledger.lost(miss, Loads(numbers(8), at(17.0)), SLACK).any()
    assert ledger.lost(miss, Loads(numbers(8), at(16.999)), SLACK).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(Values(numbers(7, 8), numbers(2, 1), at(2.9, 2.1)), [0, 0, 0, 1], id="read before it"),
        pytest.param(Values(numbers(8), numbers(1), at(2.1)), [1, 1, 0, 1], id="not there"),
    ],
)
def test_a_hint_is_not_served_while_redis_holds_nothing_that_was_read_since(values, expected):
    """The load has begun, so that L1's log is content; but it never came to anything."""
    assert ledger.unserved(HINTS, values, SLACK).tolist() == list(map(bool, expected))


def test_a_commit_before_the_load_is_early_and_one_after_it_is_not():
    ahead = COMMITS._replace(times=at(2.5, 2.05, 3.5))
    assert early(commits=ahead) == [False, False, True]
    assert early(commits=COMMITS._replace(times=at(2.5, 2.5, 3.05))) == [False, True, False]


def test_a_record_that_was_committed_and_never_loaded_is_early():
    assert early(loads=Loads(numbers(7, 7), at(1.1, 3.1))) == [False, False, True]


def test_a_commit_passes_only_what_lies_before_it():
    """Offset 2 is first passed by a commit of 3: one of 2 says nothing about it."""
    two = Commits(numbers(0, 0, 1), numbers(2, 3, 6), at(2.5, 3.5, 2.5))
    assert early(commits=two) == [False] * 3
    assert early(commits=two._replace(offsets=numbers(3, 3, 6))) == [False, True, False]
    none = Commits(numbers(), numbers(), numbers())
    assert early(commits=none, loads=Loads(numbers(), numbers())) == [False] * 3


def test_counts_say_which_hint_was_the_last_of_a_record():
    """Three touches of one key in two records: the first holds two, so it needs the load of the second."""
    hints = Hints(numbers(7, 7, 7), numbers(TOUCH, TOUCH, TOUCH), at(1, 20, 40))
    records = Records(numbers(0, 0), numbers(4, 3), numbers(TOUCH, TOUCH), numbers(7, 7), numbers(1, 2))
    commits = Commits(numbers(0, 0), numbers(4, 5), at(21, 41))
    assert early(hints, records, commits, Loads(numbers(7, 7), at(20.5, 40.5))) == [False, False]
    # the load of the second touch comes after the commit: it is the record of two that is early
    assert early(hints, records, commits, Loads(numbers(7, 7), at(21.5, 40.5))) == [False, True]


def test_records_that_hold_more_than_was_emitted_are_refused():
    with pytest.raises(ValueError, match="1 lines of records hold more hints than were emitted"):
        early(records=RECORDS._replace(counts=numbers(2, 1, 2)))


def test_a_hint_that_the_topic_never_had_is_astray_and_one_that_it_has_twice_is_not():
    assert ledger.astray(HINTS, RECORDS._replace(counts=numbers(1, 1, 1))) == 1
    assert ledger.astray(HINTS, RECORDS._replace(kinds=numbers(TOUCH, TOUCH, MISS))) == 1
    assert ledger.astray(HINTS, RECORDS._replace(counts=numbers(2, 3, 2))) == 0


def test_hints_that_the_topic_has_twice_are_counted():
    assert ledger.repeated(HINTS, RECORDS) == 0
    assert ledger.repeated(HINTS, RECORDS._replace(counts=RECORDS.counts + numbers(1, 0, 2))) == 3


def test_a_commit_that_goes_back_is_seen_in_its_own_partition_only():
    assert ledger.moved_back(COMMITS._replace(offsets=numbers(4, 6, 3))) == 1
    assert ledger.moved_back(Commits(numbers(0, 1, 0), numbers(9, 1, 9), at(1, 2, 3))) == 0


def test_a_value_of_another_version_than_its_row_is_stale_and_an_empty_key_is_not():
    assert ledger.stale(VALUES._replace(versions=numbers(1, 1)), ROWS).tolist() == [True, False]
    assert not ledger.stale(Values(numbers(8), numbers(1), at(1)), ROWS).any()


def test_the_widest_gap_is_that_of_a_partition_and_not_of_a_key():
    loads = Loads(numbers(0, 1, 0, 2), at(1, 2, 4, 9))
    start, end = (at(0, 5) / SECOND).tolist()
    assert loads.widest_gaps(numbers(0, 0, 1), start, end).tolist() == [2.0, 5.0]


def test_ten_million_hints_and_their_loads_fit_in_the_composite():
    """The largest key and the longest run still compare by key first."""
    keys, times = numbers(999_999, 1_000_000), at(0, 40 * 86_400)
    loads = Loads(keys, times)
    assert loads.next_since(keys, times).tolist() == times.tolist()
    late = at(1, 40 * 86_400) + MILLISECOND
    assert (loads.next_since(keys, late) == ledger.NEVER).all()


# key 7 is touched at offset 0; the change at 2 merges into the one at 1, which waits
WAITING = Records(
    numbers(0, 0, 0), numbers(0, 1, 2), numbers(TOUCH, CHANGE, CHANGE), numbers(7, 7, 7), numbers(1, 1, 1)
)
ASKED = Hints(numbers(7, 7, 7), numbers(TOUCH, CHANGE, CHANGE), at(0.5, 1.0, 2.0))


def early_removals(*seconds, loads):
    removed = WAITING._replace(removed=np.where(numbers(*seconds) == 0, ledger.NEVER, at(*seconds)))
    nothing = Commits(numbers(), numbers(), numbers())
    loads = Loads(numbers(*(7 for _ in loads)), at(*loads))
    return ledger.early(ASKED, removed, nothing, loads=loads, slack=SLACK).tolist()


def test_a_record_that_was_removed_alone_before_its_load_was_committed_early():
    assert early_removals(0, 1.5, 0, loads=[2.5]) == [False, True, False]
    assert early_removals(0, 2.7, 2.7, loads=[2.5]) == [False, False, False]


def test_an_older_hint_of_its_key_stands_for_a_removed_one_if_it_is_as_strong():
    assert early_removals(0, 0, 2.1, loads=[2.5]) == [False, False, False]
    assert early_removals(0, 2.2, 2.1, loads=[2.5]) == [False, True, True]
    assert early_removals(0, 2.6, 2.1, loads=[2.5]) == [False, False, False]
    assert early_removals(2.6, 2.2, 2.1, loads=[2.5]) == [False, True, True]


# the same in lanes: the touch came first and was read last
LANES = WAITING._replace(partitions=numbers(0, -1, -1), offsets=numbers(1, 1, 2), put=at(0.5, 1.0, 2.0))
NOTHING = Commits(numbers(), numbers(), numbers())


def early_in_lanes(*removed, commits=NOTHING):
    records = LANES._replace(removed=np.where(np.array(removed), at(*removed), ledger.NEVER))
    loads = Loads(numbers(7), at(2.5))
    return ledger.early(ASKED, records, commits, loads=loads, slack=SLACK).tolist()


def test_where_touches_lie_apart_a_change_that_came_later_stands_for_a_touch_and_for_no_change():
    assert early_in_lanes(1.5, 2.6, 2.6) == [False, False, False]
    assert early_in_lanes(0.7, 2.6, 2.6) == [True, False, False], "no change had come"
    assert early_in_lanes(1.5, 1.6, 2.6) == [True, True, False]
    assert early_in_lanes(2.6, 1.6, 2.6) == [False, True, False]


def test_where_touches_lie_apart_a_commit_may_pass_a_touch_that_a_waiting_change_stands_for():
    assert early_in_lanes(0, 2.6, 2.6, commits=Commits(numbers(0), numbers(2), at(1.5))) == [False] * 3
    assert (
        early_in_lanes(0, 0, 0, commits=Commits(numbers(0, -1), numbers(2, 3), at(1.5, 2.6))) == [False] * 3
    )
    alone = Commits(numbers(0), numbers(2), at(0.7))
    assert early_in_lanes(0, 2.6, 2.6, commits=alone) == [True, False, False], "no change had come"
    both = Commits(numbers(0, -1, -1), numbers(2, 2, 3), at(1.5, 1.6, 2.6))
    assert early_in_lanes(0, 0, 0, commits=both) == [True, True, False]
