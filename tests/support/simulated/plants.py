"""Faults put in on purpose: a campaign that finds none of them proves nothing."""

from __future__ import annotations

from dataclasses import replace

from cacheupdater.core.answers import UNCHANGED, WRITTEN, Result
from simulated.cache import SimWriter
from simulated.updater import SimEngine
from simulated.world import Plant


class NaiveWriter(SimWriter):
    """SET and DEL, as everybody does it without a fence."""

    def put(self, token, entry):
        if entry.value is None:
            self._cache.server.delete(entry.key)
        else:
            self._cache.server.set(entry.key, entry.value, entry.ttl_ms)
        return WRITTEN


class LateTokenWriter(SimWriter):
    """The token is taken when the write arrives: after the database was read."""

    def put(self, token, entry):
        return super().put(self._inner.server.token(), entry)


class ContentWriter(SimWriter):
    """A refused write counts as finished: nobody refreshes again."""

    async def write(self, token, entries):
        said = await super().write(token, entries)
        return [UNCHANGED if answer.result is Result.REFUSED else answer for answer in said]


class Naive(Plant):
    name = "naive"

    def writer(self, cache, process, world):
        return NaiveWriter(cache, process, world)


class LateToken(Plant):
    name = "token after the read"

    def writer(self, cache, process, world):
        return LateTokenWriter(cache, process, world)


class Content(Plant):
    name = "no refresh after a refusal"

    def writer(self, cache, process, world):
        return ContentWriter(cache, process, world)


class CommitScan(Plant):
    name = "commits scan"

    def engine(self, engine):
        cursor, advance = engine.cursor, engine.cursor.advance
        engine.cursor = _ScanCursor(cursor, advance)


class _ScanCursor:
    """Says that everything is done which has been read."""

    def __init__(self, cursor, advance):
        self._cursor = cursor
        self._advance = advance

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def advance(self):
        self._advance()
        return self._cursor.scan


class DeafMarks(Plant):
    name = "absent marks outlive changes"

    def engine(self, engine):
        engine._marks.end = lambda keys: None


class NoHoldOff(Plant):
    name = "no hold-off"

    def plan(self, plan):
        return replace(plan, hold_off_ms=0)


class Careless(Plant):
    name = "dropped changes leave the value"

    def engine(self, engine):
        def forget(keys, origins):
            for origin in origins:
                origin.open -= 1

        engine._removals.ask = forget


class Greedy(Plant):
    name = "permits are not given back"

    def partition(self, partition):
        partition._give_back = lambda unit, task: None


class Insatiable(Plant):
    name = "reads on while full"

    def engine(self, engine):
        engine.__class__ = _NeverFull


class _NeverFull(SimEngine):
    full = False


PLANTS = {
    each.name: each
    for each in (
        Plant,
        Naive,
        LateToken,
        Content,
        CommitScan,
        DeafMarks,
        NoHoldOff,
        Careless,
        Greedy,
        Insatiable,
    )
}
