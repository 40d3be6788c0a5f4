"""Read-through in every order of events: no reader gets a value older than a change that was announced before it began."""

from __future__ import annotations

from collections import Counter

import pytest
from reading import world
from reading.world import AWAITING, CALM, Dice, World

from cacheupdater_client.cache import flights, steps
from cacheupdater_client.observe import NOWHERE


def played(seeds, dice):
    seen, violations = Counter(), []
    for seed in seeds:
        one = World(seed, dice).run()
        seen += one.seen
        violations += [f"seed {seed}: {each}" for each in one.violations]
    return seen, violations


@pytest.mark.campaign(short=200, full=20_000, block=2_000)
def test_no_reader_gets_a_value_older_than_an_announced_change(seeds, record_property):
    seen, violations = played(seeds, Dice())
    record_property("figure: read-through worlds", len(seeds))
    for event in ("returned", "loads", "changes", "cancelled", "deaths", "failed", "hung"):
        record_property(f"figure: read-through worlds, {event}", seen[event])
    assert not violations, violations[:3]
    assert all(
        seen[each] for each in ("Join", "Rest", "Release", "Read", "cancelled", "deaths", "failed", "hung")
    ), "a kind of event never came about"


@pytest.mark.campaign(short=200, full=20_000, block=2_000)
def test_no_reader_of_old_values_gets_one_from_before_an_announced_change(seeds, record_property):
    seen, violations = played(seeds, Dice(ageing=0.7, readers=60, changes=0.01))
    record_property("figure: worlds with old values", len(seeds))
    for event in ("returned", "refreshes", "changes", "failed", "hung"):
        record_property(f"figure: worlds with old values, {event}", seen[event])
    assert not violations, violations[:3]
    assert all(seen[each] for each in ("Begin", "Await", "Prolong", "refreshes", "failed", "hung", "deaths"))


@pytest.mark.campaign(short=200, full=20_000, block=2_000)
def test_no_reader_who_waits_for_an_updater_gets_a_value_older_than_an_announced_change(
    seeds, record_property
):
    seen, violations = played(seeds, Dice(awaiting=0.7, readers=60))
    record_property("figure: worlds with an updater", len(seeds))
    for event in ("returned", "awaited", "updates", "not filled", "slept", "changes"):
        record_property(f"figure: worlds with an updater, {event}", seen[event])
    assert not violations, violations[:3]
    assert all(seen[each] for each in ("Expect", "Floors", "not filled", "slept", "absent", "cancelled"))


def test_one_load_of_an_updater_serves_all_processes_and_nobody_else_loads():
    for seed in range(100):
        one = World(seed, AWAITING).run()
        assert not one.violations
        assert (one.seen["updates"], one.seen["loads"], one.seen["not filled"]) == (1, 0, 0), seed
        assert one.slowest < world.WAIT_S
        assert one.store.leased([one.key(0)]) == [False]


def test_one_load_serves_all_processes():
    for seed in range(100):
        one = World(seed, CALM).run()
        assert not one.violations
        assert one.seen["loads"] == 1, f"seed {seed}: {one.seen}"


def test_nobody_waits_longer_than_a_lease_and_a_load_after_a_death():
    """The holder dies; the lease ends; somebody takes it anew and loads."""
    dice = Dice(changes=0, cancels=0, fails=0, hangs=0, keys=1, deaths=0.003)
    worlds = [World(seed, dice).run() for seed in range(300)]
    died = [one for one in worlds if one.seen["deaths"] == 1]
    assert died
    for one in died:
        assert one.seen["loads"] <= 2
        assert one.slowest <= world.LEASE_S + 2 * dice.load_s + 0.1


def test_a_failed_load_of_one_key_is_no_error_for_those_who_wait_for_another():
    """One reader wants two keys. Another process loads the second, and the load of the first fails."""
    one = World(0, CALM)
    here, elsewhere = one.processes[:2]
    first, second = b"product:1", b"product:2"
    one.store.look(elsewhere.flights.owner, [second], world.DECLARED.terms)

    def reader(*keys):
        wanted = {key: world.DECLARED.pattern.parse(key) for key in keys}
        reading = steps.Reading(
            world.DECLARED, wanted, world.DECLARED.terms, here.flights, NOWHERE, here.counts
        )
        return steps.filled(reading)

    both, waiting = reader(first, second), reader(second)
    look = next(both)
    load = both.send(one.store.look(here.flights.owner, look.keys, look.terms))
    assert isinstance(load, steps.Load)
    join = next(waiting)
    assert isinstance(both.throw(world.Failure()), steps.Release)
    with pytest.raises(world.Failure):
        both.send(None)
    assert join.flight.outcome.result() is flights.AGAIN


def test_without_an_updater_every_reader_is_told_when_its_wait_is_over():
    dice = Dice(changes=0, cancels=0, deaths=0, awaiting=1.0, sleeps=1.0)
    one = World(0, dice).run()
    assert one.seen["not filled"] == dice.readers
    assert world.WAIT_S <= one.slowest < world.WAIT_S + 0.1


# --- the worlds find what they are for -----------------------------------------------------------------


@pytest.mark.prove
def test_a_reader_that_boards_during_the_fill_is_found(monkeypatch):
    monkeypatch.setattr(flights.Flights, "close", lambda self, flights: None)
    _, violations = played(range(100), Dice(changes=0.1))
    assert violations


@pytest.mark.prove
def test_a_reader_that_takes_what_did_not_land_is_found(monkeypatch):
    plain = steps._ended

    def ended(reading, flight, entry, **named):
        flight.land(entry.value)
        plain(reading, flight, entry, **named)

    monkeypatch.setattr(steps, "_ended", ended)
    _, violations = played(range(100), Dice(changes=0.1))
    assert violations
    _, violations = played(range(20), Dice(changes=0.1, ageing=1.0, readers=60))
    assert violations
