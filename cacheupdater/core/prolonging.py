"""Which old values live on while their source fails (`fail_safe`), and when Redis is asked for it.

A value of a namespace with `fail_safe` gets one more ttl when one of its loads fails, and whenever it is read while its
namespace fails. So a value that somebody reads at least once in a ttl does not expire before its source is back. At the
beginning of an outage all keys with a seat get one more ttl too, for they were read shortly before. A key with a waiting
change gets none. The script `prolong` decides the rest beside the value: the age of a value stands in its floor, so
no restart begins the time anew.

One key is asked for at most `ROUNDS` times in a ttl. A read that comes sooner is remembered until then, if the outage still
lasts. Requests are small and one at a time, so that an outage of a database is no flood for Redis.
The engine calls it, and the partition sends what `take` returns. Lives as long as its engine.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from cacheupdater.core.budget import Source
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.removals import Removals

ROUNDS = 4  # in a ttl: a read is served within a quarter of it, and three quarters are left
REQUEST_KEYS = 200  # two calls of the script, each of half a millisecond of Redis' time
PACE = 0.02  # seconds between two requests: at most 10,000 keys a second and partition
AGAIN = 0.5  # seconds until Redis is asked again after it could not be reached


class Prolongation(NamedTuple):
    """One request to Redis: one more ttl for the values of these keys."""

    namespace: Namespace
    keys: list[bytes]


class _Round:
    """A quarter of a namespace's ttl, in which each key is asked for once."""

    __slots__ = ("again", "known", "waiting")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self.waiting = dict.fromkeys(keys)  # to be asked for, in this order
        self.known = set(self.waiting)  # waiting, or asked for
        self.again: dict[bytes, None] = {}  # read once more since


