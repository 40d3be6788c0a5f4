"""The policy `price` in the automaton's stories. Its decisions, and the calls that it gets, are recorded for the model.

In a third of the stories of `automaton.schedules` some namespaces are priced. The automaton does not decide which touches are
worth a load. The model takes the touches that the policy passed on as given, and all promises of the automaton must hold for
these. One in five of these stories uses the real policy with a real market. The others use a policy that decides at random: it
costs next to nothing, and often does what the real one does once in a thousand stories. Either policy must hear of every
refresh (`Priced.told`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import ceil, inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from automaton.worlds import GAP
from cacheupdater.core.namespace import Terms
from cacheupdater.price import Market, Price

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from automaton.schedules import Play
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Loaded

EVERY = 3  # one story in so many is priced
REAL = 0.2  # of these, the share that uses the real policy
LOOK = GAP  # seconds between two looks at keys without recent reads: most stories last for one or two seconds
READS = (1, 3, 20)  # of one key in one pack
TERMS = (Terms(), Terms(worth=100.0), Terms(max_age=1.0), Terms(worth=100.0, max_age=0.25))
LIKELY = 0.6  # the random policy's chance to pass a touch on, to let a change wait, and to ask for no key
LEAST = (0.0, 0.02, 0.3)  # stale reads that a row must prevent
PRICES = (1e-3, 0.03, 0.3, 1.0, 3.0, 10.0)  # to begin with; the market moves on from there


class Ticked(NamedTuple):
    """Keys that the policy wants to be loaded without a recent read."""

    keys: Sequence[bytes]


class Priced:
    """A policy that does what its `inner` policy says, and records it, until the story comes to rest: prices never rest."""

    learns = True
    met = 0

    def __init__(self, inner: Price | ByLot, log: list[object]) -> None:
        self.quiet = False
        self.passed: deque[Sequence[bytes]] = deque()  # of each pack of touches, until the story has read it
        self.patient: deque[Collection[bytes]] = deque()  # likewise, of each pack of changes
        self.loaded: list[Loaded] = []
        self._inner = inner
        self._log = log
        self._next = -inf

    def hold(self, namespace: Namespace) -> float:
        return self._inner.hold(namespace)

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:
        passed = self._inner.on_hints(keys, counts, now)
        self.passed.append(list(passed))
        return passed

    def on_fills(self, keys: Sequence[bytes], began: Sequence[float], now: float) -> None:
        self._inner.on_fills(keys, began, now)

    def on_misses(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> None:
        self._inner.on_misses(keys, counts, now)

    def read_rates(self, keys: Sequence[bytes], now: float) -> Sequence[float]:
        return self._inner.read_rates(keys, now)

    def on_changes(self, keys: Sequence[bytes], now: float) -> Collection[bytes]:
        patient = self._inner.on_changes(keys, now)
        self.patient.append(patient)
        return patient

    def on_loaded(self, loaded: Loaded, now: float) -> None:
        self.loaded.append(loaded)
        self._inner.on_loaded(loaded, now)

    def on_spared(self, keys: Sequence[bytes]) -> None:
        self._inner.on_spared(keys)

    def tick(self, now: float) -> Sequence[bytes]:
        if self.quiet or now < self._next:
            return ()
        self._next = now + LOOK
        asked = self._inner.tick(now)
        if asked:
            self._log.append(Ticked(list(asked)))
        return asked

    def wake(self) -> float:
        """When to wake, at a tick of the story's clock."""
        if self.quiet or self._inner.wake() == inf:
            return inf
        return max(self._next, ceil(self._inner.wake() / GAP) * GAP)

    def leave(self) -> None:
        self._inner.leave()

    def told(self) -> list[tuple[bytes, bool | None, float]]:
        """Since the last call: each refreshed key, whether its value had changed, and when its head began."""
        told = [
            (key, changed, loaded.began)
            for loaded in self.loaded
            for key, changed in zip(loaded.keys, loaded.changed, strict=True)
        ]
        self.loaded.clear()
        return told


class ByLot:
    """Declines, asks and lets wait at random, for priced keys."""

    def __init__(self, play: Play, rng: Random) -> None:
        self._play = play
        self._rng = rng
        self._next = inf

    def hold(self, namespace: Namespace) -> float:
        return namespace.every if namespace.terms is None else GAP

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:
        self._next = now + GAP
        return [key for key in dict.fromkeys(keys) if self._play.is_fixed(key) or self._rng.random() < LIKELY]

    def on_fills(self, keys: Sequence[bytes], began: Sequence[float], now: float) -> None:
        pass

    def on_misses(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> None:
        """Nothing to learn."""

    def read_rates(self, keys: Sequence[bytes], now: float) -> Sequence[float]:
        return [self._rng.choice((0.0, 0.1, 10.0)) for _ in keys]

    def on_changes(self, keys: Sequence[bytes], now: float) -> Collection[bytes]:
        return {key for key in keys if not self._play.is_fixed(key) and self._rng.random() < LIKELY}

    def on_loaded(self, loaded: Loaded, now: float) -> None:
        """Nothing to learn."""

    def on_spared(self, keys: Sequence[bytes]) -> None:
        """Nothing to learn."""

    def tick(self, now: float) -> Sequence[bytes]:
        self._next = now + GAP
        if self._rng.random() < LIKELY:
            return ()
        priced = [name for name in self._play.names if not self._play.is_fixed(name)]
        return self._rng.sample(priced, self._rng.randint(1, len(priced)))

    def wake(self) -> float:
        return self._next

    def leave(self) -> None:
        """Nothing was kept."""


class Prices:
    """The other parts of prices that a story needs: the priced namespaces, one market, and random numbers of its own."""

    def __init__(self, play: Play, seed: int) -> None:
        self.rng = rng = Random(seed)
        self._play = play
        self.real = rng.random() < REAL
        self._inner: Price | ByLot | None = None
        first, *others = play.namespaces
        play.namespaces = [
            self._priced(first),
            *(self._priced(n) if rng.random() < 0.7 else n for n in others),
        ]
        source = first.source
        priced = [each for each in play.namespaces if each.terms]
        least = rng.choice(LEAST)
        self._markets = {source: Market(source, priced, random=rng.random, now=play.now, least=least)}
        self._markets[source].price = rng.choice(PRICES)

    def _priced(self, namespace: Namespace) -> Namespace:
        return replace(namespace, terms=self.rng.choice(TERMS))

    def policy(self) -> Priced:
        """The policy for an owner. A later owner gets a new one, or the old one, as when a rebalance gives a partition back."""
        play = self._play
        if not self.real:
            self._inner = ByLot(play, self.rng)
        elif isinstance(self._inner, Price) and self.rng.random() < 0.5:
            self._inner.join(play.now)
        else:
            self._inner = Price(
                play.keyspace, play.namespaces, self._markets, limits=play.limits, now=play.now
            )
        return Priced(self._inner, play.log)

    def counted(self, pack: Hints) -> Hints:
        """The same pack with counts, as if its keys were read more than once."""
        return pack._replace(counts=[self.rng.choice(READS) for _ in pack.keys])
