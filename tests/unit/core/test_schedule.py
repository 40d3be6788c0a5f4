"""The order, pace and fairness of due keys in an engine with a budget."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.answers import Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.schedule import Schedule


def keys(count: int, first: int = 0, name: str = "p") -> list[bytes]:
    return [b"%s:%d" % (name.encode(), at) for at in range(first, first + count)]


def source(
    rate: float = 2.0**30, burst: float = 2.0**30, *, concurrency: int = 100, now: float = 0.0
) -> Source:
    return Source("db", Bucket(rate, burst, now=now), concurrency=concurrency)


def single(concurrency: int = 1) -> Source:
    return Source("db", plenty(), concurrency=concurrency)


# --- order -----------------------------------------------------------------------------------------------


def test_misses_run_before_changes_before_touches():
    story = Story(namespace(source=single()), unit_keys=1)
    story.touch(b"p:1", at=0.0)
    story.change(b"p:2", at=0.1)
    story.miss(b"p:3", at=0.2)
    order = []
    for _ in range(3):
        unit = story.start(1.0)
        order += unit.keys
        story.end(unit, 1.0)

    assert order == [b"p:3", b"p:2", b"p:1"]


def test_one_statement_takes_the_most_urgent_keys_of_several_packs():
    story = Story(unit_keys=3)
    story.touch(*keys(2), at=0.0)
    story.miss(*keys(2, 10), at=0.0)
    work = story.step(0.0)

    assert work.units[0].keys[:2] == keys(2, 10)


def test_key_that_is_due_again_has_kept_its_place():
    story = Story(namespace(source=single()), unit_keys=1)
    story.touch(b"p:1", at=0.0)
    story.end(story.start(0.0), 0.1, Result.REFUSED)
    story.change(*keys(5, 10), at=0.2)

    assert story.starts(0.3) == [[b"p:1"]]


def test_part_of_a_failed_unit_is_never_joined_with_others():
    story = Story()
    story.touch(*keys(2), at=0.0)
    story.fail(story.start(0.0), 0.1, own=True)
    story.touch(*keys(2, 10), at=0.2)

    assert sorted(map(sorted, story.starts(0.3))) == [[b"p:0"], [b"p:1"], keys(2, 10)]


def test_changes_that_have_waited_behind_a_refresh_share_a_unit_with_the_others_of_their_pack():
    story = Story()
    story.touch(*keys(4), at=0.0)
    head = story.start(0.0)
    story.change(*keys(2), at=0.01)
    story.change(*keys(2, 2), at=0.02)
    story.end(head, 0.03)

    units = dict.fromkeys(story.engine._dedup.seats.values())
    assert [(unit.keys, unit.demand.since) for unit in units] == [(keys(2), 0.01), (keys(2, 2), 0.02)]


# --- turns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_steps", [0, 1, 2, 3])
def test_namespaces_take_turns_however_often_the_engine_is_asked_in_between(idle_steps):
    shared = single()
    story = Story(*(namespace(name, source=shared) for name in "abc"), unit_keys=1)
    for name in "abc":
        story.touch(*keys(30, name=name), at=0.0)
    served = Counter()
    for _ in range(30):
        unit = story.start(1.0)
        for _ in range(idle_steps):  # hints come, nothing can start
            assert story.starts(1.0) == []
        served[unit.namespace.name] += 1
        story.end(unit, 1.0)

    assert served == {"a": 10, "b": 10, "c": 10}


def test_flood_of_one_namespace_does_not_hold_up_another():
    shared = source(rate=100.0, burst=10.0)
    story = Story(namespace("a", source=shared), namespace("b", source=shared))
    story.touch(*keys(1_000, name="a"), at=0.0)
    story.touch(b"b:1", at=0.0)
    started, now = [], 0.0
    while b"b:1" not in started:
        work = story.step(now)
        started += [key for unit in work.units for key in unit.keys]
        now = now if work.units else work.wake

    assert len(started) <= 21


def _all_starts(seed: int) -> list[tuple[float, list[list[bytes]], float]]:
    """What one namespace starts, when, and when the next step is asked for, in a random story with suspects and absent rows."""
    rng = Random(seed)
    rate = rng.choice((50.0, 2_000.0, 2.0**30))
    database = source(rate, rate / rng.choice((1, 10)), concurrency=rng.choice((1, 3, 100)))
    space = namespace(every=0.0, source=database)
    story = Story(space, unit_keys=rng.choice((3, 20)), gather=rng.choice((0.0, 0.02)))
    running, told, now = [], [], 0.0
    for _ in range(120):
        now += rng.choice((0.0, 0.001, 0.01, 0.3))
        hint = rng.choice((story.touch, story.touch, story.miss, story.change))
        hint(*keys(rng.randint(1, 30), rng.randint(0, 60)), at=now)
        if rng.random() < 0.1:
            story.engine.slow_keys.suspect(keys(6, rng.randint(0, 60)), rng.randint(1, 3))
        if rng.random() < 0.1:
            space.absent_bucket.charge(rng.choice((5, 500)), now)
        work = story.step(now)
        running += work.units
        told.append((now, [unit.keys for unit in work.units], work.wake))
        for unit in running[: rng.randint(0, len(running))]:
            running.remove(unit)
            end = rng.choice((story.end, story.end, story.time_out))
            end(unit, now)
    return told


@pytest.mark.parametrize("seed", range(30))
def test_a_namespace_that_is_alone_starts_the_same_units_as_if_it_stood_in_line(seed, monkeypatch):
    alone = _all_starts(seed)
    monkeypatch.setattr(Schedule, "_serve_alone", lambda *_: [])

    assert alone == _all_starts(seed)


def test_unseen_suspects_of_a_wary_namespace_start_beside_a_change():
    space = namespace(source=source(1_000.0, 1_000.0, concurrency=2, now=-5.0), every=0.0)
    story = Story(space)
    story.miss(*keys(16), at=0.0)
    for now in (0.0, 0.6):  # the misses time out twice while another load is answered
        unit = story.start(now)
        story.change(*keys(1, int(900 + 10 * now)), at=now + 0.03)
        story.end(story.start(now + 0.03), now + 0.4)
        story.time_out(unit, now + 0.5)
    space.absent_bucket.charge(500, 1.2)
    story.miss(*keys(50, 2_000), at=1.2)
    story.change(*keys(1, 5_000), at=1.2)

    assert sorted(story.starts(1.2)) == [keys(4), keys(1, 5_000)]


# --- budget ----------------------------------------------------------------------------------------------


def test_nothing_starts_before_the_bucket_has_a_row():
    story = Story(namespace(source=source(rate=10.0, burst=10.0)))
    story.miss(b"p:1", at=0.0)

    work = story.step(0.0)
    assert work.units == []
    assert work.wake == pytest.approx(0.1)
    assert story.starts(work.wake) == [[b"p:1"]]


def test_unit_never_holds_more_keys_than_its_bucket_can_pay():
    story = Story(namespace(source=source(rate=100.0, burst=1_000.0)), pace=0.5)
    story.touch(*keys(200), at=0.0)
    sizes, now = [], 0.0
    while story.engine.pending:
        work = story.step(now)
        for unit in work.units:
            sizes.append(len(unit.keys))
            assert sum(sizes) <= 100.0 * now + 1e-6
            story.end(unit, now)
        now = now if work.units else work.wake

    assert sizes == [50, 50, 50, 50]
    assert now == pytest.approx(2.0)


def test_quota_binds_its_namespace_alone():
    shared = source()
    slow = namespace("a", source=shared, quota=Bucket(1.0, 1.0, now=0.0))
    story = Story(slow, namespace("b", source=shared))
    story.touch(*keys(5, name="a"), at=1.0)
    story.touch(*keys(5, name="b"), at=1.0)

    assert sorted(map(len, story.starts(1.0))) == [1, 5]


def test_key_that_came_while_a_fleet_had_granted_nothing_of_its_quota_starts_once_it_does():
    quota = Bucket(10.0, 10.0, now=0.0)
    quota.until = 0.0
    story = Story(namespace(quota=quota))
    story.miss(*keys(3), at=1.0)
    assert story.starts(1.0) == story.starts(5.0) == []

    quota.change(10.0, 10.0, now=6.0)
    quota.open(20.0)
    assert sum(map(len, story.starts(6.5))) == 3


def test_short_bucket_saves_up_for_a_statement_worth_making():
    story = Story(namespace(source=source(rate=1_000.0, burst=1_000.0)), pace=0.1)
    story.touch(*keys(150), at=0.0)

    work = story.step(0.05)
    assert work.units == []
    assert work.wake == pytest.approx(0.1)
    assert [len(names) for names in story.starts(work.wake)] == [100]


@pytest.mark.campaign
def test_who_saves_up_for_more_than_its_bucket_can_hold_by_now_takes_less():
    """An updater's share of a budget shrinks while its keys stand in line: a member joins, or a fleet grants less."""
    database = source(100.0, 10.0)
    story = Story(namespace(source=database))
    story.touch(*keys(20), at=0.0)
    assert not story.step(0.01).units
    database.bucket.change(20.0, 2.0, now=0.01)

    assert [len(unit.keys) for unit in story.step(1.0).units] == [2]