class Prolonging:
    """The old values of one partition."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        dedup: Dedup,
        *,
        removals: Removals,
        limits: Limits,
        tally: Tally,
    ) -> None:
        self._keyspace = keyspace
        self._dedup = dedup
        self._removals = removals
        self._limits = limits
        self._tally = tally
        self._seen: dict[Source, int] = {each.source: 0 for each in keyspace.values if each.fail_safe}
        self.needed = bool(
            self._seen
        )  # whether any namespace has `fail_safe`: else `take` and `wake` need no call
        self._rounds: dict[Namespace, _Round] = {}
        self._turns: dict[Namespace, None] = {}  # namespaces with waiting keys, the next one first
        self._ends: list[tuple[float, int, Namespace]] = []  # of rounds
        self._order = count()
        self._known = 0
        self._sweep: Iterator[bytes] | None = (
            None  # the rest of the keys that had a seat when an outage began
        )
        self._under_way = False
        self._next = -inf  # when the next request may leave

    @property
    def wake(self) -> float:
        """When there is something to do."""
        if self._sweep is not None:
            return -inf
        ends = self._ends[0][0] if self._ends else inf
        return min(self._next, ends) if self._turns and not self._under_way else ends

    def touched(self, keys: Sequence[bytes], now: float) -> None:
        """These keys were read, and found."""
        if not (self.needed and any(source.outage.lasts for source in self._seen)):
            return  # nearly always
        for namespace, known in self._of_failing(keys):
            self._want(namespace, known, now)

    def failed(self, namespace: Namespace, keys: Collection[bytes], now: float) -> None:
        """A load of these keys has failed, or they are not loaded at all because their loads have failed before."""
        if namespace.fail_safe:
            self._want(namespace, keys, now)

    def take(self, now: float) -> Prolongation | None:
        """The next request, if it is time for one."""
        self._look_around(now)
        self._end_rounds(now)
        while self._turns and not self._under_way and now >= self._next:
            namespace = next(iter(self._turns))
            del self._turns[namespace]
            waiting = self._rounds[namespace].waiting
            keys = list(islice(waiting, REQUEST_KEYS))
            for key in keys:
                del waiting[key]
            if waiting:
                self._turns[namespace] = None
            changed = {key for key in keys if self._awaits_a_change(key)}
            self._forget(namespace, changed)
            if len(changed) < len(keys):
                self._under_way, self._next = True, now + PACE
                return Prolongation(namespace, [key for key in keys if key not in changed])
        return None

    def answered(self, prolongation: Prolongation, answers: Sequence[bool | None], now: float) -> None:
        """Redis' answers: whether each value has more time. None: Redis could not be reached, and is asked again."""
        namespace, keys = prolongation
        self._under_way = False
        said = list(answers)
        for answer, result in ((True, "prolonged"), (False, "left"), (None, "unreached")):
            self._tally.add("prolonged", said.count(answer), namespace.name, reason=result)
        lost = [key for key, answer in zip(keys, said, strict=True) if answer is None]
        if not lost:
            return
        self._next = now + AGAIN
        self._forget(namespace, lost)
        self._want(namespace, lost, now)

    # --- within -----------------------------------------------------------------------------------------

    def _of_failing(self, keys: Sequence[bytes]) -> Iterator[tuple[Namespace, list[bytes]]]:
        """These keys by namespace, as far as their namespace has `fail_safe` and fails."""
        for namespace, known in self._keyspace.resolve_many(keys)[0].items():
            if namespace.fail_safe and namespace.source.outage.concerns(namespace):
                yield namespace, known

    def _want(self, namespace: Namespace, keys: Collection[bytes], now: float) -> None:
        current = self._rounds.get(namespace)
        if current is None:
            current = self._begin(namespace, _Round(), now)
        known, waiting, again = current.known, current.waiting, current.again
        again.update(dict.fromkeys(key for key in keys if key in known and key not in waiting))
        new = dict.fromkeys(key for key in keys if key not in known)
        room = self._limits.prolonged - self._known
        if len(new) > room:
            self._tally.add("prolonged", len(new) - room, namespace.name, reason="crowded")
            new = dict.fromkeys(islice(new, room))
        known.update(new)
        waiting.update(new)
        self._known += len(new)
        if current.waiting:
            self._turns[namespace] = None

    def _forget(self, namespace: Namespace, keys: Iterable[bytes]) -> None:
        """These keys were not asked for in this round after all."""
        current = self._rounds.get(namespace)
        if current is not None:
            asked = current.known.intersection(keys)  # the others were of an earlier round
            current.known -= asked
            self._known -= len(asked)

    def _begin(self, namespace: Namespace, new: _Round, now: float) -> _Round:
        self._rounds[namespace] = new
        self._known += len(new.known)
        heappush(self._ends, (now + namespace.ttl / ROUNDS, next(self._order), namespace))
        return new

    def _end_rounds(self, now: float) -> None:
        """Keys that were read again are asked for again, while their namespace fails. Keys that still wait go on waiting."""
        while self._ends and self._ends[0][0] <= now:
            _, _, namespace = heappop(self._ends)
            over = self._rounds.pop(namespace)
            self._known -= len(over.known)
            again = over.again if namespace.source.outage.concerns(namespace) else ()
            if over.waiting or again:
                self._begin(namespace, _Round([*over.waiting, *again]), now)
                self._turns[namespace] = None

    def _look_around(self, now: float) -> None:
        """At the beginning of an outage, the keys with a seat are taken for read, some thousand in one call."""
        if self._sweep is None:
            if all(source.outage.begun == seen for source, seen in self._seen.items()):
                return
            self._seen = {source: source.outage.begun for source in self._seen}
            self._sweep = iter(list(self._dedup.seats))
        keys = list(islice(self._sweep, self._limits.turn_keys))
        for namespace, seated in self._of_failing([key for key in keys if key in self._dedup.seats]):
            current = self._rounds.get(namespace)
            self._want(namespace, [key for key in seated if not (current and key in current.known)], now)
        if len(keys) < self._limits.turn_keys:
            self._sweep = None

    def _awaits_a_change(self, key: bytes) -> bool:
        """Whether a change of this key waits for its load, runs, or waits for its removal: then the old value must not stay."""
        tail = self._dedup.tails.get(key)
        if (tail is not None and tail.kind is Kind.CHANGE) or self._removals.asked(key):
            return True
        unit = self._dedup.seats.get(key)
        if unit is None or unit.phase is Phase.HELD:
            return False
        if unit.phase is Phase.DUE:
            return unit.demand.kind is Kind.CHANGE
        return any(key in keys for keys in unit.announced)
