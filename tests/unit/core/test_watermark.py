"""The watermark against a table whose transactions commit late: nothing is missed, and nothing is read for ever."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheupdater.core.watermark import PAST_MAX, Kept, Look, Place, Row, Watermark

OVERLAP, EVERY = 8.0, 1.0


class Commit(NamedTuple):
    """A transaction that sets a row's column to the time of its beginning, and commits later."""

    began: float
    late: float  # seconds until the commit
    key: int


class Table:
    """Rows by key, as they are at a moment. `tick`: the column's resolution in seconds; 0: it counts, and has no ticks."""

    def __init__(self, commits, tick, *, versions=True):
        self.commits = sorted(commits, key=lambda each: each.began + each.late)
        order = sorted({each.began for each in commits})
        self.tick = tick
        self.values = {at: at // tick * tick if tick else float(number) for number, at in enumerate(order)}
        self.versions = versions
        self.rows = {}
        self.done = 0

    def pass_to(self, now):
        while self.done < len(self.commits):
            each = self.commits[self.done]
            if each.began + each.late > now:
                return
            self.rows[each.key] = (self.values[each.began], self.done)
            self.done += 1

    def read(self, look: Look, limit, now):
        after, until = look.after, look.until
        places = sorted(Place(value, (key,)) for key, (value, _) in self.rows.items())
        found = [
            each for each in places if after is None or (each.value, each.key) > (after.value, after.key)
        ]
        found = [each for each in found if until is None or each.value <= until.value][:limit]
        early = [bool(self.tick) and place.value > now for place in found]
        names = [self.rows[place.key[0]] if self.versions else None for place in found]
        return [Row(*each) for each in zip(found, names, early, strict=True)]


class Reader:
    """A feed over the table in virtual time. Counts what it reads and tells."""

    def __init__(self, table, *, limit=3, overlap=OVERLAP, every=EVERY, told_max=1000):
        self.table, self.limit, self.options = table, limit, {"overlap": overlap, "every": every}
        self.told_max = told_max
        self.now = 0.0
        self.kept = Kept(None, None)
        self.told = []  # (time, key, value)
        self.read = 0
        self.restart()

    def restart(self):
        """As after a kill: what is kept was confirmed."""
        self.watermark = Watermark(self.kept, **self.options, told_max=self.told_max)

    def step(self, trip=0.01):
        look = self.watermark.look(self.now)
        if look is None:
            self.pass_(max(self.watermark.wait(self.now), 0.01))
            return
        self.pass_(trip)
        rows = self.table.read(look, self.limit, self.now)
        read_at = self.now
        self.pass_(trip)
        self.read += len(rows)
        for row in self.watermark.found(look, rows, more=len(rows) == self.limit, now=self.now):
            self.told.append((read_at, row.place.key[0], row.place.value))
        self.kept = self.watermark.kept

    def pass_(self, seconds):
        self.now += seconds
        self.table.pass_to(self.now)

    def run_until(self, end):
        while self.now < end:
            self.step()

    def missed(self):
        """Keys whose last commit was not told after it."""
        last = {each.key: each for each in self.table.commits}
        said = {(key, value): at for at, key, value in self.told}
        return [
            each
            for key, each in last.items()
            if said.get((key, self.table.values[each.began]), -1.0) < each.began + each.late
        ]


def commits(late_max):
    # hundredths of a second, so that rounding decides nothing
    return st.lists(
        st.builds(
            lambda began, late, key: Commit(began / 100, late / 100, key),
            st.integers(0, 3000),
            st.integers(0, round(late_max * 100)),
            st.integers(0, 12),
        ),
        min_size=1,
        max_size=40,
    )


@settings(max_examples=300, deadline=None)
@given(
    commits=commits(OVERLAP - 0.1),
    tick=st.sampled_from([0, 0.01, 1.0]),
    limit=st.integers(1, 5),
    kills=st.sets(st.integers(0, 200), max_size=4),
    told_max=st.sampled_from([0, 3, 1000]),
    versions=st.booleans(),
)
def test_commits_within_the_overlap_are_never_missed_whoever_is_killed(
    commits, tick, limit, kills, told_max, versions
):
    reader = Reader(Table(commits, tick, versions=versions), limit=limit, told_max=told_max)
    number = 0
    while reader.now < 30 + 3 * OVERLAP:
        reader.step()
        number += 1
        if number in kills:
            reader.restart()
    assert reader.missed() == []


def test_an_overlap_of_zero_misses_late_commits():
    """The same world finds the fault, so the test above can fail."""
    random.seed(7)
    late = [Commit(t / 10, random.choice([0.0, 6.0]), t % 13) for t in range(300)]
    assert Reader(Table(late, 0.01)).missed() != []
    for overlap, misses in ((0.0, True), (OVERLAP, False)):
        reader = Reader(Table(late, 0.01), overlap=overlap)
        reader.run_until(60)
        assert bool(reader.missed()) is misses


def test_commits_later_than_the_overlap_may_be_missed():
    late = [Commit(t / 10, 0.0, t) for t in range(300)] + [Commit(5.0, 2.5 * OVERLAP, 1000)]
    reader = Reader(Table(late, 0.01))
    reader.run_until(90)
    assert [each.key for each in reader.missed()] == [1000]


def test_a_commit_that_is_late_by_less_than_an_interval_is_told_by_the_next_look():
    table = Table([*(Commit(10 + t / 100, 0.0, t) for t in range(100)), Commit(10.4, 0.5, 1000)], 0.01)
    reader = Reader(table, limit=1000)
    reader.run_until(40)
    [told] = [at for at, key, _ in reader.told if key == 1000]
    assert told <= 10.9 + EVERY + 0.1


def test_a_second_that_was_read_is_not_over_yet():
    """The row with the smaller key takes the same second after the front has passed it, and commits late."""
    reader = Reader(Table([Commit(1.0, 0.0, 5), Commit(1.99, OVERLAP - 0.01, 1)], 1.0), every=0.1)
    reader.run_until(20)
    assert reader.missed() == []


def test_rows_are_told_once_while_they_fit_into_memory():
    table = Table([Commit(1.0, 0.0, key) for key in range(50)], 0.01)
    reader = Reader(table, limit=7)
    reader.run_until(40)
    assert sorted(key for _, key, _ in reader.told) == list(range(50))

    crowded = Reader(Table(table.commits, 0.01), limit=7, told_max=10)
    crowded.run_until(40)
    assert {key for _, key, _ in crowded.told} == set(range(50))
    assert len(crowded.told) > 50


def test_many_rows_of_one_value_neither_loop_nor_are_skipped():
    table = Table([Commit(1.0, 0.0, key) for key in range(100)], 1.0)
    reader = Reader(table, limit=2)
    reader.run_until(60)
    assert reader.missed() == []
    read = reader.read
    reader.run_until(120)
    assert reader.read == read  # at rest nothing is read again


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_restart_goes_on_where_it_was(limit):
    table = Table([Commit(1.0 + key / 10, 0.0, key) for key in range(100)], 0.01)
    reader = Reader(table, limit=limit)
    reader.run_until(60)
    told = len(reader.told)
    reader.restart()
    reader.run_until(120)
    assert len(reader.told) == told


def test_a_row_from_the_future_is_told_once_and_hides_nothing():
    table = Table([Commit(1.0, 0.0, 1), Commit(20.0, 0.0, 2)], 0.01)
    table.values[1.0] = 1e9  # a wrong clock
    reader = Reader(table)
    reader.run_until(60)
    assert [key for _, key, _ in reader.told] == [1, 2]


def test_a_flood_delays_new_rows_by_no_more_than_a_share():
    """The looks take turns: the second look at a flood does not hold up what is new."""
    flood = [Commit(1.0, 0.0, key) for key in range(600)]
    reader = Reader(Table([*flood, Commit(5.0, 0.0, 9999)], 0.01), limit=10, told_max=0)
    reader.run_until(20)
    [first, *_] = [at for at, key, _ in reader.told if key == 9999]
    assert first <= 5.0 + EVERY + 0.2


def test_what_is_remembered_is_bounded():
    table = Table([Commit(t / 10, 0.0, t) for t in range(600)], 0.01)
    reader = Reader(table, limit=1, told_max=100)
    while reader.now < 70:
        reader.step(trip=0.02)
        assert len(reader.watermark._told) <= 100
        assert len(reader.watermark._past) <= PAST_MAX
    reader.run_until(100)
    assert reader.missed() == []