def test_no_window_sees_more_rows_than_rate_times_time_plus_burst():
    for seed in range(60):
        rng = Random(seed)
        rate, burst = rng.uniform(2.0, 60.0), rng.uniform(1.0, 20.0)
        story = Story(
            namespace(every=0.0, source=source(rate, burst)), unit_keys=rng.choice((1, 7, 200)), pace=0.1
        )
        now, spent = 0.0, []
        for _ in range(40):
            now += rng.choice((0.0, 0.01, 0.3, 2.0))
            story.change(*keys(rng.randint(1, 9), rng.randint(0, 20)), at=now)
            for unit in story.step(now).units:
                spent.append((now, len(unit.keys)))
                story.end(unit, now)
        for first in range(len(spent)):
            for last in range(first, len(spent)):
                rows = sum(rows for _, rows in spent[first : last + 1])
                assert rows <= rate * (spent[last][0] - spent[first][0]) + burst + 1e-6


# --- gathering -------------------------------------------------------------------------------------------


def test_small_packs_share_a_statement():
    story = Story(gather=0.02)
    story.touch(b"p:1", at=1.0)
    assert story.starts(1.0) == [[b"p:1"]]
    story.touch(b"p:2", at=1.001)
    work = story.step(1.001)
    assert (work.units, work.wake) == ([], pytest.approx(1.02))
    story.touch(b"p:3", at=1.01)

    assert story.starts(work.wake) == [[b"p:2", b"p:3"]]


