"""The events of one schedule as seen from outside: at the ports, in the database, in Redis. Nothing of the engine.

Drops are the one exception: the service counts them by reason, and the checkers need their keys. Times are virtual seconds.
Lists are in the order of events.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from cacheupdater.core.answers import ENDING

OWNED = ContextVar("OWNED", default=None)  # the ownership that the present task works for


UNREAD = "unread"  # a fed change of a key that nobody reads: its value is removed


class Owner(NamedTuple):
    """One ownership. No two engines share one."""

    process: str
    partition: int
    epoch: int


class Hint(NamedTuple):
    """One pack that the queue has accepted."""

    at: float
    partition: int
    offset: int
    kind: int
    keys: tuple
    topic: int = 0  # how often the topic had begun anew by then
    is_set: bool = False  # of changes: commands had just set these values


class Intake(NamedTuple):
    """One pack that an owner has fetched."""

    at: float
    owner: Owner
    hint: Hint


class CommitCall(NamedTuple):
    """An owner's `done`, at the time of its commit call. The queue has `accepted` it, or it was out of date."""

    at: float
    owner: Owner
    done: int
    accepted: bool
    holder: Owner | None = None  # the partition's owner when it arrived
    topic: int = 0  # as with hints


class Expired(NamedTuple):
    """Records that vanished before an owner had read them, and that it has counted; or all records of a deleted topic."""

    at: float
    partition: int
    first: int
    end: int
    topic: int = 0

    def covers(self, hint, by=inf):
        """Whether this pack is among them, and was counted by then."""
        here = self.partition == hint.partition and self.topic == hint.topic
        return here and self.first <= hint.offset < self.end and self.at <= by


class HandOver(NamedTuple):
    """An owner has said in time that it is ready to give up a partition."""

    at: float
    owner: Owner
    done: int  # what was finished by then
    said: int  # the highest `done` that it had wanted to commit


@dataclass(slots=True, eq=False)
class Flight:
    """One refresh of one unit: token, database read, write."""

    owner: Owner
    began: float
    token_at: float = inf
    keys: tuple = ()
    left: float = inf  # when its statement left for the database
    read_at: float = inf
    found: dict = field(default_factory=dict)  # key -> version, None for no row
    landed: dict = field(default_factory=dict)  # key -> (time, result)
    ended: float = inf  # when its answers, or its failure, came back
    answers: dict = field(default_factory=dict)  # key -> result
    lost: bool = (
        False  # its process takes a part of every rate that is another's by now, and has not heard of that
    )

    def finished(self, key):
        """When this key's value was in Redis, or the brake had kept it; inf if never."""
        at, result = self.landed.get(key, (inf, None))
        return at if result in ENDING else inf

    def is_finished(self, key, by=inf):
        """Whether `finished` had happened by then."""
        return self.finished(key) <= by and self.finished(key) < inf


class Drop(NamedTuple):
    """Hints of one key that the service has given up, with a counted reason."""

    at: float
    owner: Owner
    key: bytes
    reason: str


@dataclass(slots=True, eq=False)
class Removal:
    """Keys that an updater has asked Redis to invalidate."""

    keys: tuple
    at: float = inf  # when it happened
    acked: float = inf
    events: list = field(default_factory=list)  # its changes in Redis

    def is_acked(self, by=inf):
        """Whether Redis' answer had come by then."""
        return self.acked <= by and self.acked < inf


class RowCommit(NamedTuple):
    at: float
    version: int | None


@dataclass(slots=True, eq=False)
class CacheEvent:
    """One change of one key in Redis."""

    at: float
    key: bytes
    what: str  # write, set_through, fill, invalidate, delete, foreign, loss
    version: int | None = None
    begun: float = inf  # write: its token; set_through: its `since`
    covers: float = inf  # invalidate, set_through: the time up to which older values are refused
    acked: bool = False


class ForeignGone(NamedTuple):
    """A foreign value that an updater has replaced or removed."""

    at: float
    key: bytes
    process: str


class Prolonged(NamedTuple):
    """A value that got more time while its source failed."""

    at: float
    key: bytes
    owner: Owner
    sent: float  # when its updater asked for it


class Read(NamedTuple):
    """What an application has found."""

    at: float
    key: bytes
    found: bool


class Restart(NamedTuple):
    """The state that a process has read from the file of an earlier one, beside the state that the earlier one saved."""

    at: float
    process: str
    saved: object  # a price, or the keys of a partition
    known: object


class Seen:
    """The history of one schedule."""

    def __init__(self, clock, trace=None, *, lag=0.0):
        self.clock = clock
        self.lag = lag  # seconds by which loads read behind the primary
        self.trace = trace
        self.hints = []
        # packs that an owner had read and put back, with this owner; None where the owner never heard of their places: then
        # the owner reads them as anybody's
        self.put_back = {}
        self.putting_back = defaultdict(list)  # by owner: from when until when packs were on their way back
        self.intakes = []
        self.commits = []
        self.expired = []
        self.hand_overs = []
        self.flights = []
        self.drops = []
        self.declined = []  # (at, key): touches that the policy declined and counted
        self.removals = []
        self.rows = defaultdict(list)  # key -> commits
        self.cache = []
        self.foreign_gone = []
        self.prolonged = []
        self.reads = []  # of values that may live on
        self.outages = []  # (from, until) of the database
        self.restarts = []
        self.starts_of_processes = {}
        self.reloaded = set()  # processes that have handed partitions over to themselves
        self.over_caps = []  # M1, sampled
        self.died = []  # processes that ended by an error of their own
        self._by_task = {}

    def note(self, *words):
        """Adds a line to the trace."""
        if self.trace is not None:
            self.trace(f"{self.clock():9.4f}  " + " ".join(map(str, words)))

    def taken_in(self, intake):
        """When the engine learned of this pack: after the packs that were on their way back when it was fetched."""
        return max(
            (until for since, until in self.putting_back[intake.owner] if since <= intake.at <= until),
            default=intake.at,
        )

    def begin(self):
        """A refresh takes its token."""
        flight = Flight(OWNED.get(), self.clock())
        self.flights.append(flight)
        self._by_task[asyncio.current_task()] = flight
        return flight

    def flight_of(self, task):
        """The refresh that this task carries out; None if it carries out none."""
        return self._by_task.get(task)

    def flight(self):
        """The refresh that the present task carries out."""
        return self._by_task[asyncio.current_task()]
