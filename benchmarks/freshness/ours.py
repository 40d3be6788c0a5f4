"""The shipped engine and the shipped policy `price`, under the reads and changes of a world.

This is no model: it runs the classes of the service, with the same calls. At every `step` of simulated time (50 ms by
default) the reads since the last step arrive as one pack of hints. Then the engine says what to load; loads take no time.
Reads are judged at their own moments, so the delay of a step counts against the policy. With hints, changes are announced at
their own moments too. A key that the engine removes is absent until its next read, which waits, loads for itself and leaves
a miss.

The policy knows nothing of the true rates and has its own prior.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.core.answers import UNCHANGED, WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.outcomes import Load
from cacheupdater.price import Market, Price
from cacheupdater_client.protocol.patterns import Pattern
from freshness.compiled import by_key, compiled
from freshness.truth import WINDOWS_S, Refreshes, busiest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.unit import Unit
    from freshness.worlds import World

LOAD_S = 0.002  # the reported duration of a load


@dataclass(frozen=True)
class Conditions:
    """The conditions of a run."""

    budget: float  # rows/s
    burst: float  # rows
    step: float = 0.05  # seconds between two looks
    hinted: float = 0.0  # share of the changes that are announced
    stamps: bool = False  # whether rows say when they changed last (`updated_at`)
    least: float = 0.0  # `least_gain`
    seed: int = 0


def run(world: World, given: Conditions) -> Refreshes:
    """All refreshes of the policy. Asserts that it kept its budget in every window."""
    drive = Drive(world, given)
    drive.run()
    return drive.refreshes()


class Drive:
    """One world under one engine."""

    def __init__(self, world: World, given: Conditions) -> None:
        self.world, self.given = world, given
        self.names = [b"k:%d" % key for key in range(world.keys)]
        pattern = Pattern.compile("k:{id:int}")
        source = Source("main", Bucket(given.budget, given.burst, now=0.0), concurrency=10**6)
        namespace = Namespace("k", pattern, source, terms=Terms(stamp="age" if given.stamps else ""))
        keyspace = Keyspace([(pattern, namespace)])
        limits, rng = Limits(), random.Random(given.seed)
        self.market = Market(source, [namespace], random=rng.random, now=0.0, least=given.least)
        self.policy = Price(keyspace, [namespace], {source: self.market}, limits=limits, now=0.0)
        self.engine = Engine(keyspace, self.policy, limits=limits, random=rng.random, offset=0)
        self.offset = 0
        self.seen = world.changes.start[:-1].copy()  # each key's first change that no load has seen
        self.absent = np.zeros(world.keys, bool)
        self.any_absent = False
        self.log: list[tuple[np.ndarray, np.ndarray]] = []  # loads that the budget paid
        self.own: list[tuple[float, int]] = []  # loads by readers that found nothing

    def run(self) -> None:
        """Plays the world from the first read to the last."""
        looks = _looks(self.world, self.given)
        hinted_at, hinted = _announced(self.world, self.given)
        until = np.searchsorted(self.world.times, looks, side="right")
        heard = np.searchsorted(hinted_at, looks, side="right")
        at = told = 0
        for now, read, change in zip(looks.tolist(), until.tolist(), heard.tolist(), strict=True):
            batch: list[Hints] = []
            if read > at:
                batch += self._reads(at, read)
            if change > told:
                batch.append(self._pack(Kind.CHANGE, np.unique(hinted[told:change]), ()))
            at, told = read, change
            if batch:
                self.engine.on_hints(batch, now)
            self._step(now)

    def refreshes(self) -> Refreshes:
        """All loads with their times, for the judge."""
        times = np.concatenate([at for at, _ in self.log]) if self.log else np.empty(0)
        keys = np.concatenate([keys for _, keys in self.log]) if self.log else np.empty(0, np.int32)
        for span in WINDOWS_S:
            most = busiest(times, span)
            assert most <= self.given.budget * span + max(self.given.burst, 1.0) + 1e-6, (span, most)
        paid = times
        if self.own:
            times = np.concatenate([times, [at for at, _ in self.own]])
            keys = np.concatenate([keys, [key for _, key in self.own]])
            order = np.argsort(times, kind="stable")
            times, keys = times[order], keys[order]
        waited = sum(at >= self.world.warm for at, _ in self.own)
        return Refreshes(by_key(times, keys, self.world.keys), waited, paid)

    def _reads(self, begin: int, end: int) -> list[Hints]:
        """The reads of a step, each key once with its count. Reads that found nothing are apart."""
        ids = self.world.ids[begin:end]
        missed = self._missed(begin, end) if self.any_absent else []
        keys, counts = np.unique(ids, return_counts=True)
        packs = []
        if missed:
            packs.append(self._pack(Kind.MISS, np.array(missed), [1] * len(missed)))
            counts[np.isin(keys, missed)] -= 1
            keys, counts = keys[counts > 0], counts[counts > 0]
        if len(keys):
            packs.append(self._pack(Kind.TOUCH, keys, counts.tolist()))
        return packs

    def _missed(self, begin: int, end: int) -> list[int]:
        """The keys that a read found absent: the first reader of such a key waits and loads it."""
        missed = []
        ids = self.world.ids[begin:end]
        for place in np.flatnonzero(self.absent[ids]).tolist():
            key, moment = int(ids[place]), float(self.world.times[begin + place])
            if self.absent[key]:
                self.absent[key] = False
                self.own.append((float(np.nextafter(moment, 0.0)), key))
                self._changed(np.array([key]), moment)
                missed.append(key)
        self.any_absent = bool(self.absent.any())
        return missed

    def _pack(self, kind: Kind, keys: np.ndarray, counts: Sequence[int]) -> Hints:
        self.offset += 1
        names = self.names
        return Hints(self.offset - 1, kind, [names[key] for key in keys.tolist()], counts)

    def _step(self, now: float) -> None:
        work = self.engine.step(now)
        for unit in work.units:
            self._load(unit, now)
        if work.invalidation:
            gone = [int(key[2:]) for key in work.invalidation.keys]
            self.absent[gone] = True
            self.any_absent = True
            self.engine.on_invalidated(work.invalidation, [WRITTEN] * len(gone), now)

    def _load(self, unit: Unit, now: float) -> None:
        keys = np.array([captures[0] for captures in unit.captures], np.int64)
        changed = self._changed(keys, now) | self.absent[keys]
        if self.any_absent:
            self.absent[keys] = False
        self.log.append((np.full(len(keys), now), keys.astype(np.int32)))
        stamps = self._ages(keys, now) if self.given.stamps else ()
        answers = [WRITTEN if each else UNCHANGED for each in changed.tolist()]
        self.engine.on_answers(unit, answers, now, load=Load(LOAD_S, stamps))

    def _changed(self, keys: np.ndarray, now: float) -> np.ndarray:
        """Whether each key has changed since its last load. This call counts as its next load."""
        return _advance(self.world.changes, self.seen, keys, now)

    def _ages(self, keys: np.ndarray, now: float) -> list[float]:
        """Seconds since each key's last change, as its row tells at the load."""
        changes, seen = self.world.changes, self.seen[keys]
        some = seen > changes.start[keys]
        last = np.where(some, changes.times[np.maximum(seen - 1, 0)], self.world.before[keys])
        return (now - last).tolist()


def _looks(world: World, given: Conditions) -> np.ndarray:
    """The times at which the engine is called: at regular steps, and at each announced change."""
    regular = np.arange(1, int(world.seconds / given.step) + 1) * given.step
    return np.union1d(regular, _announced(world, given)[0])


def _announced(world: World, given: Conditions) -> tuple[np.ndarray, np.ndarray]:
    """The times and keys of the announced changes, in order of time."""
    if not given.hinted:
        return np.empty(0), np.empty(0, np.int64)
    keys = np.repeat(np.arange(world.keys), np.diff(world.changes.start))
    told = np.random.default_rng(given.seed).random(len(keys)) < given.hinted
    times, keys = world.changes.times[told], keys[told]
    order = np.argsort(times, kind="stable")
    return times[order], keys[order]


@compiled
def _advance(changes, seen, keys, now):
    changed = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        key = keys[i]
        end = changes.start[key + 1]
        while seen[key] < end and changes.times[seen[key]] <= now:
            seen[key] += 1
            changed[i] = True
    return changed