@pytest.mark.parametrize("kind", ["miss", "change"])
def test_a_key_that_somebody_waits_for_lingers_only_while_all_connections_are_busy(kind):
    story = Story(namespace(source=Source("db", plenty(), concurrency=2)), gather=0.02)
    story.touch(b"p:1", at=1.0)
    first = story.start(1.0)
    story.touch(b"p:2", at=1.001)
    getattr(story, kind)(b"p:3", at=1.002)
    assert story.starts(1.002) == [[b"p:3", b"p:2"]]

    getattr(story, kind)(b"p:4", at=1.003)
    getattr(story, kind)(b"p:5", at=1.004)
    assert story.starts(1.004) == []
    story.end(first, 1.005)
    assert story.starts(1.005) == [[b"p:4", b"p:5"]]


def test_full_unit_waits_for_nobody():
    story = Story(gather=0.02, unit_keys=2)
    story.touch(b"p:1", at=1.0)
    story.step(1.0)
    story.touch(*keys(2, 10), at=1.001)

    assert story.starts(1.001) == [keys(2, 10)]


# --- backlog ---------------------------------------------------------------------------------------------


def test_full_backlog_gives_up_the_oldest_touch_first():
    story = Story(namespace(source=single(0), max_backlog=3))
    story.change(b"p:1", at=0.0)
    story.touch(b"p:2", at=0.1)
    story.touch(b"p:3", at=0.2)
    story.miss(b"p:4", at=0.3)

    assert set(story.engine._dedup.seats) == {b"p:1", b"p:3", b"p:4"}
    story.miss(*keys(2, 5), at=0.4)
    assert set(story.engine._dedup.seats) == {b"p:1", *keys(2, 5)}, "then misses, and changes last"


