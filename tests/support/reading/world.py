"""A world for read-through: processes whose readers take turns in an order that a seed draws, over one FakeStore.

`test_steps` plays thousands of them. Each reader is the generator that the real caches drive. One turn does one piece of its
work, at one moment of virtual time: a look, the begin or the end of a load, a fill. Between two turns the world may change a
row and announce the change, cancel a reader, end a process with its leases, let a loader fail, and let time pass. If readers
wait for an updater, there is one: it loads what they miss and what has changed, and at times it sleeps.

The promise: a reader that returns has a version at least as new as every change that was announced before the reader began.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from cacheupdater_client.cache.awaiting import awaited
from cacheupdater_client.cache.background import Refreshes
from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.cache.declared import Settings, declare
from cacheupdater_client.cache.errors import LoadTimeout, NotFilled
from cacheupdater_client.cache.fake import FakeStore
from cacheupdater_client.cache.flights import Flights
from cacheupdater_client.cache.refreshing import aged, renewed
from cacheupdater_client.cache.steps import (
    Await,
    Begin,
    Entry,
    Expect,
    Fill,
    Floors,
    Join,
    Load,
    Look,
    Prolong,
    Read,
    Reading,
    Release,
    Rest,
    filled,
)
from cacheupdater_client.observe import NOWHERE, Nowhere

LEASE_S = 1.0
WAIT_S = 0.5
TICK_S = 0.001
TURNS_MAX = 20_000  # a world that has not ended by then hangs


def load(number: int) -> int | None:
    raise AssertionError("the world loads")


DECLARED = declare(load, "product:{number:int}", Settings(ttl="20s", timeout="1s"), batch=False, waits=False)
AGEING = declare(
    load,
    "product:{number:int}",
    Settings(ttl="20s", timeout="1s", refresh_after="100ms", soft_timeout="50ms", fail_safe="1h"),
    batch=False,
    waits=False,
)


@dataclass(frozen=True)
class Dice:
    """How often what happens, between two turns."""

    keys: int = 3
    processes: int = 3
    readers: int = 24
    changes: float = 0.02
    cancels: float = 0.01
    deaths: float = 0.003
    fails: float = 0.1  # of loads
    vanishes: float = 0.2  # of changes: the row exists no more
    load_s: float = 0.2
    hangs: float = 0.02  # of loads: longer than the lease
    ageing: float = 0.0  # of readers: those who take old values, and begin refreshes
    awaiting: float = 0.0  # of readers: those who wait for an updater
    sleeps: float = 0.002  # the updater does nothing for longer than anybody waits


CALM = Dice(changes=0, cancels=0, deaths=0, fails=0, hangs=0, keys=1, readers=40)
AWAITING = Dice(changes=0, cancels=0, deaths=0, keys=1, readers=40, awaiting=1.0, sleeps=0)


class Failure(Exception):
    """What a loader raises."""


class Cancelled(BaseException):
    """What a cancelled task is thrown."""


class Updater(Nowhere):
    """Hears what readers await and what has changed, and loads one key after the other, each as an updater does."""

    def __init__(self, world):
        self._world = world
        self._due: dict[bytes, None] = {}
        self._load = None  # key, token and version of the load under way
        self._until = 0.0

    def awaited(self, key, token):
        """Token 0: a change, which the load under way has perhaps not seen."""
        self._world.seen["awaited"] += 1
        if token == 0 or self._load is None or self._load[1] != key:
            self._due[key] = None

    def sleep(self):
        self._world.seen["slept"] += 1
        self._until = self._world.now + 3 * WAIT_S

    def turn(self):
        world = self._world
        if world.now < self._until:
            return
        if self._load is not None:
            token, key, (version, exists) = self._load
            spelled = DECLARED.spelled(version if exists else None)
            world.store.fill("updater", [Entry(token, key, spelled)], DECLARED)
            self._load = None
        elif self._due:
            key = next(iter(self._due))
            del self._due[key]
            world.seen["updates"] += 1
            [seen] = world.store.look("updater", [key], DECLARED.terms._replace(no_lease=True))
            self._load = seen.token, key, world.rows[key]
            self._until = world.now + world.random.random() * world.dice.load_s / 10


@dataclass(eq=False)
class Reader:
    """A caller of a value, as its cache drives it."""

    process: Process
    keys: list[bytes]
    needs: dict[bytes, int]  # versions that had been announced when the reader began
    steps: object = None
    work: object = None
    until: float = 0.0  # of the present work
    began: float = 0.0
    loaded: list | None = None  # read from the database, on its way
    refreshed: dict = field(default_factory=dict)  # the flights of a refresh, which has no caller


@dataclass(eq=False)
class Process:
    refreshes: Refreshes
    flights: Flights = field(default_factory=Flights)
    counts: Counts = field(default_factory=Counts)


class World:
    """One run."""

    def __init__(self, seed, dice):
        self.dice, self.random = dice, random.Random(seed)
        self.now = 1_000.0
        self.store = FakeStore(lambda: self.now)
        self.updater = Updater(self)
        self.rows = {self.key(n): (0, True) for n in range(dice.keys)}  # version, and whether the row exists
        self.announced = Counter()
        self.processes = [self.process() for _ in range(dice.processes)]
        self.readers: list[Reader] = []
        self.left = dice.readers
        self.seen = Counter()
        self.violations = []
        self.slowest = 0.0

    def key(self, number):
        return b"product:%d" % number

    def process(self):
        return Process(Refreshes(lambda: self.now))

    def run(self):
        for _ in range(TURNS_MAX):
            if not (self.readers or self.left):
                return self
            self.now += TICK_S * self.random.random()
            if self.left and self.random.random() < 0.2:
                self.begin()
            self.happen()
            ready = [each for each in self.readers if self.is_ready(each)]
            if ready:
                self.turn(self.random.choice(ready))
            elif self.readers:
                self.now += 0.01
        self.violations.append(f"{len(self.readers)} readers never ended")
        return self

    # --- what happens around the readers --------------------------------------------------------------

    def happen(self):
        dice, lot = self.dice, self.random.random()
        self.updater.turn()
        if dice.awaiting and self.random.random() < dice.sleeps:
            self.updater.sleep()
        if lot < dice.changes:
            self.change(self.random.choice(list(self.rows)))
        elif lot < dice.changes + dice.cancels and self.readers:
            self.seen["cancelled"] += 1
            self.advance(self.random.choice(self.readers), Cancelled())
        elif lot < dice.changes + dice.cancels + dice.deaths:
            self.die(self.random.choice(self.processes))

    def change(self, key):
        version, _ = self.rows[key]
        self.rows[key] = version + 1, self.random.random() >= self.dice.vanishes
        self.store.invalidate(key)
        self.announced[key] = version + 1
        if self.dice.awaiting:
            self.updater.awaited(key, 0)
        self.seen["changes"] += 1

    def die(self, process):
        """Its leases stay."""
        self.readers = [each for each in self.readers if each.process is not process]
        self.processes[self.processes.index(process)] = self.process()
        self.seen["deaths"] += 1

    # --- readers --------------------------------------------------------------------------------------

    def begin(self):
        self.left -= 1
        keys = self.random.sample(list(self.rows), self.random.randint(1, len(self.rows)))
        reader = Reader(self.random.choice(self.processes), keys, {key: self.announced[key] for key in keys})
        reader.began = self.now
        if self.random.random() < self.dice.ageing:
            self.begin_ageing(reader)
            return
        had = dict(zip(keys, self.store.read(keys), strict=True))
        self.judge(reader, {key: value for key, value in had.items() if value is not None})
        missing = [key for key in keys if had[key] is None]
        self.seen["hits"] += len(keys) - len(missing)
        if not missing:
            return
        asks_age = self.random.random() < 0.1 and self.dice is not CALM
        terms = DECLARED.terms._replace(value_ms=500 if asks_age else None)
        wanted = {key: DECLARED.pattern.parse(key) for key in missing}
        process = reader.process
        awaits = self.random.random() < self.dice.awaiting
        reading = Reading(
            DECLARED,
            wanted,
            terms,
            process.flights,
            self.updater if awaits else NOWHERE,
            process.counts,
            asks_age,
        )
        reader.steps = awaited(reading, WAIT_S) if awaits else filled(reading)
        self.readers.append(reader)
        self.advance(reader)

    def begin_ageing(self, reader):
        process = reader.process
        wanted = {key: AGEING.pattern.parse(key) for key in reader.keys}
        terms = AGEING.terms._replace(value_ms=AGEING.ageing.refresh_ms)
        reading = Reading(AGEING, wanted, terms, process.flights, NOWHERE, process.counts)
        reader.steps = aged(reading, process.refreshes.busy(wanted, LEASE_S))
        self.readers.append(reader)
        self.advance(reader)

    def begin_refresh(self, process, reading, tokens):
        new, begun = process.refreshes.take(tokens, LEASE_S)
        if new:
            self.seen["refreshes"] += 1
            one = Reader(process, list(new), Counter(), began=self.now, refreshed=new)
            one.steps = renewed(reading, new, {key: tokens[key] for key in new})
            self.readers.append(one)
            self.advance(one)
        return begun

    def is_ready(self, reader):
        match reader.work:
            case Await(flights, _):
                return all(flight.outcome.done() for flight in flights) or self.now >= reader.until
            case Join(flight, _):
                return flight.outcome.done() or self.now >= reader.until
            case Expect(was, _):
                return self.now >= reader.until or not any(
                    floor == before
                    for floor, before in zip(self.store.floors(list(was)), was.values(), strict=True)
                )
            case Rest(keys, _):
                return not any(self.store.leased(keys)) or self.now >= reader.until
            case Load():
                return self.now >= reader.until
        return True

    def turn(self, reader):
        """Does the reader's present work."""
        owner = reader.process.flights.owner
        match reader.work:
            case Look(keys, terms):
                self.advance(reader, self.store.look(owner, keys, terms))
            case Load():
                self.end_load(reader)
            case Fill(entries):
                self.advance(reader, self.store.fill(owner, entries, DECLARED))
            case Release(keys):
                self.advance(reader, self.store.release(owner, keys))
            case Rest() | Await():
                self.advance(reader)
            case Floors(keys):
                self.advance(reader, self.store.floors(keys))
            case Expect():
                self.advance(reader, reader.until - self.now)
            case Prolong(keys):
                self.advance(reader, self.store.prolong(owner, keys, AGEING.grace))
            case Begin(reading, tokens):
                self.advance(reader, self.begin_refresh(reader.process, reading, tokens))
            case Read(keys):
                self.advance(reader, self.store.read(keys))
            case Join(flight, _):
                self.join(reader, flight)

    def join(self, reader, flight):
        if not flight.outcome.done():
            self.advance(reader, LoadTimeout())
        elif error := flight.outcome.exception():
            self.advance(reader, error)
        else:
            self.advance(reader, flight.outcome.result())

    def begin_load(self, reader, captures):
        """The statement reads the database somewhere within the load."""
        keys = [DECLARED.keys.of(each) for each in captures]
        reader.loaded = [version if exists else None for version, exists in map(self.rows.get, keys)]
        self.seen["loads"] += 1
        lasts = self.random.random() * self.dice.load_s
        if self.random.random() < self.dice.hangs:
            self.seen["hung"] += 1
            lasts += 2 * LEASE_S
        reader.until = self.now + lasts

    def end_load(self, reader):
        if self.random.random() < self.dice.fails:
            self.seen["failed"] += 1
            self.advance(reader, Failure())
        else:
            self.advance(reader, reader.loaded)

    def advance(self, reader, answer=None):
        """Hands the answer over, and takes the next work."""
        try:
            if isinstance(answer, BaseException):
                reader.work = reader.steps.throw(answer)
            else:
                reader.work = reader.steps.send(answer)
        except StopIteration as end:
            self.end(reader)
            self.judge(reader, end.value)
            return
        except NotFilled:
            self.seen["not filled"] += 1
            self.end(reader)
            return
        except (Failure, Cancelled, LoadTimeout):
            self.end(reader)
            return
        self.seen[type(reader.work).__name__] += 1
        reader.until = self.now + getattr(reader.work, "within", 0.0)
        if isinstance(reader.work, Load):
            self.begin_load(reader, reader.work.captures)

    def end(self, reader):
        self.readers.remove(reader)
        if reader.refreshed:
            reader.process.refreshes.end(reader.refreshed)
            return
        self.slowest = max(self.slowest, self.now - reader.began)

    def judge(self, reader, found):
        for key, spelled in found.items():
            version = None if spelled is None else DECLARED.codec.decode(spelled)
            if version is None:
                # an absence carries no version: it is right if the row was absent at some moment since
                self.seen["absent"] += 1
            elif version < reader.needs[key]:
                self.violations.append(f"{key}: version {version}, though {reader.needs[key]} was announced")
            self.seen["returned"] += 1
