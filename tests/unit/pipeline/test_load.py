"""One statement: its cost is always counted, its duration only if it succeeds."""

from __future__ import annotations

import asyncio

import pytest
from stories.shell import Rows, in_virtual_time

from cacheupdater.core.outcomes import Load
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.load import load
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.ports import Stamped
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.encoding import encoder


def recipe(table):
    return Recipe(table, writer=None, encode=encoder("json"), ttl=300.0)


@in_virtual_time
async def test_a_row_that_does_not_exist_is_left_out():
    table = Rows({(1,): "one", (3,): "three"})
    values = await load(
        recipe(table), [(1,), (2,), (3,)], namespace="p", observer=RecordingObserver(), seen=Load()
    )
    assert values == {(1,): "one", (3,): "three"}


@in_virtual_time
async def test_a_load_is_one_statement_and_counts_the_rows_that_were_asked_for():
    observer = RecordingObserver()
    await load(
        recipe(Rows({(1,): "one"}, took=0.25)), [(1,), (2,)], namespace="p", observer=observer, seen=Load()
    )
    assert observer.counts == {("statements", "p", ""): 1, ("rows", "p", ""): 2}
    assert observer.measured == {("unit_keys", "p"): [2], ("load_seconds", "p"): [0.25]}


@in_virtual_time
async def test_a_load_that_fails_has_cost_a_statement_and_is_not_measured_as_a_load():
    observer, table = RecordingObserver(), Rows()
    table.error = Unavailable("no connection")
    with pytest.raises(Unavailable, match="no connection"):
        await load(recipe(table), [(1,), (2,)], namespace="p", observer=observer, seen=Load())
    assert (observer.total("statements"), observer.total("rows")) == (1, 2)
    assert not observer.measured["load_seconds", "p"]


@in_virtual_time
async def test_a_load_that_fails_has_taken_its_time_all_the_same():
    class Slow(Rows):
        async def load(self, keys, leaves):
            await asyncio.sleep(0.25)
            raise Unavailable("no connection")

    seen = Load()
    with pytest.raises(Unavailable):
        await load(recipe(Slow()), [(1,)], namespace="p", observer=RecordingObserver(), seen=seen)
    assert seen.seconds == 0.25


@in_virtual_time
async def test_what_rows_say_about_their_last_change_is_parallel_to_the_keys():
    class Dated(Rows):
        async def load(self, keys, leaves):
            return Stamped(await super().load(keys, leaves), {(2,): 7.0})

    seen = Load()
    table = Dated({(1,): "one", (2,): "two"})
    await load(recipe(table), [(1,), (2,), (3,)], namespace="p", observer=RecordingObserver(), seen=seen)
    assert seen.stamps == [None, 7.0, None]
