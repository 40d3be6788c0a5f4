"""The sizes of tables follow a container's memory, and no other limit does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheupdater.core.limits import PROCESS_BYTES, TABLES_PART, Limits

MIB = 1 << 20


def test_without_a_limit_the_tables_are_the_usual_ones():
    assert Limits().within(None, partitions=12) == Limits()


def test_tables_that_fit_stay_as_they_are():
    assert Limits().within(64 << 30, partitions=12) == Limits()


@pytest.mark.parametrize("memory", [256 * MIB, 512 * MIB, 2048 * MIB])
@pytest.mark.parametrize(("partitions", "processes"), [(1, 1), (12, 1), (12, 2)])
def test_all_partitions_together_take_half_of_what_a_process_leaves(memory, partitions, processes):
    limits = Limits().within(memory, partitions=partitions, processes=processes)
    room = (memory - processes * PROCESS_BYTES) * TABLES_PART
    assert partitions * limits.tables <= max(room, partitions * Limits().tables * 0.01)
    assert partitions * limits.tables >= min(0.99 * room, partitions * Limits().tables)


def test_hardly_any_memory_leaves_a_hundredth():
    limits = Limits().within(16 * MIB, partitions=64, processes=4)
    assert (limits.learned, limits.absent, limits.strangers, limits.claims) == (10_000, 1_000, 500, 500)


def test_memory_changes_no_bound_but_those_of_tables():
    small, usual = Limits().within(128 * MIB, partitions=12), Limits()
    tables = {name: getattr(usual, name) for name in ("learned", "absent", "seen", "strangers", "claims")}
    assert replace(small, **tables) == usual
