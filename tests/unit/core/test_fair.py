"""Which of many flows is next, and how much room one leaves the others."""

from __future__ import annotations

import random
from collections import deque

import pytest

from cacheupdater.core.fair import PART, Fair, Room, leaves_room


def serve(fair, cost=1):
    """The next item, and its turn is paid."""
    flow = fair.first()
    fair.serve(flow, cost)
    return flow.items.popleft()


def fill(fair, name, items):
    for each in items:
        fair.of(name).append(each)


def test_one_alone_has_its_items_in_order():
    fair = Fair(deque)
    fill(fair, "a", range(5))
    assert [serve(fair) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert not fair


def test_who_comes_with_a_little_is_next_however_much_another_has():
    fair = Fair(deque)
    fill(fair, "flood", ["f"] * 100)
    assert [serve(fair, 200) for _ in range(10)] == ["f"] * 10
    fill(fair, "honest", ["h"])
    assert serve(fair, 200) == "h"


def test_turns_are_of_equal_cost_not_of_equal_number():
    fair = Fair(deque)
    fill(fair, "large", ["l"] * 100)
    fill(fair, "small", ["s"] * 100)
    served = [serve(fair, 10 if fair.first().name == "large" else 1) for _ in range(66)]
    assert abs(served.count("s") - 10 * served.count("l")) <= 10


def test_who_was_away_has_saved_up_nothing():
    fair = Fair(deque)
    fill(fair, "a", "a" * 50)
    fill(fair, "b", "b")
    served = [serve(fair) for _ in range(21)]
    assert served.count("b") == 1
    fill(fair, "b", "b" * 20)
    assert abs([serve(fair) for _ in range(20)].count("b") - 10) <= 1


def test_those_that_must_wait_are_passed_over_and_keep_their_place():
    fair = Fair(deque)
    fill(fair, "a", [1, 2])
    fill(fair, "b", [3])
    flow = fair.first_where(lambda name: name != "a")
    assert flow.items.popleft() == 3
    fair.serve(flow, 1)
    assert fair.first_where(lambda name: name != "a") is None
    assert [serve(fair), serve(fair)] == [1, 2]


def test_no_flow_is_remembered_once_nobody_waits_nor_many_that_are_away():
    fair = Fair(deque)
    fill(fair, "always", [0] * 10_000)
    for number in range(5_000):
        fill(fair, number, [1])
        serve(fair)
        serve(fair)
    assert len(fair._flows) < 200
    while fair:
        serve(fair)
    assert not fair._flows


@pytest.mark.parametrize("turn", [0, 100])
def test_shares_are_equal_whatever_comes_when(turn):
    for seed in range(50):
        rng, fair = random.Random(seed), Fair(deque)
        had = dict.fromkeys("abc", 0)
        for _ in range(600):
            for name in had:
                if len(fair.waiting(name)) < 3:  # always something there
                    fill(fair, name, [rng.randrange(1, 50)] * 3)
            flow = fair.first()
            cost = flow.items.popleft()
            fair.serve(flow, cost, turn=turn)
            had[flow.name] += cost
        assert max(had.values()) - min(had.values()) <= 2 * (50 + turn), seed


def test_turn_goes_on_until_the_flow_has_had_so_much_or_nothing_of_it_waits():
    fair = Fair(deque)
    fill(fair, "first", "f")
    serve(fair)
    fill(fair, "long", "abc")
    fill(fair, "other", "o")
    served = []
    while flow := fair.first():
        served.append(flow.items.popleft())
        fair.serve(flow, 10, turn=15)
        if len(served) == 1:
            fill(fair, "late", "l")
    assert served == ["a", "b", "o", "l", "c"]


def test_turn_is_over_when_nothing_of_the_flow_waits():
    fair, served = Fair(deque), []
    fill(fair, "other", "ooo")
    for brings in ("", "a", "", "bc", "", ""):
        if brings:
            fill(fair, "long", brings)
        flow = fair.first()
        served.append(flow.items.popleft())
        fair.serve(flow, 10, turn=15 if flow.name == "long" else 0)
    assert "".join(served) == "oaobco"


def test_one_alone_leaves_a_ninth_and_many_that_press_leave_room_for_who_has_little():
    alone = 0
    while leaves_room(alone, alone, 9_000):
        alone += 1
    assert alone == 8_001
    floods, most = [0] * 20, 9_000
    for _ in range(2 * most):
        floods = [each + leaves_room(each, sum(floods), most) for each in floods]
    assert sum(floods) < most
    assert leaves_room(PART, sum(floods), most)


def test_who_had_to_wait_has_saved_up_nothing_either():
    fair = Fair(deque)
    fill(fair, "held", "h" * 50)
    fill(fair, "read", "r" * 100)
    for _ in range(50):
        flow = fair.first_where(lambda name: name != "held")
        flow.items.popleft()
        fair.serve(flow, 1)
    assert abs([serve(fair) for _ in range(20)].count("h") - 10) <= 1


def test_flows_that_keep_coming_with_a_little_do_not_hold_up_one_that_waits():
    """As somebody who takes another connection for each pack."""
    fair = Fair(deque)
    fill(fair, "honest", "h")
    serve(fair)
    fill(fair, "flood", "f")
    fill(fair, "honest", "h")
    served = []
    for number in range(1_000):
        fill(fair, number, "f")
        served.append(serve(fair))
    assert "h" in served[:10]


def test_room_is_given_to_who_has_little_and_comes_back_when_items_leave():
    room, taken = Room(90, 1000), 0
    while room.takes(1, 1, 1):
        room.take(1, 1, 1)
        taken += 1
    assert 79 <= taken <= 81
    assert room.takes(2, 5, 5)
    assert not room.takes(2, 91, 1)
    room.take(1, -10, -10)
    assert room.takes(1, 1, 1)
    room.clear()
    assert room.takes(1, 80, 80)


def test_room_is_bounded_in_bytes_too():
    room = Room(90, 1000)
    room.take(1, 1, 880)
    assert not room.takes(1, 1, 50)
    assert room.takes(2, 1, 50)
    assert not room.takes(2, 1, 200)


def test_no_account_is_kept_of_who_has_nothing_left():
    room = Room(90, 1000)
    for peer in range(500):
        room.take(peer, 3, 30)
        room.take(peer, -3, -30)
    assert not room._own