def test_touch_that_failed_long_ago_is_older_than_one_of_now():
    slots = single()
    story = Story(namespace(source=slots, max_backlog=1))
    story.touch(b"p:1", at=0.0)
    unit = story.start(0.0)
    story.touch(b"p:2", at=1.0)
    story.end(unit, 1.5, Result.TOO_OLD)
    slots.slots.taken = 1
    story.step(4.0)
    story.touch(b"p:3", at=4.0)

    assert set(story.engine._dedup.seats) == {b"p:3"}


def test_backlog_is_bounded_in_number_whatever_comes():
    story = Story(namespace(source=single(0), max_backlog=10))
    for at in range(50):
        story.engine.on_hints([Hints(at, Kind(at % 3), keys(20, at * 20), ())], at / 10)
        assert story.engine.pending <= 10 + 50 * 20
        work = story.step(at / 10)
        if work.invalidation:
            story.removed(work.invalidation, at / 10)
        assert story.engine.pending <= 10


def test_touch_that_ages_is_dropped_and_a_change_leaves_redis():
    story = Story(namespace(source=single(0)))
    story.touch(b"p:1", at=0.0)
    story.change(b"p:2", at=0.0)
    now = 0.0
    while story.engine.tracked:
        work = story.step(now)
        now = work.wake if story.engine.tracked else now

    assert 30.0 <= now <= 31.0
    assert work.invalidation.keys == [b"p:2"]
    assert story.count("dropped", "aged") == 2


def test_delayed_key_ages_as_any_other():
    story = Story()
    story.change(b"p:1", at=0.0)
    story.end(story.start(0.0), 0.1, Result.REFUSED, wait=1_000.0)
    now = 0.1
    while story.engine.tracked:
        work = story.step(now)
        now = work.wake if story.engine.tracked else now

    assert 30.0 <= now <= 31.1
    assert work.invalidation.keys == [b"p:1"]


# --- waking ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0.0, 86_400.0 * 365, 123_456.789])
def test_stepping_exactly_when_told_always_gets_on(start):
    """No polling: every step either starts something or is told a later time, and a few steps per unit are enough."""
    for seed in range(40):
        rng = Random(seed)
        rate, burst = rng.uniform(0.7, 333.3), rng.uniform(1.0, 50.0)
        shared = source(rate, burst, concurrency=rng.choice((1, 3)), now=start)
        story = Story(
            *(namespace(name, source=shared, quota=Bucket(rate / 3, burst, now=start)) for name in "ab"),
            gather=0.02,
            unit_keys=10,
            backlog_age=1e6,
        )
        now = start + rng.random()
        for name in "ab":
            story.touch(*keys(30, name=name), at=now)
            story.miss(*keys(30, 100, name=name), at=now)
        steps = units = 0
        while story.engine.pending:
            work = story.step(now)
            steps += 1
            assert work.wake > now
            for unit in work.units:
                units += 1
                story.end(unit, now)
            now = now if work.units else work.wake
            assert now < inf
        looks = (now - start) / story.limits.prune
        assert steps <= 4 * units + looks + 10


def test_engine_with_nothing_to_do_asks_for_nothing():
    story = Story()
    assert story.step(5.0).wake == inf
    story.touch(b"p:1", at=5.0)
    story.refresh(5.0)
    assert story.step(5.0).wake == 10.0
    assert story.step(10.0).wake == inf
