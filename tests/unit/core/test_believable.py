"""Counts are believed only up to the reads that a process can have made since its last pack."""

from __future__ import annotations

from stories.price import Desk, keys

from cacheupdater.core.hints import READS_MAX, believable
from cacheupdater.price.learning import SLOW


def test_counts_that_a_process_can_have_read_are_left_alone():
    counts = [READS_MAX // 2, READS_MAX // 2]

    assert believable(counts) is counts
    assert believable(()) == ()


def test_counts_beyond_are_made_less_in_proportion_and_never_nothing():
    assert believable([2**63, 2**63, 1]) == [READS_MAX // 2 - 1, READS_MAX // 2 - 1, 1]


def test_a_pack_of_many_clients_is_believed_as_much_as_those_of_all_of_them():
    counts = [20 * READS_MAX]

    assert believable(counts, 20) is counts
    assert believable([2**63], 20) == counts


def test_a_lying_pack_weighs_no_more_than_what_its_sender_can_have_read():
    desk, many = Desk(), keys(1_000)
    for _ in range(3):
        desk.read(*many, at=1.0, counts=believable([2**63] * 1_000))

    assert desk.policy.table.state[:1_000, SLOW].sum() <= 3 * READS_MAX
