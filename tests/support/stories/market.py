"""Several engines at one source, in virtual time: what each namespace offers, and what it gets."""

from __future__ import annotations

from collections import Counter
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

from cacheupdater.core.hints import Hints, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.unit import Unit
    from stories.engine import Story

TICK = 0.05  # seconds between the hints of a namespace
TOOK = 0.004  # seconds of a load and its write


class Market:
    """Several engines at one source, in virtual time, each asked when it wanted to be asked, or when a unit has ended."""

    def __init__(self, *engines: Story) -> None:
        self.engines = engines
        self.rows: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()
        self.waited: dict[str, float] = {}
        self.steps = self.hinted = 0
        self._order = count()
        self._next_key = count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._wakes = [0.0] * len(engines)
        self._since: dict[bytes, float] = {}

    def offer(
        self, name: str, rate: float, seconds: float, *, kind: Kind, engine: int = 0, since: float = 0.0
    ) -> None:
        """So many new keys a second, ten to twenty times a second."""
        every = max(TICK, 1.0 / rate)
        for at in range(int(seconds / every)):
            shift = (crc32(name.encode()) % 97) / 97 * every
            self._later(
                since + at * every + shift, partial(self._offer_new, name, rate * every, kind, engine)
            )

    def offer_keys(self, keys: list[bytes], at: float, *, kind: Kind, engine: int = 0) -> None:
        """These keys at this moment."""
        self._later(at, partial(self._hint, keys, kind, engine))

    def _later(self, at: float, what: Callable[[float], None]) -> None:
        heappush(self._events, (at, next(self._order), what))

    def offer_now(self, keys: list[bytes], *, kind: Kind, engine: int = 0) -> None:
        """All of these at once, before anything else."""
        self._since.update(dict.fromkeys(keys, 0.0))
        self.engines[engine].engine.on_hints([Hints(next(self._order), kind, keys, ())], 0.0)

    def run(self, seconds: float) -> None:
        now = 0.0
        while now < seconds:
            at = min([*self._wakes, self._events[0][0] if self._events else seconds])
            now = max(now, at)
            while self._events and self._events[0][0] <= now:
                heappop(self._events)[2](now)
            for number, wake in enumerate(self._wakes):
                if wake <= now:
                    self._step(number, now)

    def _ended(self, story: Story, unit: Unit, seconds: float, now: float) -> None:
        self.end(story, unit, seconds, now)
        self._wakes = [now] * len(self.engines)  # the shell stirs all

    def _offer_new(self, name: str, number: float, kind: Kind, engine: int, now: float) -> None:
        keys = [b"%s:%d" % (name.encode(), next(self._next_key)) for _ in range(round(number))]
        self._hint(keys, kind, engine, now)

    def _hint(self, keys: list[bytes], kind: Kind, engine: int, now: float) -> None:
        self.hinted += 1
        self._since.update(dict.fromkeys(keys, now))
        self.engines[engine].engine.on_hints([Hints(next(self._order), kind, keys, ())], now)
        self._wakes[engine] = now

    def _step(self, number: int, now: float) -> None:
        story = self.engines[number]
        self.steps += 1
        work = story.step(now)
        assert work.wake > now
        self._wakes[number] = work.wake
        for unit in work.units:
            name = unit.namespace.name
            self.rows[name] += len(unit.keys)
            self.statements[name] += 1
            longest = now - min(self._since[key] for key in unit.keys)
            self.waited[name] = max(self.waited.get(name, 0.0), longest)
            seconds = self.takes(unit, now)
            self._later(now + seconds, partial(self._ended, story, unit, seconds))

    def takes(self, unit: Unit, now: float) -> float:
        """Seconds of the unit's load and write."""
        del unit, now
        return TOOK

    def end(self, story: Story, unit: Unit, seconds: float, now: float) -> None:
        """The unit ends."""
        del seconds
        story.end(unit, now)
