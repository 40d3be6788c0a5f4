"""Updaters of one group are killed under load, one after another, and others take their place: nothing is lost.

Acceptance of the Kafka side: 12 partitions, 20,000 hints a second over 100,000 keys, `kill -9` every ten seconds. Afterwards
the emitted hints, the loads, the commits and the cached values are compared. A control that commits ahead of its work must
fail the same checks. The same on each depot (streams, SQLite, PostgreSQL), with fewer hints and the times of the takeovers.
"""

from __future__ import annotations

import random
import time
from functools import partial

import pytest
from group.disk import SlowestWrite
from group.names import EVERY_S, Names
from group.rows import Rows
from group.story import PARTITIONS, PLANTED, Group
from group.topic import Topic
from live.updater_process import eventually
from suite.pace import Metronome

KILL_EVERY_S = 10.0
DEPOT_SHARE = 0.5  # half a minute for each depot, where the group on Kafka has a minute
DEPOT_RATE = 2_000  # hints a second; what a depot takes at most, `make bench` measures
LEASE_S = 5  # the default session of a member of a depot
HEIRS_WRITES = 2  # its session and its claim, one after the other
LATE_S = 180.0  # starts and takeovers may take so much longer on a slow machine
AIMED = 20_600  # hints a second, for 20,000: a key changes once in a statement, however often it was drawn


@pytest.fixture
def group(tmp_path, needs_apache, kafka, new_topic, pg_url, redis_url, updaters):
    topic = new_topic(partitions=PARTITIONS)
    return Group(
        tmp_path,
        updaters,
        queue=Topic(kafka.bootstrap, topic),
        rows=Rows(pg_url),
        redis_url=redis_url,
    )


def replaced(victim):
    victim.kill()
    victim.start()
    return []  # nobody asks what it owned


def replaced_on_depot(names, victim):
    """Waits for its heirs: two kills at once would make one long takeover."""
    victim.kill()
    owned = names.owned_by(victim)
    victim.start()
    names.came(victim)
    eventually(lambda: names.have_heirs(owned), every=EVERY_S)
    return list(owned)


def kill_and_replace(group, draw, seconds, replaced=replaced):
    """One every ten seconds, at any moment of its work; the next comes at once. When each was killed, and what it owned."""
    rounds, began = max(1, round(seconds / KILL_EVERY_S)), time.monotonic()
    kills = []
    for number in range(rounds):
        moment = began + (number + draw.uniform(0.1, 0.5)) * KILL_EVERY_S
        time.sleep(max(0.0, moment - time.monotonic()))
        victim = draw.choice(group.members)
        killed = time.time()  # noqa: TID251  compared with the times of other processes
        kills.append((killed, replaced(victim)))
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return kills


@pytest.mark.timeout(0)  # as long as it was asked to
@pytest.mark.prove
def test_updaters_that_are_killed_under_load_lose_nothing(group, group_seconds, record_property):
    draw, seconds = random.Random(5), group_seconds
    group.start(2)
    with group.generator(seconds=3 * seconds, rate=AIMED) as generator:
        kills = kill_and_replace(group, draw, seconds / 2)
        group.start(2)
        kills += kill_and_replace(group, draw, seconds / 2)
        emitted = generator.end()
    group.rest()
    verdict = group.verdict(emitted)
    print(f"{len(kills)} killed: {verdict}")

    stats = emitted.stats
    assert stats["dropped"] == {}
    assert stats["delivered"] == stats["emitted"] == verdict.hints
    assert group.metric("dropped_total") == 0
    assert verdict.faults == {}
    record_property("figure: group kills, hints judged", verdict.hints)
    record_property("figure: group kills, hints a second", f"{verdict.rate:,.0f}")
    record_property("figure: group kills, updaters killed", len(kills))
    record_property("figure: group kills, hints that were sent twice", verdict.repeated)


@pytest.mark.prove
@pytest.mark.timeout(0)
def test_one_of_three_updaters_on_a_depot_is_killed_every_ten_seconds_and_nothing_is_lost(
    depot_kind, depot_group, group_seconds, record_property
):
    group, draw, seconds = depot_group, random.Random(17), DEPOT_SHARE * group_seconds
    names = Names(group.queue)
    for _ in range(3):
        names.came(*group.start(1, session=LEASE_S))
    with group.generator(seconds=3 * seconds + LATE_S, rate=DEPOT_RATE) as generator:
        with Metronome() as metronome, SlowestWrite(group.folder) as disk:
            kills = kill_and_replace(group, draw, seconds, partial(replaced_on_depot, names))
        emitted = generator.end()
    group.rest()
    verdict, took = group.verdict(emitted), group.takeovers(kills)
    print(f"{depot_kind}: {len(kills)} killed: {verdict}; {verdict.repeated} sent twice")
    print(
        f"taken over after {sorted(round(each, 2) for each in took)} s;"
        f" machine late by {metronome.latest:.2f} s, its disk by {disk.latest:.2f} s"
    )

    stats = emitted.stats
    assert stats["dropped"] == {}
    assert stats["delivered"] == stats["emitted"] == verdict.hints
    assert group.metric("dropped_total") == 0
    assert (verdict.faults, verdict.repeated) == ({}, 0)
    assert 0 < max(took) <= LEASE_S + 1 + metronome.latest + HEIRS_WRITES * disk.latest
    record_property(f"figure: kills on {depot_kind}, hints judged", verdict.hints)
    record_property(f"figure: kills on {depot_kind}, updaters killed", len(kills))
    record_property(f"figure: kills on {depot_kind}, longest takeover, s", max(took))
    record_property(f"figure: kills on {depot_kind}, mean takeover, s", sum(took) / len(took))


@pytest.mark.prove
def test_an_updater_that_commits_ahead_of_its_work_does_not_pass(group):
    """The control: should it pass, the judgement proves nothing."""
    group.start(1, program=(PLANTED,), budget="700/s")
    with group.generator(seconds=60, rate=4_000) as generator:
        eventually(lambda: group.metric("pending") > 500)  # they are committed, and not begun
        group.members[0].kill()
        group.members[0].start()
        emitted = generator.end()
    group.rest()
    verdict = group.verdict(emitted)
    print(verdict)
    assert verdict.early > 100 or verdict.repeated
    assert verdict.lost > 10
    assert verdict.unserved > 10
    assert verdict.astray == verdict.moved_back == 0
    assert len(group.queue.generations()) >= 2
