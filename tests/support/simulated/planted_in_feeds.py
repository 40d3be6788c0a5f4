"""Faults that are put into the way of changes that nobody announced: `planted_faults` lists them with the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

from cacheupdater.core.unit import Phase
from simulated.world import PlantedFault


class _OfFeeds(PlantedFault):
    fed = True


class SafeAtPut(_OfFeeds):
    """The reader confirms what is on its way to the queue."""

    name = "confirmed before queued"

    def concerns(self, plan):
        return not plan.fed.memory and plan.fed.overlap is None

    def sink(self, sink):
        put = sink.put

        async def put_and_forget(keys):
            await put(keys)
            return lambda: True

        sink.put = put_and_forget


class SafeInMemory(SafeAtPut):
    """The reader confirms what lies in a memory queue, which dies with its process."""

    name = "a memory queue is safe"

    def concerns(self, plan):
        return plan.fed.memory and plan.fed.overlap is None


class DroppedUnread(_OfFeeds):
    """Nobody reads the key, so its change is no matter."""

    name = "fed changes of unread keys are dropped"

    def engine(self, engine):
        engine._fed._drops = SimpleNamespace(remove_unread=lambda keys, open_pack: None)


class DeclinedWhileRunning(_OfFeeds):
    """A load is under way, so it is taken to serve the change."""

    name = "fed changes are declined while a load runs"

    def engine(self, engine):
        take, seats = engine._fed.take, engine._dedup.seats

        def take_those_at_rest(hints, open_pack, now):
            left = take(hints, open_pack, now)
            running = [key for key in left.keys if key in seats and seats[key].phase is Phase.RUNNING]
            return left.without(frozenset(running))[0]

        engine._fed.take = take_those_at_rest


class SweepsOnce(_OfFeeds):
    name = "the second sweep is left out"

    def concerns(self, plan):
        """Some loads take longer than a sweep, and nobody reads what they have written."""
        return plan.fed.last

    def reader(self, reader):
        async def nothing(*_):
            return []

        reader._sweeps._sweep_again = nothing


class LeansOnNobody(_OfFeeds):
    """A fed change counts as finished once an older hint stands for it, although that hint dies with the process."""

    name = "fed changes do not lean on older hints"

    def concerns(self, plan):
        return plan.fed.memory and plan.fed.overlap is None

    def engine(self, engine):
        take = engine._fed.take

        def take_upright(hints, open_pack, now):
            left = take(hints, open_pack, now)
            open_pack.leans = False
            return left

        engine._fed.take = take_upright


class WaitsForEver(_OfFeeds):
    """The updater has no share of the budget, and sleeps until it has one by the share that it has now: for ever."""

    name = "a reader without a share of the budget waits for ever"

    def concerns(self, plan):
        return plan.group is not None

    def reader(self, reader):
        found, paying = reader._lookups._found, reader._lookups._paying

        async def found_when_paid(lookup, values):
            when = paying(lookup.namespace).when()
            await asyncio.sleep(max(0.0, when - asyncio.get_running_loop().time()))
            return await found(lookup, values)

        reader._lookups._found = found_when_paid


class NoOverlap(_OfFeeds):
    """Rows of transactions that commit late lie before the place up to which a table was read."""

    name = "polled without an overlap"

    def concerns(self, plan):
        return plan.fed.overlap is not None

    def plan(self, plan):
        return replace(plan, fed=replace(plan.fed, overlap=0.0))


IN_FEEDS = (
    SafeAtPut,
    SafeInMemory,
    DroppedUnread,
    DeclinedWhileRunning,
    SweepsOnce,
    LeansOnNobody,
    WaitsForEver,
    NoOverlap,
)
