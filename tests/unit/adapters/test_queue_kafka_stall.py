"""When a consumer counts as stuck, by a clock of the test's own."""

from __future__ import annotations

import pytest

from cacheupdater.adapters.queue_kafka.stall import Place, Sight, Stall

PATIENCE = 30.0
STEP = 5.0


def watch(sights, *, step=STEP):
    """The first reason, and after how many seconds."""
    stall = Stall(PATIENCE)
    for n, sight in enumerate(sights):
        if (why := stall.look(n * step, sight)) is not None:
            return why, n * step
    return None


def sight(*, answers=True, joined=True, trouble="", **places):
    """places: p0=(position, end)."""
    found = {int(name[1:]): Place(*place) for name, place in places.items()}
    return Sight(answers=answers, joined=joined, places=found, trouble=trouble)


def test_a_consumer_without_assignment_is_stuck_after_the_patience_while_brokers_answer():
    why, after = watch([sight(joined=False)] * 20)
    assert after == PATIENCE
    assert why == "no partitions were assigned for 30 s although the brokers answer"


def test_an_assignment_of_nothing_is_no_stall():
    assert watch([sight()] * 100) is None


def test_brokers_that_do_not_answer_begin_the_patience_anew():
    away = sight(answers=False, joined=False)
    assert watch([sight(joined=False)] * 5 + [away] + [sight(joined=False)] * 6) is None
    assert watch([away] * 100) is None


def test_a_partition_with_lag_whose_place_stands_still_is_stuck():
    why, after = watch([sight(p3=(7, 9))] * 20)
    assert after == PATIENCE
    assert why == "partition 3 has 2 packs to read and nothing came for 30 s"


def test_a_partition_that_moves_however_slowly_is_not_stuck():
    assert watch([sight(p3=(n // 5, 1000)) for n in range(100)]) is None


def test_a_partition_with_nothing_to_read_is_not_stuck():
    assert watch([sight(p0=(5, 5))] * 100) is None


def test_patience_begins_when_there_is_something_to_read():
    _, after = watch([sight(p0=(5, 5))] * 10 + [sight(p0=(5, 6))] * 10)
    assert after == 10 * STEP + PATIENCE


def test_one_partition_that_stands_still_is_enough():
    why, _ = watch([sight(p0=(n, 1000), p1=(4, 5)) for n in range(20)])
    assert "partition 1" in why


@pytest.mark.parametrize("gone", [sight(), sight(joined=False)], ids=["held back", "taken from us"])
def test_a_partition_that_was_not_looked_at_begins_anew(gone):
    still = sight(p0=(5, 9))
    assert watch([still] * 5 + [gone] + [still] * 6) is None


def test_whoever_was_stopped_itself_has_seen_no_stall():
    stall = Stall(PATIENCE)
    stuck = sight(p0=(5, 9), joined=False)
    assert stall.look(0.0, stuck) is None
    assert stall.look(1000.0, stuck) is None, "SIGSTOP, or a blocked loop"
    assert stall.look(1005.0, stuck) is None
    assert any(stall.look(1005.0 + n * STEP, stuck) for n in range(1, 8))


def test_the_reason_names_the_last_error_of_the_consumer():
    why, _ = watch([sight(p0=(5, 9), trouble="Invalid CRC")] * 20)
    assert why.endswith("; the last error was: Invalid CRC")
