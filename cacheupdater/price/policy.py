"""The policy `price`: it learns which keys are read and which change, and loads those whose load prevents the most
stale reads for its cost.

One per partition, beside its engine, as long as the partition is ours. All policies of a source compare with one `market`.
Every hint moves two decayed counts of its key and asks whether a load is worth its price now. Every 20 ms a timer asks the
same for keys that nobody has just read. Every load moves the key's change posterior. The policy only says which touches
become loads: misses and changes go the automaton's way, and every load is paid from the source's bucket.

All steps are arrays over the keys of one call. Pure: `now` and `random` are arguments.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.price import learning
from cacheupdater.price.choice import affordable
from cacheupdater.price.index import worth, worth_of_known
from cacheupdater.price.learning import SLOW_MEMORY
from cacheupdater.price.measured_reads import drawn, tell
from cacheupdater.price.meter import AGED, HINTED, READS, STALE
from cacheupdater.price.paused import Paused
from cacheupdater.price.posterior import SHAPE
from cacheupdater.price.sounding import Sounding
from cacheupdater.price.spaces import Spaces
from cacheupdater.price.table import (
    ASKED,
    IDLE,
    LOADED,
    SLOW,
    SPACE,
    STATUS,
    TOUCHED,
    WAITS,
    A,
    B,
    Table,
)
from cacheupdater.price.table import STALE as KNOWN_STALE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from cacheupdater.core.budget import Source
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Loaded
    from cacheupdater.price.index import Doubles
    from cacheupdater.price.market import Market
    from cacheupdater.price.table import Rows

TICK = 0.02
"""Seconds between two looks at keys that nobody has just read. With 0.2 s twice as many reads are stale at
generous budgets."""

PRICED_EVERY = 0.1  # seconds between two looks at prices and costs, which move by the half minute
COUNT_MAX = 1e6  # reads of one key in one pack; more is a mistake of the sender
LOOK = 12_000  # rows per tick whose worth is computed: some 3 ms
SCAN = 2_000_000  # rows per tick whose turn is looked for: 1.5 ms
LOOK_AGAIN = 0.05  # of a value's age: sooner than that, its worth has hardly changed
UNDER_WAY = 10.0  # seconds after which a load that was asked for and never came is forgotten
FORGOTTEN = 1e-3  # decayed reads below which a key is forgotten: one read, half an hour ago
NEARLY_FULL = 0.97  # of the table: room is made for newcomers
MAX_AGE_LEAD = 1.0  # seconds, at most, by which a load begins before its value reaches its greatest age


class Price:
    """`core.policy.Policy`."""

    learns = True

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        namespaces: Sequence[Namespace],
        markets: Mapping[Source, Market],
        *,
        limits: Limits,
        now: float,
    ) -> None:
        """Keys of namespaces without terms, and of nobody, are passed on as they come."""
        self.table = Table(limits.learned)
        self.spaces = Spaces(namespaces, markets)
        self._keyspace = keyspace
        self._gap = limits.gap
        self._wait = limits.backlog_age + UNDER_WAY  # for the load of an announced change
        self._next = now
        self.born = now
        """When counting reads began."""
        self.met = 0
        self._priced = now
        self._sounding = Sounding(self)
        self.paused = Paused(self.table, self.spaces)
        self._cursor = 0

    def hold(self, namespace: Namespace) -> float:
        return namespace.every if namespace.terms is None else self._gap

    # --- what is heard ----------------------------------------------------------------------------------

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:
        rows, reads, passed = self._known(keys, counts, now)
        chosen = self._read(rows, reads, now) if len(rows) else []
        return [*passed, *chosen] if passed else chosen

    def on_fills(self, keys: Sequence[bytes], began: Sequence[float], now: float) -> None:
        self._known(keys, (), now)
        learning.filled(self.table, keys, began)

    def on_misses(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> None:
        """A miss is a read like any other, but its key is loaded anyway."""
        rows, reads, _ = self._known(keys, counts, now)
        if len(rows):
            state, times = self.table.look(rows)
            learning.count_reads(state, now - times[:, TOUCHED], reads, age=now - self.born)
            state[:, STATUS] = ASKED
            self._remember(rows, state, now)
            self.table.due[rows] = now + UNDER_WAY

    def read_rates(self, keys: Sequence[bytes], now: float) -> Sequence[float]:
        return learning.known_rates(self.table, keys, now)

    def on_changes(self, keys: Sequence[bytes], now: float) -> Collection[bytes]:
        """The first announcement after a load dates the change exactly. A key that is hardly read, or never, can wait."""
        table, spaces = self.table, self.spaces
        found = table.find(keys)
        patient: set[bytes] = set()
        if len(found) and found.min() < 0:
            strangers = [key for key, row in zip(keys, found.tolist(), strict=True) if row < 0]
            groups, _ = self._keyspace.resolve_many(strangers)
            patient.update(*(known for namespace, known in groups.items() if namespace in spaces.number))
        rows = np.unique(found[found >= 0])
        if not len(rows):
            return patient
        learning.announced(table, spaces, rows, now)
        table.state[rows, STATUS] = KNOWN_STALE
        table.due[rows] = now + self._wait
        state = table.state[rows]
        space = state[:, SPACE].astype(np.intp)
        self._meter(HINTED, space, np.ones(len(rows)))
        mu = learning.wanted(state, now - table.times[rows, TOUCHED], age=now - self.born)
        waits = rows[~self._outweighs(state, mu, space)]
        table.state[waits, STATUS] = WAITS
        patient.update(table.named(waits))
        return patient

    def on_loaded(self, loaded: Loaded, now: float) -> None:
        """If a row does not exist, no value of it is read: its key is forgotten until it is a newcomer again."""
        rows = self.table.find(loaded.keys)
        known = rows >= 0
        if not known.any():
            return
        changed = np.array(loaded.changed, np.float64)[known]  # nan where the write proves nothing
        stamps = np.array(loaded.stamps, np.float64)[known] if loaded.stamps else None
        rows = rows[known]
        tell(self.table, self.spaces, rows, changed=changed, now=now)
        learning.on_loaded(self.table, self.spaces, rows, changed, loaded=loaded, stamps=stamps)
        self.table.due[rows] = now + TICK
        if loaded.absent:
            self._forget(self.table.known(list(loaded.absent)))

    def on_spared(self, keys: Sequence[bytes]) -> None:
        self.table.due[self.table.known(keys)] = 0.0  # `_look` counts the loads that were awaited as lost

    def tick(self, now: float) -> Sequence[bytes]:
        if now < self._next:
            return ()
        self._next = now + TICK
        if now >= self._priced + PRICED_EVERY or now < self._priced:
            self._priced = now
            for market in self.spaces.markets:
                market.advance(now)
            self.spaces.refresh()
            self._sounding.follow(now)
        self._make_room(now)
        rows = self._due(now)
        return self._look(rows, now) if len(rows) else ()

    def wake(self) -> float:
        return self._next if len(self.table) else inf

    def pause(self, namespaces: Collection[Namespace], now: float) -> None:
        self.paused.follow(namespaces, now)

    def leave(self) -> None:
        for market, keys in self.spaces.tracked(self.table):
            market.tracked -= keys
            market.depths.pop(self, None)

    def join(self, now: float) -> None:
        """The partition has come back, to another engine: loads that were asked for before will not end any more."""
        for market, keys in self.spaces.tracked(self.table):
            market.tracked += keys
        state = self.table.state[: self.table.high]
        lost = np.flatnonzero((state[:, STATUS] == ASKED) & np.isfinite(self.table.due[: self.table.high]))
        state[lost, STATUS] = IDLE
        self.table.due[lost] = now

    # --- steps ------------------------------------------------------------------------------------------

    def _known(
        self, keys: Sequence[bytes], counts: Sequence[int], now: float
    ) -> tuple[Rows, Doubles, list[bytes]]:
        """Rows and reads of the keys that are priced, each once; and the keys that are not."""
        rows = self.table.find(keys)
        reads = np.clip(np.array(counts, np.float64), 1.0, COUNT_MAX) if counts else np.ones(len(rows))
        passed: list[bytes] = []
        if len(rows) and rows.min() < 0:
            passed = self._meet([key for key, row in zip(keys, rows.tolist(), strict=True) if row < 0], now)
            rows = self.table.find(keys)
            known = rows >= 0
            rows, reads = rows[known], reads[known]
        ordered = np.sort(rows)
        if (ordered[1:] == ordered[:-1]).any():  # our client names a key once in a pack; others may not
            rows, place = np.unique(rows, return_inverse=True)
            reads = np.bincount(place, weights=reads).astype(np.float64)
        return rows, reads, passed

    def _meet(self, strangers: list[bytes], now: float) -> list[bytes]:
        """Makes rows for the keys that are priced, as far as there is room. Returns the keys that are not priced."""
        groups, passed = self._keyspace.resolve_many(list(dict.fromkeys(strangers)))
        for namespace, keys in groups.items():
            number = self.spaces.number.get(namespace)
            if number is None:
                passed = passed + keys
                continue
            rows = self.table.admit(keys)
            state = self.table.state[rows]
            state[:, SPACE] = number
            state[:, A], state[:, B] = SHAPE, self.spaces.prior[number]
            self.table.state[rows] = state
            self.table.times[rows, TOUCHED] = now
            self.table.times[rows, LOADED] = now - self.spaces.age[number]
            if self.table.silent is not None:
                self.table.silent[rows] = state[:, (A, B)]
            self.spaces.markets[self.spaces.market[number]].tracked += len(rows)
            self.met += len(rows)
        return passed

    def _read(self, rows: Rows, reads: Doubles, now: float) -> list[bytes]:
        """Count the reads and decide for each key."""
        table, spaces = self.table, self.spaces
        state, times = table.look(rows)
        excess = learning.count_reads(state, now - times[:, TOUCHED], reads, age=now - self.born)
        self._remember(rows, state, now)
        tau = np.maximum(now - times[:, LOADED], 0.0)
        space = state[:, SPACE].astype(np.intp)
        mu = state[:, SLOW].astype(np.float64) / learning.heard(SLOW_MEMORY, now - self.born)
        p, value = self.worth_of(rows, state, mu=mu, tau=tau, space=space)
        value += p * excess
        known = state[:, STATUS] >= KNOWN_STALE
        hurried: list[bytes] = []
        if known.any():
            p = np.where(known, 1.0, p)
            hurried = self._hurry(rows, state, mu=mu, space=space)
        self._meter(READS, space, reads)
        self._meter(STALE, space, reads * p)
        if spaces.ageing:
            over = tau > spaces.max_age[space]
            self._meter(AGED, space[over], reads[over])
        measured = self._draw(rows, reads, state, tau=tau, now=now)
        chosen = self._choose(rows, value, state, tau=tau, now=now)
        return [*chosen, *measured, *hurried] if measured or hurried else chosen

    def _hurry(
        self, rows: Rows, state: NDArray[np.float32], *, mu: Doubles, space: NDArray[np.intp]
    ) -> list[bytes]:
        """Keys whose change waits, and is worth its row by now. Each is returned once: its change does not wait any more."""
        now_worthy = rows[(state[:, STATUS] == WAITS) & self._outweighs(state, mu, space)]
        self.table.state[now_worthy, STATUS] = KNOWN_STALE
        return self.table.named(now_worthy)

    def _outweighs(
        self, state: NDArray[np.float32], mu: Doubles, space: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Whether a known change is worth a row at the present price."""
        spaces = self.spaces
        a, b = (state[:, column].astype(np.float64) for column in (A, B))
        value = worth_of_known(mu, a, b, kappa=spaces.of(spaces.kappa, space))
        return np.asarray(value * spaces.of(spaces.weight, space) >= spaces.of(spaces.price, space))

    def _look(self, rows: Rows, now: float) -> list[bytes]:
        """The same for keys whose turn it is, though nobody has just read them."""
        table = self.table
        state, times = table.look(rows)
        lost = state[:, STATUS] != IDLE
        if lost.any():
            table.state[rows[lost], STATUS] = IDLE
            state[lost, STATUS] = IDLE
        since, age = now - times[:, TOUCHED], now - self.born
        mu = learning.read_rate(state, since, age=age)
        idle = mu < FORGOTTEN / learning.heard(SLOW_MEMORY, age)
        mu = np.where(learning.silent(state, since, age=age), 0.0, mu)
        if idle.any():
            self._forget(rows[idle])
            awake = ~idle
            rows, state, times, mu = rows[awake], state[awake], times[awake], mu[awake]
        tau = np.maximum(now - times[:, LOADED], 0.0)
        space = state[:, SPACE].astype(np.intp)
        _, value = self.worth_of(rows, state, mu=mu, tau=tau, space=space)
        return self._choose(rows, value, state, tau=tau, now=now)

    def worth_of(
        self, rows: Rows, state: NDArray[np.float32], *, mu: Doubles, tau: Doubles, space: NDArray[np.intp]
    ) -> tuple[Doubles, Doubles]:
        """The chance to be stale, and the index; by silent changes only, if others are announced."""
        believed = state[:, : B + 1] if self.table.silent is None else self.table.silent.take(rows, axis=0)
        a, b = believed.T.astype(np.float64, order="C")
        return worth(mu, a, b, tau, kappa=self.spaces.of(self.spaces.kappa, space))

    def _choose(
        self, rows: Rows, value: Doubles, state: NDArray[np.float32], *, tau: Doubles, now: float
    ) -> list[bytes]:
        """The keys worth their price that can be paid; all others are looked at again in good time."""
        spaces, table = self.spaces, self.table
        space = state[:, SPACE].astype(np.intp)
        free = state[:, STATUS] == IDLE
        again = np.maximum(TICK, LOOK_AGAIN * tau)
        value = value * spaces.of(spaces.weight, space)
        if spaces.ageing:
            left = spaces.max_age[space] - tau
            again = np.minimum(again, np.maximum(TICK, 0.5 * left))
            late = (left <= np.minimum(MAX_AGE_LEAD, 0.1 * (left + tau))) & (value > 0.0)  # and read at all
            value = np.where(late, inf, value)
        table.due[rows[free]] = (now + again)[free]
        worthy = np.flatnonzero(free & (value >= spaces.of(spaces.price, space)) & (tau >= self._gap))
        if not len(worthy):
            return []
        granted = rows[worthy][affordable(spaces, value[worthy], space[worthy], now)]
        table.state[granted, STATUS] = ASKED
        table.due[granted] = now + UNDER_WAY
        return table.named(granted)

    def _draw(
        self, rows: Rows, reads: Doubles, state: NDArray[np.float32], *, tau: Doubles, now: float
    ) -> list[bytes]:
        """Keys of which a read is measured: a load is under way for them from now on."""
        recent = (state[:, STATUS] == IDLE) & (tau <= self._gap)
        places = drawn(self.table, self.spaces, rows, reads=reads, recent=recent, now=now)
        fresh = [place for place in places if state[place, STATUS] == IDLE]
        if not fresh:
            return []
        state[fresh, STATUS] = ASKED
        for number, market in enumerate(self.spaces.markets):
            market.lend(int((self.spaces.market[state[fresh, SPACE].astype(np.intp)] == number).sum()))
        self.table.state[rows[fresh], STATUS] = ASKED
        self.table.due[rows[fresh]] = now + UNDER_WAY
        return self.table.named(rows[fresh])

    def _remember(self, rows: Rows, state: NDArray[np.float32], now: float) -> None:
        self.table.put(rows, state)
        self.table.times[:, TOUCHED][rows] = now

    def _meter(self, what: int, space: NDArray[np.intp], amounts: Doubles) -> None:
        spaces = self.spaces
        if len(spaces.markets) == 1:
            spaces.markets[0].meter.add(what, spaces.within[space], amounts)
            return
        for number, market in enumerate(spaces.markets):
            mine = spaces.market[space] == number
            market.meter.add(what, spaces.within[space[mine]], amounts[mine])

    # --- the table --------------------------------------------------------------------------------------

    def _due(self, now: float) -> Rows:
        """Rows whose turn it is. One call looks at a part of the table; the calls go round."""
        high = self.table.high
        start = self._cursor if self._cursor < high else 0
        found = np.flatnonzero(self.table.due[start : min(start + SCAN, high)] <= now)
        if len(found) > LOOK:
            found = found[:LOOK]
            self._cursor = start + int(found[-1]) + 1
        else:
            self._cursor = start + SCAN if start + SCAN < high else 0
        return self.paused.awake((found + start).astype(np.int32), now)

    def _make_room(self, now: float) -> None:
        """In a nearly full table the least read keys of a part make way for newcomers."""
        table = self.table
        if len(table) < NEARLY_FULL * table.most:
            return
        start = int(now / TICK) * LOOK % max(1, table.high)
        rows = np.arange(start, min(start + LOOK, table.high), dtype=np.int32)
        rows = rows[np.isfinite(table.due[rows]) & (table.state[rows, STATUS] == IDLE)]
        rate = learning.read_rate(table.state[rows], now - table.times[rows, TOUCHED], age=now - self.born)
        self._forget(rows[np.argsort(rate)[: max(1, len(rows) // 10)]])

    def _forget(self, rows: Rows) -> None:
        if not len(rows):
            return
        for number, count in enumerate(np.bincount(self.table.state[rows, SPACE].astype(np.intp))):
            if count:
                self.spaces.markets[self.spaces.market[number]].tracked -= int(count)
        self.table.forget(rows)
