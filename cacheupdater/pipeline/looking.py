"""Measures how old values are when they are read: looks at a few keys that readers have just found, and at their floors.

`Vitals` makes one `Looking` per process, and intake shows it every pack. `Looking` counts the reads in the packs, and looks at
the key of every n-th read. So a key that is read ten times as often is looked at ten times as often, and the result is the
age of values as readers see it. The cost is at most `LOOKS_A_SECOND` keys a second and one key per pack, each with a TYPE and
a GET, and some microseconds per pack. Nothing is written, and nothing waits for a look.

A look comes some hundredths of a second after the read. If a refresh comes between, the figure is the age of the newer
value. If the hint waited on a queue, the look is late by that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import Kind
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.naming import named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.naming import LogKeys
    from cacheupdater.ports import Observer, Writer

log = logging.getLogger(__name__)

LOOKS_A_SECOND = (
    20  # keys: a hundredth of the reads that one namespace may have, and enough for a median within a minute
)
WINDOW_S = 60.0  # seconds that the figures cover
WINDOW = 1_200  # looks: LOOKS_A_SECOND for WINDOW_S
EXAMPLES = 3  # remembered keys of no namespace


class Look(NamedTuple):
    """One look at one value of a namespace."""

    when: float
    name: str
    age: float


class Looking:
    """The looks of one process."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        *,
        observer: Observer,
        random: Callable[[], float],
        log_keys: LogKeys,
    ) -> None:
        self.nobodys: deque[bytes] = deque(maxlen=EXAMPLES)
        """The latest keys of no namespace."""
        self._keyspace = keyspace
        self._observer = observer
        self._random = random
        self._log_keys = log_keys
        self._step = 1.0  # reads from one look to the next
        self._left = 1.0  # reads until the next look
        self._reads = 0  # since the last tick
        self._may = LOOKS_A_SECOND  # looks that are left until the next tick
        self._due: list[tuple[Kind, bytes]] = []
        self._woken = asyncio.Event()
        self._looks: deque[Look] = deque(maxlen=WINDOW)

    def follow(self, keyspace: Keyspace[Namespace]) -> None:
        """The namespaces are others from now on."""
        self._keyspace = keyspace

    def hear(self, hints: Hints) -> None:
        """Called for every pack, so it does little."""
        reads = hints.reads
        self._reads += reads
        if reads < self._left or not self._may:
            self._left = max(0.0, self._left - reads)
            return
        self._left = self._step
        self._may -= 1
        self._due.append((hints.kind, self._drawn(hints.keys, hints.counts, self._random() * reads)))
        self._woken.set()

    def tick(self) -> None:
        """Called once a second: spreads the allowed looks evenly over as many reads as the last second had."""
        self._step = max(1.0, self._reads / LOOKS_A_SECOND)
        self._left = min(self._left, self._step)
        self._reads, self._may = 0, LOOKS_A_SECOND

    def ages(self, now: float) -> dict[str, Sequence[float]]:
        """The ages of the values that readers found in the last minute, by namespace, the youngest first."""
        self._expire(now)
        found: defaultdict[str, list[float]] = defaultdict(list)
        for each in self._looks:
            found[each.name].append(each.age)
        return {name: sorted(ages) for name, ages in sorted(found.items())}

    def _expire(self, now: float) -> None:
        while self._looks and self._looks[0].when < now - WINDOW_S:
            self._looks.popleft()

    async def run(self, writer: Writer) -> None:
        """Runs until cancelled. Other parts report a Redis in trouble."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            due, self._due = self._due, []
            found: defaultdict[str, list[bytes]] = defaultdict(list)
            for kind, key in due:
                namespace = self._keyspace.resolve(key)
                if namespace is None or namespace.pattern.parse(key) is None:
                    self._say_nobodys(key)
                elif kind is Kind.TOUCH:
                    found[namespace.name].append(key)
            for name, keys in found.items():
                await self._look(writer, name, keys)

    def _say_nobodys(self, key: bytes) -> None:
        if key not in self.nobodys:
            self.nobodys.append(key)
            if self._log_keys != "off":
                log.debug("no namespace takes the key %s", named(key, self._log_keys))

    async def _look(self, writer: Writer, name: str, keys: Sequence[bytes]) -> None:
        try:
            found = await writer.look(keys)
        except CacheUpdaterError:
            return
        now = asyncio.get_running_loop().time()
        for each in found:
            if each is not None and each.age is not None:
                self._looks.append(Look(now, name, each.age))
                self._observer.measure("read_age_seconds", each.age, label=name)

    @staticmethod
    def _drawn(keys: Sequence[bytes], counts: Sequence[int], at: float) -> bytes:
        """The key of the read at this place in the pack."""
        for key, count in zip(keys, counts or repeat(1), strict=False):
            at -= count
            if at < 0:
                return key
        return keys[-1]
