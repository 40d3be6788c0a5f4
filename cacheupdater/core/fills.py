"""Fills: keys that a reader has just loaded by itself, with the token of that load. They need no load of ours for a while.

The engine hands it each pack of touches that has tokens, and goes on with what it returns: the touches that are left. A fill
counts as a refresh that began when its token was taken. A key of the policy `fixed` is held from then on, and a refresh that
waits for mere touches is not needed any more; `dedup` does that, by the automaton's table. The policy `price` is told when the
key was loaded, and decides as ever.

Anybody who may send hints may claim a fill that never happened. So only one claim of a key is believed in half of the time
for which its value lives, and at most `Limits.claims` at a time. Any other claim is a touch. Thus a false claim puts one
refresh off by one interval, and the next one must wait until a touch has been served. Changes and misses are never put off.
One per engine; `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.automaton import Action
from cacheupdater.core.hints import Kind
from cacheupdater.core.redis_clock import RedisClock
from cacheupdater.core.unit import URGENCY, Demand

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.core.cursors import OpenPack
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy

SWEEP_S = 1.0  # between two looks for claims that are over; a look at all of them takes some milliseconds


class Claims:
    """The keys of which no further claim is believed, and until when."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._until: dict[bytes, float] = {}
        self._swept = -inf

    def __len__(self) -> int:
        return len(self._until)

    def believes(self, key: bytes, now: float) -> bool:
        """Whether a claim of this key is believed now."""
        if self._until.get(key, -inf) > now:
            return False
        if len(self._until) >= self._most and now >= self._swept + SWEEP_S:
            self._swept = now
            self._until = {each: until for each, until in self._until.items() if until > now}
        return len(self._until) < self._most

    def put(self, keys: Collection[bytes], until: float) -> None:
        """A claim of each of these was believed."""
        self._until.update(dict.fromkeys(keys, until))


class Fills:
    """The fills of one partition."""

    def __init__(
        self,
        clock: RedisClock | None,
        limits: Limits,
        *,
        keyspace: Keyspace[Namespace],
        dedup: Dedup,
        policy: Policy,
        tally: Tally,
    ) -> None:
        self.claims = Claims(limits.claims)
        self._clock = clock or RedisClock()
        self._gap = limits.gap
        self._keyspace = keyspace
        self._dedup = dedup
        self._policy = policy
        self._tally = tally

    def take(
        self, hints: Hints, open_pack: OpenPack, now: float, *, barred: Collection[bytes]
    ) -> tuple[Hints, list[bytes]]:
        """Returns the hints that are touches like any other, and the keys that were refreshed. `barred` keys are no fills."""
        filled = {
            key: at
            for key, token in zip(hints.keys, hints.tokens, strict=True)
            if (at := self._clock.taken(token, now)) > -inf and key not in barred
        }
        filled = {key: at for key, at in filled.items() if self.claims.believes(key, now)}
        done: set[bytes] = set()
        held: list[bytes] = []
        demand = Demand(Kind.TOUCH, URGENCY[Kind.TOUCH], open_pack, now)
        for namespace, keys in self._keyspace.resolve_many(list(filled))[0].items():
            if namespace.terms is not None:
                self._price(namespace, keys, [filled[key] for key in keys], now)
                continue
            for began, some in self._together(namespace, keys, filled, now).items():
                fresh, covered = self._hold(namespace, some, demand, began)
                held += fresh
                done.update(fresh, covered)
        return _without(hints, done), held

    def _together(
        self, namespace: Namespace, keys: Sequence[bytes], filled: dict[bytes, float], now: float
    ) -> dict[float, list[bytes]]:
        """The keys whose hold is not over, by their beginning: those of one gap are held together, as from the first."""
        hold = self._policy.hold(namespace)
        groups: dict[int, list[bytes]] = {}
        for key in keys:
            if filled[key] + hold > now:
                groups.setdefault(int(filled[key] // self._gap), []).append(key)
        return {min(map(filled.__getitem__, some)): some for some in groups.values()}

    def _hold(
        self, namespace: Namespace, keys: list[bytes], demand: Demand, began: float
    ) -> tuple[list[bytes], list[bytes]]:
        hold = self._policy.hold(namespace)
        fresh, covered = self._dedup.fill(namespace, keys, demand, began=began, hold=hold)
        self.claims.put(fresh, _until(namespace, began, hold))
        for action, some in ((Action.FILLED, fresh), (Action.HOLD, covered)):
            self._tally.add("decisions", len(some), namespace.name, reason=action.name.lower())
        return fresh, covered

    def _price(self, namespace: Namespace, keys: list[bytes], began: Sequence[float], now: float) -> None:
        self._policy.on_fills(keys, began, now)
        self.claims.put(keys, _until(namespace, now, self._policy.hold(namespace)))


def _until(namespace: Namespace, began: float, hold: float) -> float:
    """A value that was really filled lives for its ttl, jitter apart, unless a change removes it."""
    return began + max(2.0 * hold, 0.5 * namespace.ttl)


def _without(hints: Hints, done: Collection[bytes]) -> Hints:
    """The hints of the other keys, which are touches."""
    if not done:
        return hints._replace(tokens=())
    at = [place for place, key in enumerate(hints.keys) if key not in done]
    counts = [hints.counts[place] for place in at] if hints.counts else ()
    return hints._replace(keys=[hints.keys[place] for place in at], counts=counts, tokens=(), counted=0)
