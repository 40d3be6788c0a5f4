"""A slow key is found among the keys that run with it, runs apart from then on, and comes back when it is quick again."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.hints import Kind
from cacheupdater.core.limits import Limits
from cacheupdater.core.loads import Took, Verdict
from cacheupdater.core.peers import NOBODY, Peers
from cacheupdater.core.slow_keys import KNOWN_MAX, SlowKeys
from cacheupdater.core.unit import KNOWN, SLOW, URGENCY, Demand

KEYS = [b"p:%d" % number for number in range(200)]
BAD = KEYS[57]
QUICK, LONG = 0.004, 0.4
EVERY = 5.0


class Table:
    """One namespace whose keys are read again and again, one of them slow."""

    def __init__(self, slots: int = 5, engine: Story | None = None) -> None:
        source = Source("db", plenty(), concurrency=slots)
        self.story = engine or Story(namespace(source=source, every=EVERY))
        self.slow = {BAD}
        self.now = 0.0

    def read(self, keys: list[bytes] = KEYS, kind: Kind = Kind.TOUCH) -> list[list[bytes]]:
        """All of these are due; the units that run for them, one after the other."""
        self.now += EVERY + 1.0
        self.story._hint(kind, tuple(keys), self.now, 0)
        ran = []
        while self.story.engine.pending:
            work = self.story.step(self.now)
            for unit in work.units:
                took = LONG if self.slow.intersection(unit.keys) else QUICK
                ran.append(list(unit.keys))
                self.now += took
                self.story.end(unit, self.now, seconds=took)
            if not work.units:
                self.now = work.wake
        return ran

    def learn(self, refreshes: int = 5) -> None:
        """The engine sees that other keys are quick, and which one is not."""
        for _ in range(refreshes):
            self.read([b"p:%d" % number for number in range(1000, 1010)])
            self.now -= EVERY + 1.0
            self.read()


class BusyTable(Table):
    """Other engines load quick keys of the namespace all the time."""

    def read(self, keys: list[bytes] = KEYS, kind: Kind = Kind.TOUCH) -> list[list[bytes]]:
        began = self.now + EVERY + 1.0
        for number in range(8):
            took = Took(began + number * LONG / 8, 200, QUICK)
            self.story.namespaces[0].loads.judge(took, apart=False)
        return super().read(keys, kind)


@pytest.mark.parametrize(("table", "refreshes"), [(BusyTable, 3), (Table, 5)])
def test_slow_key_is_found_within_three_refreshes_or_five_if_nothing_else_runs(table, refreshes):
    table = table()
    table.learn(refreshes)
    units = table.read()

    assert [BAD] in units
    assert sorted(map(len, units)) == [1, 199]
    assert list(table.story.engine.slow_keys) == [BAD]


@pytest.mark.parametrize("kind", Kind)
def test_known_slow_key_runs_alone_whatever_hint_asks_for_it(kind):
    table = Table()
    table.learn()

    assert [BAD] in table.read(kind=kind)


def test_key_that_is_quick_again_runs_with_the_others():
    table = Table()
    table.learn()
    table.slow.clear()
    table.read()

    assert table.read() == [KEYS]
    assert not table.story.engine.slow_keys


def test_keys_that_were_slow_once_while_nothing_else_ran_stay_together():
    """The machine may have stood still."""
    table = Table()
    for slow in ({BAD}, set(), {BAD}):
        table.slow = slow
        table.learn(1)

    assert table.read() == [KEYS]
    assert not table.story.engine.slow_keys


def test_of_keys_that_were_slow_twice_those_are_suspects_that_were_there_both_times():
    slow_keys, story = SlowKeys(), Story()
    for first in (0, 50):
        at = float(first)
        story.touch(*KEYS[first : first + 100], at=at)
        unit = story.start(at)
        slow_keys.loaded(unit, Verdict.EITHER)
        story.end(unit, at)

    assert set(slow_keys) == set(KEYS[50:100])


def test_change_that_waits_behind_a_slow_head_runs_alone_too():
    table = Table()
    table.learn()
    story, now = table.story, table.now + EVERY + 1.0
    story.touch(BAD, at=now)
    head = story.start(now)
    story.change(BAD, at=now + 0.01)
    story.end(head, now + LONG, seconds=LONG)
    story.change(*KEYS[:9], at=now + LONG)

    assert sorted(story.starts(now + LONG)) == [KEYS[:9], [BAD]]


def test_changes_that_wait_behind_one_unit_run_together_but_for_a_suspect():
    story = Story(namespace(source=Source("db", plenty(), concurrency=5), every=EVERY))
    story.touch(*KEYS[:4], at=0.0)
    unit = story.start(0.0)
    story.change(*KEYS[:4], at=0.01)
    story.engine.slow_keys.suspect([KEYS[1]], 1)
    story.end(unit, 0.02)

    assert sorted(story.starts(1.0)) == [[KEYS[0], *KEYS[2:4]], [KEYS[1]]]


def test_keys_of_a_source_that_is_slow_as_a_whole_stay_together():
    table = Table()
    table.slow.update(KEYS)
    units = [table.read() for _ in range(40)]

    assert units[-1] == [KEYS]
    assert not table.story.engine.slow_keys
    tries = sum(len(each) > 1 for each in units)
    assert 1 <= tries <= 6, "smaller units are tried, more and more rarely"


def test_suspects_are_bounded_and_the_oldest_are_forgotten():
    slow_keys = SlowKeys()
    for first in range(0, KNOWN_MAX + 1000, 100):
        slow_keys.suspect([b"%d" % number for number in range(first, first + 100)], 6)

    assert len(slow_keys) == KNOWN_MAX
    assert b"999" not in slow_keys
    assert b"1000" in slow_keys


def test_suspects_are_cut_by_how_much_is_known_of_them():
    slow_keys = SlowKeys()
    slow_keys.suspect(KEYS[:20], 12)
    slow_keys.suspect(KEYS[20:22], 1)
    others, pieces = slow_keys.split(KEYS[:30])

    assert others == KEYS[22:30]
    assert pieces == [KEYS[:12], KEYS[12:20], [KEYS[20]], [KEYS[21]]]


def test_suspects_go_one_after_the_other_while_all_others_wait_for_the_absent_bucket():
    source = Source("db", Bucket(100.0, 100.0, now=0.0), concurrency=5)
    story = Story(namespace(source=source, every=EVERY))
    story.engine.slow_keys.suspect(KEYS[:2], 1)
    story.namespaces[0].absent_bucket.charge(1000, 0.0)
    story.touch(*KEYS[:2], at=1.0)
    story.miss(*KEYS[100:], at=1.0)
    started = story.starts(1.0)

    assert started[:2] == [[KEYS[0]], [KEYS[1]]]


@pytest.mark.parametrize("most", [1, 6])
def test_suspect_that_a_pack_names_twice_has_one_seat(most):
    story = Story()
    story.engine.slow_keys.suspect(KEYS[:9], most)
    story.touch(*KEYS[:9], *KEYS[:9], at=1.0)

    assert story.engine.pending == 9


@pytest.mark.parametrize(("slots", "apart"), [(1, 1), (2, 1), (3, 1), (5, 3)])
def test_suspects_leave_slots_to_the_others(slots, apart):
    """With one slot, every other unit is one of suspects."""
    table = Table(slots)
    story = table.story
    story.engine.slow_keys.suspect(KEYS[:100], 1)
    story.touch(*KEYS, at=1.0)
    started = story.step(1.0).units

    assert sum(len(unit.keys) == 1 for unit in started) == apart
    assert len(started) == min(slots, apart + 1)


def test_with_one_slot_suspects_and_others_take_turns():
    table = Table(slots=1)
    table.story.engine.slow_keys.suspect(KEYS[:3], 1)
    table.slow = set(KEYS[:3])
    others = [b"p:%d" % number for number in range(1000, 1500)]
    units = table.read([*KEYS[:3], *others])

    assert [len(unit) for unit in units] == [1, 200, 1, 200, 1, 100]


def test_namespace_whose_suspects_wait_goes_on_when_one_has_ended():
    table = Table(slots=2)
    story = table.story
    story.engine.slow_keys.suspect(KEYS[:3], 1)
    story.touch(*KEYS[:3], at=1.0)
    first = story.start(1.0)
    assert story.starts(1.1) == [], "the other slot is for those who are quick"
    assert "apart" in story.engine.explain(KEYS[1], 1.1).seat.waits_for
    story.end(first, 1.4, seconds=LONG)

    assert story.starts(1.4) == [[KEYS[1]]]


def test_slow_key_does_not_make_the_window_of_its_source_smaller():
    table = Table()
    table.learn()

    assert table.story.namespaces[0].source.slots.window == 5.0


def test_slow_key_that_runs_alone_says_nothing_about_its_source_even_if_no_other_load_runs():
    table = Table()
    story = table.story
    story.engine.slow_keys.suspect([BAD], 1)
    for at in (100.0, 200.0, 300.0):
        story.touch(KEYS[0], at=at)
        story.end(story.start(at), at + QUICK, seconds=QUICK)
        story.touch(BAD, at=at + 50.0)
        story.end(story.start(at + 50.0), at + 50.0 + LONG, seconds=LONG)

    assert story.namespaces[0].source.slots.window == 5.0


def test_keys_of_a_unit_that_timed_out_twice_leave_slots_to_the_others_and_stay_apart():
    story = Story(namespace(source=Source("db", plenty(), concurrency=5), every=EVERY))
    story.touch(*KEYS, at=0.0)
    story.time_out(story.start(0.0), 1.0)
    story.time_out(story.start(10.0), 11.0)
    pieces = story.step(20.0).units

    assert [len(unit.keys) for unit in pieces] == [50, 50, 50], "of four, for one slot is kept free"
    story.end(pieces[0], 20.9, seconds=0.9)
    assert set(story.engine.slow_keys) == set(KEYS)


def test_suspects_of_each_kind_are_given_up_before_others_of_their_kind_and_changes_last():
    story = Story(namespace(source=Source("db", plenty(), concurrency=0), max_backlog=4))
    story.engine.slow_keys.suspect(KEYS[:2], 1)
    story.change(KEYS[0], at=1.0)
    story.touch(KEYS[1], KEYS[2], KEYS[3], at=1.1)
    seats = story.engine.explain
    left = []
    for number in (4, 5, 6, 7):
        story.touch(KEYS[number], at=2.0 + number)
        left.append([each for each in KEYS[:8] if seats(each, 10.0).seat.state == "due"])

    assert left[0] == [KEYS[each] for each in (0, 2, 3, 4)]
    assert left[-1] == [KEYS[each] for each in (0, 5, 6, 7)]


@pytest.mark.parametrize("kind", [Kind.TOUCH, Kind.CHANGE])
def test_urgent_suspects_go_before_those_that_can_wait(kind):
    demand = Demand(kind, URGENCY[kind], OpenPack(0, 0.0, Peers(Limits()).of(NOBODY)), 0.0)

    assert demand.apart(6).queue == SLOW + URGENCY[kind]
    assert demand.apart(1).queue == KNOWN + URGENCY[kind]
    assert demand.apart(6).alone
