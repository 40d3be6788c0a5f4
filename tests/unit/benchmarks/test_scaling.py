"""The traffic of the Kafka and scaling benchmarks: a benchmark whose traffic differs from its text is worse than none."""

from __future__ import annotations

from collections import Counter

import pytest
import scaling
from kafka_intake import Share
from scaling_topics import Load, filled
from scaling_worker import STEP_HINTS, Tracked

from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire

SMALL = Load("zipf", partitions=3, pack=50, packs=40, universe=2_000)


@pytest.fixture(scope="module")
def packs():
    return list(filled(SMALL))


def test_a_topic_has_as_many_packs_in_each_partition_and_each_key_where_it_belongs(packs):
    assert Counter(partition for partition, _ in packs) == dict.fromkeys(range(3), SMALL.packs)
    assert all(len(hints) == SMALL.pack for _, hints in packs)
    assert all(wire.partition_of(key, 3) == partition for partition, hints in packs for key in hints)
    assert sum(len(hints) for _, hints in packs) == SMALL.hints


def test_every_reader_of_a_load_gets_the_same_hints(packs):
    assert list(filled(SMALL)) == packs


def test_an_engine_goes_on_where_the_last_pass_has_ended(packs):
    payloads = [
        wire.encode_pack(wire.TOUCH, 1, list(dict.fromkeys(hints)))
        for partition, hints in packs
        if partition == 0
    ]
    share = Share(0, SMALL, pinned=True)
    for _ in range(2):
        share.take([Message(offset, payload) for offset, payload in enumerate(payloads)])
        share.begins += SMALL.packs
    assert share.engine.cursor.scan == 2 * SMALL.packs
    assert share.engine.tally.drain()["hints", "touch", ""] == 2 * sum(
        len(wire.decode_pack(each).keys) for each in payloads
    )
    assert share.done <= 0  # of a pass that has not begun


def test_about_two_thirds_of_the_keys_are_tracked_when_each_was_drawn_once_on_average():
    """1.6 million keys for a million tracked; the rate is as for ten times as many."""
    for universe in (20_000, 60_000):
        run = Tracked(universe, learned=0)
        run.play(universe // STEP_HINTS)
        assert run.engine.tracked == pytest.approx(0.63 * universe, rel=0.05)


def test_each_setup_that_is_shared_is_also_done_by_one():
    alone = {setup[1:] for setup in scaling.SETUPS if setup[0] == 1}
    assert {setup[1:] for setup in scaling.SETUPS} == alone == set(scaling.KINDS)
    assert all(partitions % processes == 0 for processes, partitions, _ in scaling.SETUPS)
