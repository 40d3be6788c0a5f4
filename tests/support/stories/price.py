"""Helpers for stories about the policy `price`, and a small world of readers, writers and a database."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Terms
from cacheupdater.core.policy import Loaded
from cacheupdater.price import Market, Price
from stories.engine import namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.namespace import Namespace


def source(rate: float = 100.0, *, burst: float | None = None, timed: bool = False) -> Source:
    """A source with a full bucket at time zero."""
    full = rate if burst is None else burst
    return Source("db", Bucket(rate, full, now=-full / rate), concurrency=100, timed=timed)


def priced(name: str = "p", *, at: Source, quota: Bucket | None = None, **terms: object) -> Namespace:
    return namespace(name, source=at, quota=quota, terms=Terms(**terms))


class Desk:
    """One policy, and verbs for events. Its requests are paid and loaded when the story says so."""

    def __init__(
        self,
        *namespaces: Namespace,
        rate: float = 100.0,
        target: float | None = None,
        least: float = 0.0,
        market: Market | None = None,
        **limits: float,
    ) -> None:
        self.namespaces = namespaces or (priced(at=source(rate)),)
        self.source = self.namespaces[0].source
        keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        mine = [each for each in self.namespaces if each.source is self.source]
        self.market = market or Market(
            self.source, mine, random=Random(1).random, now=0.0, target=target, least=least
        )
        markets = {self.source: self.market}
        for each in self.namespaces:
            if each.source not in markets:
                markets[each.source] = Market(each.source, [each], random=Random(2).random, now=0.0)
        self.markets = markets
        self.policy = Price(keyspace, self.namespaces, markets, limits=Limits(**limits), now=0.0)

    def read(self, *keys: bytes, at: float, counts: Sequence[int] = ()) -> list[bytes]:
        return list(self.policy.on_hints(list(keys), counts, at))

    def tick(self, at: float) -> list[bytes]:
        return list(self.policy.tick(at))

    def load(
        self,
        *keys: bytes,
        at: float,
        changed: bool | Sequence[bool | None] = False,
        kind: Kind = Kind.TOUCH,
        stamps: Sequence[float | None] = (),
    ) -> None:
        """A load that is paid and ended at once."""
        self.source.bucket.level(at)
        self.source.bucket.take(float(len(keys)))
        said = [changed] * len(keys) if isinstance(changed, bool) else list(changed)
        self.policy.on_loaded(Loaded(kind, list(keys), said, at, stamps), at)

    def healthy(self) -> bool:
        """Whether no number is NaN or infinite."""
        table = self.policy.table
        arrays = [table.state, table.times, *([] if table.silent is None else [table.silent])]
        used = slice(0, table.high)
        meters = [
            array for market in self.markets.values() for array in (market.meter.total, market.meter.recent)
        ]
        prices = [market.price for market in self.markets.values()]
        return (
            all(np.isfinite(array[used]).all() for array in arrays)
            and all((array[used] >= 0.0).all() for array in arrays[:1])
            and not np.isnan(table.due[used]).any()
            and all(np.isfinite(array).all() for array in meters)
            and bool(np.isfinite(prices).all())
        )


class World:
    """Keys that are read and changed at random. Every load is paid from the bucket, the oldest request first."""

    def __init__(
        self, desk: Desk, names: Sequence[bytes], mu: np.ndarray, rate: np.ndarray, *, seed: int = 0
    ) -> None:
        self.desk, self.names, self.mu, self.rate = desk, list(names), mu, rate
        self.place = {name: place for place, name in enumerate(self.names)}
        self.rng = np.random.default_rng(seed)
        self.version = np.zeros(len(mu))
        self.cached = np.zeros(len(mu))
        self.born = np.zeros(len(mu))  # when the cached value was loaded
        self.loads = np.zeros(len(mu))
        self.reads = self.stale = self.oldest = 0.0
        self.spent: list[tuple[float, int]] = []
        self.now = 0.0
        self.after: Callable[[float], None] = lambda now: None
        self._queue: deque[bytes] = deque()

    def play(self, seconds: float, *, step: float = 0.05) -> World:
        """Plays so many seconds. The counts of reads and loads begin anew."""
        self.reads = self.stale = self.oldest = 0.0
        self.loads[:] = 0.0
        for _ in range(round(seconds / step)):
            self.now += step
            self.version += self.rng.poisson(self.rate * step)
            counts = self.rng.poisson(self.mu * step)
            places = np.flatnonzero(counts)
            self.reads += counts.sum()
            self.stale += counts[places][self.version[places] != self.cached[places]].sum()
            if len(places):
                self.oldest = max(self.oldest, float((self.now - self.born[places]).max()))
                read = [self.names[place] for place in places]
                self._ask(self.desk.read(*read, at=self.now, counts=counts[places].tolist()))
            self._ask(self.desk.tick(self.now))
            self._serve()
            self.after(self.now)
        return self

    def announce(self, *names: bytes) -> None:
        """The application announces changes of these keys. Those that cannot wait are loaded at once."""
        patient = self.desk.policy.on_changes(list(names), self.now)
        due = [name for name in names if name not in patient]
        if due:
            self._load(due, Kind.CHANGE)

    @property
    def share(self) -> float:
        return float(self.stale / max(self.reads, 1.0))

    @property
    def rows(self) -> float:
        return float(self.loads.sum())

    def _ask(self, names: list[bytes]) -> None:
        self._queue.extend(names)
        self.desk.source.due += len(names)

    def _serve(self) -> None:
        bucket = self.desk.source.bucket
        payable = min(len(self._queue), bucket.rows(self.now))
        served = [self._queue.popleft() for _ in range(payable)]
        self.desk.source.due -= payable
        if served:
            self._load(served, Kind.TOUCH)

    def _load(self, names: list[bytes], kind: Kind) -> None:
        places = np.array([self.place[name] for name in names])
        changed = self.version[places] != self.cached[places]
        self.cached[places] = self.version[places]
        self.born[places] = self.now
        self.loads[places] += 1
        self.spent.append((self.now, len(names)))
        self.desk.load(*names, at=self.now, changed=changed.tolist(), kind=kind)


def keys(number: int, name: str = "p") -> list[bytes]:
    return [b"%s:%d" % (name.encode(), each) for each in range(1, number + 1)]
