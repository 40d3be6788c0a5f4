"""Each lane has one number, and each pack one lane, whatever its bytes are."""

from __future__ import annotations

from random import Random

import pytest

from cacheupdater.core.lanes import is_urgent_lane, lane_of, partition_of_lane, urgent_of
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack


def test_the_lanes_of_all_partitions_have_different_numbers_that_name_their_partition():
    lanes = [lane for partition in range(100) for lane in (partition, urgent_of(partition))]

    assert len(set(lanes)) == 200
    assert [partition_of_lane(lane) for lane in lanes] == [number // 2 for number in range(200)]
    assert [is_urgent_lane(lane) for lane in lanes] == [False, True] * 100


@pytest.mark.parametrize(("kind", "urgent"), [(TOUCH, False), (MISS, True), (CHANGE, True)])
@pytest.mark.parametrize("keys", [1, 15, 16, 1000])
@pytest.mark.parametrize("ms", [0, 1, 1_800_000_000_000])
def test_changes_and_misses_are_urgent_however_many_and_whenever_they_were_sent(kind, urgent, keys, ms):
    names = [b"item:%d" % number for number in range(keys)]
    tokens = [7] * keys if kind != CHANGE else ()

    for pack in (
        encode_pack(kind, ms, names),
        encode_pack(kind, ms, names, [2] * keys),
        encode_pack(kind, ms, names, tokens=tokens),
    ):
        assert is_urgent_lane(lane_of(7, pack)) == urgent
        assert partition_of_lane(lane_of(7, pack)) == 7


def test_any_bytes_have_a_lane():
    random = Random(1)
    for size in range(50):
        assert partition_of_lane(lane_of(3, random.randbytes(size))) == 3
    assert lane_of(3, b"") == 3
