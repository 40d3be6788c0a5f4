"""Slots of a source: the window follows what the source can do, and slow namespaces leave room to the others."""

from __future__ import annotations

import pytest

from cacheupdater.core.slots import SLOW_S, Slots

QUICK, SLOW = 0.004, 1.0


def known(slots: Slots, name: str, seconds: float, times: int = 1, *, since: float = 0.0) -> None:
    """Loads of the namespace, one after the other."""
    for n in range(times):
        slots.take(name)
        slots.measured(name, seconds, since + (n + 1) * seconds)
        slots.give_back(name)


def fill(slots: Slots, name: str) -> int:
    """The namespace takes all that it may."""
    taken = 0
    while slots.room(name) > 0:
        slots.take(name)
        taken += 1
    return taken


def test_namespaces_with_slow_loads_leave_a_slot_to_the_others():
    slots = Slots(5)
    for name in "abcd":
        known(slots, name, SLOW)
    known(slots, "quick", QUICK)

    taken = {name: fill(slots, name) for name in "abcd"}

    assert sum(taken.values()) == 4
    assert taken["a"] == 3, "half of the window, rounded up"
    assert slots.room("quick") == 1


def test_only_namespace_of_a_source_leaves_nothing_to_anybody():
    slots = Slots(5)
    known(slots, "a", SLOW)

    assert fill(slots, "a") == 5


def test_quick_namespace_may_hold_all_slots():
    slots = Slots(5)
    known(slots, "quick", QUICK)

    assert fill(slots, "quick") == 5


def test_namespace_is_slow_until_its_next_quick_load():
    slots = Slots(4)
    known(slots, "b", QUICK)
    known(slots, "a", SLOW)
    assert slots.room("a") == 2
    known(slots, "a", QUICK)
    assert slots.room("a") == 4


@pytest.mark.parametrize("most", [1, 2, 3])
def test_slow_namespace_always_finds_a_slot_at_a_source_with_few(most):
    slots = Slots(most)
    known(slots, "a", SLOW)

    assert fill(slots, "a") >= 1


def test_window_shrinks_while_loads_take_several_times_as_long_as_usual_and_keeps_one_slot():
    slots = Slots(10)
    known(slots, "a", QUICK, 50)
    windows = []
    for n in range(30):
        known(slots, "a", SLOW, since=1.0 + 2 * n)
        windows.append(slots.window)

    assert windows[0] == 8.0
    assert min(windows) == 1.0


def test_loads_that_were_under_way_together_shrink_the_window_once():
    slots = Slots(5)
    known(slots, "a", QUICK, 10)
    for _ in range(5):
        slots.take("a")
    for n in range(5):
        slots.measured("a", SLOW, 10.0 + n / 1000)

    assert slots.window == 4.0


def test_window_grows_again_when_the_source_is_quick_and_all_slots_are_busy():
    slots = Slots(10)
    known(slots, "a", QUICK, 50)
    for n in range(5):
        known(slots, "a", SLOW, since=1.0 + 2 * n)
    shrunk = slots.window
    for _ in range(100):
        taken = fill(slots, "a")
        for _ in range(taken):
            slots.measured("a", QUICK, 100.0)
            slots.give_back("a")

    assert shrunk < 5.0
    assert slots.window == 10.0


def test_idle_slots_do_not_make_the_window_grow():
    slots = Slots(10)
    known(slots, "a", QUICK, 50)
    known(slots, "a", SLOW, since=1.0)
    known(slots, "a", QUICK, 100, since=5.0)

    assert slots.window == 8.0


def test_namespace_whose_loads_are_always_slow_does_not_shrink_the_window():
    slots = Slots(5)
    known(slots, "a", 0.3, 200)

    assert slots.window == 5.0


def test_loads_below_the_bound_are_quick_whatever_is_usual():
    slots = Slots(5)
    known(slots, "a", SLOW_S / 100, 10)
    known(slots, "a", SLOW_S, since=1.0)

    assert slots.window == 5.0


def test_lasting_slowdown_becomes_the_usual_after_some_seventy_loads():
    slots = Slots(10)
    known(slots, "a", 0.1, 50)
    loads = 0
    while slots.usual("a") < 1.0 / 3.0:
        loads += 1
        known(slots, "a", 1.0, since=10.0 + 2 * loads)

    assert 40 <= loads <= 80
