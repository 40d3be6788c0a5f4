"""Helpers for stories about one engine: plain verbs, times in seconds, answers as a writer would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.answers import WRITTEN, Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine, Work
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.outcomes import Failure, Load
from cacheupdater.core.peers import NOBODY
from cacheupdater.core.policy import Fixed
from cacheupdater.core.redis_clock import RedisClock
from cacheupdater_client.protocol.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.core.policy import Policy
    from cacheupdater.core.removals import Invalidation
    from cacheupdater.core.unit import Unit

PLENTY = 2.0**30
REFUSAL = Answer(Result.FAILED, why="NOPERM No permissions to access a key")


def token_at(seconds: float) -> int:
    """A token of a Redis whose clock shows the time of the story."""
    return round(seconds * 1e9)


def limits(**changed: float) -> Limits:
    """Limits as in production, but without the few milliseconds that gather small packs into one statement."""
    return Limits(**{"gather": 0.0, **changed})


def plenty() -> Bucket:
    """A budget that never binds."""
    return Bucket(PLENTY, PLENTY, now=-1.0)


def namespace(name: str = "p", *, source: Source | None = None, **changed: object) -> Namespace:
    return Namespace(
        name,
        Pattern.compile(f"{name}:{{id:int}}"),
        source or Source("db", plenty(), concurrency=100),
        **{"every": 5.0, **changed},
    )


class Story:
    """One engine, and verbs for the events that happen to it."""

    def __init__(self, *namespaces: Namespace, policy: Policy | None = None, **changed: float) -> None:
        self.namespaces = namespaces or (namespace(),)
        self.limits = limits(**changed)
        keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        self.clock = RedisClock()
        self.engine = Engine(
            keyspace,
            policy or Fixed(),
            limits=self.limits,
            random=lambda: 1.0,
            offset=0,
            clock=self.clock,
        )
        self.offset = 0
        self.counted: dict[tuple[str, str], int] = {}

    # --- hints ------------------------------------------------------------------------------------------

    def touch(self, *keys: bytes, at: float, peer: int = NOBODY) -> None:
        self._hint(Kind.TOUCH, keys, at, peer)

    def fill(self, *keys: bytes, at: float, began: float | Sequence[float], known: bool = True) -> None:
        """Readers have filled these keys by loads that began then, by the clock of Redis, which we know or not."""
        if known:
            self.clock.told(token_at(at), at, at)
        times = [began] * len(keys) if isinstance(began, float) else began
        tokens = [token_at(each) for each in times]
        self.engine.on_hints([Hints(self.offset, Kind.TOUCH, list(keys), (), NOBODY, tokens)], at)
        self.offset += 1

    def miss(self, *keys: bytes, at: float, peer: int = NOBODY, clients: int = 1) -> None:
        hints = Hints(self.offset, Kind.MISS, list(keys), (), peer, clients=clients)
        self.engine.on_hints([hints], at)
        self.offset += 1

    def asked(self, asks: Mapping[bytes, int], *, at: float, peer: int = NOBODY) -> None:
        """So many readers have missed each of these keys."""
        self.engine.on_hints([Hints(self.offset, Kind.MISS, list(asks), list(asks.values()), peer)], at)
        self.offset += 1

    def awaited(self, *keys: bytes, at: float) -> None:
        """Readers have found neither these keys nor marks of absent rows in Redis, and wait."""
        tokens = [token_at(at)] * len(keys)
        self.engine.on_hints([Hints(self.offset, Kind.MISS, list(keys), (), NOBODY, tokens)], at)
        self.offset += 1

    def change(self, *keys: bytes, at: float, peer: int = NOBODY) -> None:
        self._hint(Kind.CHANGE, keys, at, peer)

    def set_(self, *keys: bytes, at: float) -> None:
        """The application has just set these keys."""
        self.engine.on_hints([Hints(self.offset, Kind.CHANGE, list(keys), (), is_set=True)], at)
        self.offset += 1

    def fed(self, *keys: bytes, at: float) -> None:
        """A feed tells that these keys have changed just now."""
        committed = [round(at * 1e6) + 1] * len(keys)
        self.engine.on_hints([Hints(self.offset, Kind.CHANGE, list(keys), (), NOBODY, committed)], at)
        self.offset += 1

    def _hint(self, kind: Kind, keys: tuple[bytes, ...], at: float, peer: int) -> None:
        self.engine.on_hints([Hints(self.offset, kind, list(keys), (), peer)], at)
        self.offset += 1

    # --- work -------------------------------------------------------------------------------------------

    def step(self, at: float) -> Work:
        return self.engine.step(at)

    def starts(self, at: float) -> list[list[bytes]]:
        """The keys of each unit that starts now."""
        return [list(unit.keys) for unit in self.step(at).units]

    def start(self, at: float) -> Unit:
        """The one unit that starts now."""
        (unit,) = self.step(at).units
        return unit

    def end(
        self,
        unit: Unit,
        at: float,
        result: Result = Result.WRITTEN,
        *,
        wait: float = 0.0,
        absent: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """The unit ends, after a load of so many seconds."""
        answers = [Answer(result, wait)] * len(unit.keys)
        rowless = list(unit.keys) if absent else []
        self.engine.on_absent(unit, rowless, at)
        self.engine.on_answers(unit, answers, at, absent=rowless, load=Load(seconds))

    def written(self, unit: Unit) -> list[Answer]:
        """The answers of a writer that has written all keys."""
        return [WRITTEN] * len(unit.keys)

    def refresh(self, at: float, *, took: float = 0.0) -> list[bytes]:
        """Runs and writes all units that are due."""
        keys: list[bytes] = []
        for unit in self.step(at).units:
            keys += unit.keys
            self.end(unit, at + took)
        return keys

    def removed(
        self, invalidation: Invalidation, at: float, *, refused: Collection[bytes] = ()
    ) -> Sequence[bytes]:
        """Redis has removed these keys, except some. Returns the keys that are given up."""
        answers = [REFUSAL if key in refused else WRITTEN for key in invalidation.keys]
        return self.engine.on_invalidated(invalidation, answers, at)

    def fail(self, unit: Unit, at: float, *, own: bool, slow: bool = False) -> None:
        self.engine.on_failure(unit, Failure("no", own=own, slow=slow), at)

    def lose(self, unit: Unit, at: float, *, own: bool = False) -> None:
        """The unit's rows cannot be loaded."""
        self.engine.on_failure(unit, Failure("no", own=own, at_source=True), at, load=Load(stage="load"))

    def unwritten(self, unit: Unit, at: float) -> None:
        """The unit's rows were loaded, and Redis cannot be reached."""
        self.engine.on_failure(unit, Failure("no", own=False), at, load=Load(stage="write"))

    def prolonged(self, at: float, *, answer: bool | None = True) -> list[bytes]:
        """Steps until nothing more is asked for now. Redis gives this answer for each key; returns the keys."""
        keys: list[bytes] = []
        while (asked := self.step(at).prolongation) is not None:
            keys += asked.keys
            self.engine.on_prolonged(asked, [answer] * len(asked.keys), at)
        return keys

    def unreached(self, unit: Unit, at: float) -> None:
        """The unit fails before its statement reaches the source."""
        self.engine.on_failure(unit, Failure("no", own=False), at, load=Load(0.0, asked=False))

    def time_out(self, unit: Unit, at: float) -> None:
        self.fail(unit, at, own=False, slow=True)

    # --- the visible state ------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        return self.engine.cursor.advance()

    def count(self, metric: str, reason: str) -> int:
        """The count so far, over all namespaces."""
        for (name, _, why), amount in self.engine.tally.drain().items():
            self.counted[name, why] = self.counted.get((name, why), 0) + amount
        return self.counted.get((metric, reason), 0)
