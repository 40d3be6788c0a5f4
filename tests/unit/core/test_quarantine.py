"""Quarantine: how long a key is left alone, and what happens where the namespace, and not the key, may be at fault."""

from __future__ import annotations

import pytest
from stories.engine import Story, limits, namespace

from cacheupdater.core.outcomes import Failure
from cacheupdater.core.quarantine import Quarantine

A, B = b"p:1", b"p:2"
HOT = [b"p:%d" % number for number in range(40)]
REFUSED = Failure("no such column", own=True, at_source=True)
MENDED = 15.0
STEP = 0.05


def test_quarantine_bars_a_key_until_its_time_is_over():
    quarantine = Quarantine(limits())
    quarantine.put(A, "no such column", 10.0)

    assert quarantine.bars(A, 69.9)
    assert not quarantine.bars(A, 70.0)
    assert len(quarantine) == 0
    assert not quarantine.bars(B, 10.0)


def test_quarantine_keeps_error_and_times_for_a_person_to_read():
    quarantine = Quarantine(limits())
    quarantine.put(A, "no such column", 10.0)

    record = quarantine.keys[A]
    assert (record.error, record.since, record.until) == ("no such column", 10.0, 70.0)


def test_full_quarantine_lets_the_oldest_go():
    quarantine = Quarantine(limits(quarantined=2))
    for at, key in enumerate((A, B, A, b"p:3")):
        quarantine.put(key, "no", float(at))

    assert list(quarantine.keys) == [A, b"p:3"]


class Reading:
    """All keys are read twice a second. The source refuses the units that `fails` names."""

    def __init__(self, fails, keys=HOT):
        self.story, self.fails, self.keys, self.now = Story(namespace(every=0.5)), fails, keys, 0.0
        self.loaded, self.refused = (
            {},
            [],
        )  # when each key was loaded first after the mend; when a unit was refused

    def until(self, end):
        while self.now < end:
            if round(self.now / STEP) % 10 == 0:
                self.story.touch(*self.keys, at=self.now)
            for unit in self.story.step(self.now).units:
                self._end(unit)
            self.now += STEP
        return self

    def _end(self, unit):
        if self.fails(unit.keys, self.now):
            self.refused.append(self.now)
            self.story.engine.on_failure(unit, REFUSED, self.now)
            return
        for key in unit.keys:
            if self.now >= MENDED:
                self.loaded.setdefault(key, self.now)
        self.story.end(unit, self.now)


def test_keys_of_a_refused_statement_are_fresh_soon_after_it_is_mended():
    """A column is renamed, and every hot key fails until it is back. They were left alone for a minute after that."""
    reading = Reading(lambda _keys, at: at < MENDED).until(MENDED + 5.0)

    assert reading.loaded.keys() == set(HOT)
    assert max(reading.loaded.values()) < MENDED + 3.0  # a try each two seconds, and the next read


def test_a_refused_statement_is_tried_by_one_key_every_two_seconds_once_all_are_quarantined():
    reading = Reading(lambda _keys, _at: True).until(40.0)
    late = [at for at in reading.refused if at > 20.0]

    assert 8 <= len(late) <= 11
    assert len(reading.story.engine.quarantine) >= len(HOT) - 1


def test_a_key_that_fails_while_others_are_loaded_is_left_alone_for_the_whole_minute():
    reading = Reading(lambda keys, _at: A in keys).until(50.0)

    assert list(reading.story.engine.quarantine.keys) == [A]
    assert [at for at in reading.refused if at > 10.0] == []


def test_a_key_that_was_tried_for_its_namespace_has_all_its_attempts_again_once_the_namespace_loads():
    reading = Reading(lambda _keys, at: at < MENDED, [A]).until(MENDED + 5.0)
    assert A in reading.loaded
    mended, reading.refused = reading.now, []
    reading.fails = lambda _keys, _at: True
    reading.until(mended + 10.0)

    quarantined = reading.story.engine.quarantine.keys[A].since
    assert len([at for at in reading.refused if at <= quarantined]) >= 5


def test_a_key_whose_failures_lie_between_two_loads_of_others_has_one_more_attempt_and_is_then_left_alone():
    """Another load excuses it for no five attempts more: there were 80 a minute."""
    reading = Reading(lambda keys, _at: keys != [B], [A])
    for second in range(1, 61):
        reading.until(second)
        if second % 5 == 0:
            reading.story.miss(B, at=reading.now)

    assert (
        len(reading.refused) <= 5 + 2 + 1
    )  # a try each two seconds before the first of these loads, and one after it
    assert list(reading.story.engine.quarantine.keys) == [A]


@pytest.mark.parametrize("bad", [4, 40, 200])
def test_keys_that_fail_beside_others_that_load_are_each_left_alone_for_the_whole_minute(bad):
    """Each excused the others once: two failures in a row lay between two loads. 200 keys had 11,440 refused statements in 40 s."""
    poisoned = {b"p:%d" % number for number in range(bad)}
    reading = Reading(
        lambda keys, _at: not poisoned.isdisjoint(keys), [*sorted(poisoned), b"p:901", b"p:902", b"p:903"]
    ).until(40.0)

    assert set(reading.story.engine.quarantine.keys) == poisoned
    assert len(reading.refused) <= 5 * bad + bad // 4 + 20  # five each, and what finds them in their units
    assert [at for at in reading.refused if at > 20.0] == []


def test_keys_that_fail_are_tried_again_if_the_last_load_that_succeeded_had_begun_before():
    """The statement broke while another unit of the namespace was under way."""
    story = Story(namespace(every=0.5))
    story.touch(A, at=0.0)
    [under_way] = story.step(0.0).units
    namespace_of_both = under_way.namespace
    story.end(under_way, 0.3)
    story.engine.quarantine.put(B, "no such column", 0.4, namespace=namespace_of_both, failing=0.1)

    record = story.engine.quarantine.keys[B]
    assert record.refused is namespace_of_both
    assert not record.free


def test_a_key_is_at_fault_if_a_later_load_has_succeeded_whichever_load_ends_last():
    story = Story(namespace(every=0.5))
    story.touch(A, at=0.0)
    [early] = story.step(0.0).units
    story.touch(b"p:3", at=0.2)
    [late] = story.step(0.2).units
    for unit in (late, early):
        story.end(unit, 0.3)
    story.engine.quarantine.put(B, "no such column", 0.4, namespace=early.namespace, failing=0.1)

    assert story.engine.quarantine.keys[B].refused is None
