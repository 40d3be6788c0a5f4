"""Finds out for a few of the recorded keys how often they change, by loading them twice; Redis is not asked.

`service.record` makes one per source. Keys are drawn when a sixth of the recording is over, half of them by their reads and
half evenly. The first loads are spread over the next sixth, the second ones over the last sixth. So the time between the two
is the same for all keys, and the database gets only a few rows at a time. If a row tells when it has changed, the second load
is enough. All loads together stay below two hundredths of what the source may spend.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cacheupdater.core.outcomes import Load
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.pipeline.load import load
from cacheupdater.recording.recording import Watched
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from random import Random

    from cacheupdater.core.budget import Source
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.recording.recorder import Recorder
    from cacheupdater_client.protocol.patterns import Captures

SHARE = 0.02
"""Part of the budget over the recording."""

KEYS_MAX = 2_000
"""Keys of all sources: enough to be exact to a percent."""

_UNIT = 10  # keys per statement: if the budget is time, little is spent before the first has shown its cost
_PART = 1.0 / 6.0  # of the recording: before the draw, for the first loads, and for the second


@dataclass(slots=True)
class _Key:
    namespace: Namespace
    name: bytes
    captures: Captures
    digest: bytes = b""
    version: float | None = None
    loaded: float | None = None  # when
    watched: tuple[float, float, bool] | None = None  # changes, exposure, exact


@dataclass(slots=True)
class Watch:
    """The watch of one source."""

    source: Source
    recipes: Mapping[Namespace, Recipe]  # of the namespaces of this source
    dated: Collection[Namespace]  # of those, the ones whose rows tell how long ago they have changed
    recorder: Recorder
    random: Random
    most: int = KEYS_MAX
    failed: int = 0
    why: str = ""
    _keys: list[_Key] = field(default_factory=list)
    _spent: float = 0.0
    _rows: dict[Namespace, int] = field(default_factory=dict)
    _milliseconds: dict[Namespace, float] = field(default_factory=dict)

    async def run(self, seconds: float) -> None:
        """As long as the recording."""
        clock = asyncio.get_running_loop().time
        began, part = clock(), seconds * _PART
        await asyncio.sleep(part)
        allowed = SHARE * self.source.bucket.rate * seconds
        self._keys = self._drawn(self.most if self.source.timed else min(self.most, int(allowed / 2.0)))
        twice = [each for each in self._keys if each.namespace not in self.dated]
        await self._load(twice, began + part, part, until=allowed / 2.0)
        await asyncio.sleep(max(0.0, began + seconds - part - clock()))
        again = [each for each in self._keys if each.loaded is not None or each.namespace in self.dated]
        await self._load(again, began + seconds - part, part, until=allowed)

    def sample(self, namespace: Namespace) -> list[Watched]:
        """What was found out."""
        reads = self.recorder.reads.get(namespace, {})
        return [
            Watched(reads[each.name], *each.watched)
            for each in self._keys
            if each.namespace is namespace and each.watched is not None and each.name in reads
        ]

    def milliseconds(self, namespace: Namespace) -> float | None:
        """What a row cost."""
        rows = self._rows.get(namespace)
        return max(1e-6, self._milliseconds[namespace] / rows) if rows else None

    def _drawn(self, number: int) -> list[_Key]:
        known = [
            (namespace, key, count)
            for namespace in self.recipes
            for key, count in self.recorder.reads.get(namespace, {}).items()
        ]
        if not known:
            return []
        weights = [count for _, _, count in known]
        popular = self.random.choices(range(len(known)), weights, k=number // 2)
        chosen = dict.fromkeys(popular)
        for at in self.random.sample(range(len(known)), min(number, len(known))):
            if len(chosen) >= number:
                break
            chosen[at] = None
        found = []
        for at in chosen:
            namespace, key, _ = known[at]
            captures = namespace.pattern.parse(key)
            if captures is not None:
                found.append(_Key(namespace, key, captures))
        return found

    async def _load(self, keys: Sequence[_Key], start: float, window: float, *, until: float) -> None:
        """Loads these keys, evenly over the window, as long as there is something left to spend."""
        clock = asyncio.get_running_loop().time
        units = _units(keys)
        for number, unit in enumerate(units):
            await asyncio.sleep(max(0.0, start + number * window / len(units) - clock()))
            cost = 0.0 if self.source.timed else len(unit)
            if self._spent < until and self._spent + cost <= until:
                await self._load_unit(unit)

    async def _load_unit(self, unit: Sequence[_Key]) -> None:
        namespace, seen = unit[0].namespace, Load()
        began = asyncio.get_running_loop().time()
        recipe, captures = self.recipes[namespace], [each.captures for each in unit]
        try:
            values = await load(recipe, captures, namespace=namespace.name, observer=self.recorder, seen=seen)
            digests = [_digest(recipe, values.get(each)) for each in captures]
        except (Unavailable, Faulty, Inexpressible) as e:
            self.failed += len(unit)
            self.why = str(e)
            return
        finally:
            self._pay(namespace, len(unit), seen.seconds * 1000.0)
        stamps = seen.stamps or [None] * len(unit)
        for key, digest, stamp in zip(unit, digests, stamps, strict=True):
            _look(key, digest, stamp, now=began, dated=namespace in self.dated)

    def _pay(self, namespace: Namespace, rows: int, milliseconds: float) -> None:
        self._spent += milliseconds if self.source.timed else rows
        self._rows[namespace] = self._rows.get(namespace, 0) + rows
        self._milliseconds[namespace] = self._milliseconds.get(namespace, 0.0) + milliseconds


def _look(key: _Key, digest: bytes, stamp: float | None, *, now: float, dated: bool) -> None:
    """What one load of a key tells, together with the one before it."""
    if dated:
        if stamp is not None:  # the age of the last change: nothing has happened since
            key.watched = (1.0, max(0.0, stamp), True)
        return
    if key.loaded is None:
        key.loaded, key.digest, key.version = now, digest, stamp
    elif stamp is not None and key.version is not None:
        key.watched = (max(0.0, stamp - key.version), now - key.loaded, True)
    else:
        key.watched = (float(digest != key.digest), now - key.loaded, False)


def _units(keys: Sequence[_Key]) -> list[list[_Key]]:
    """A first unit of each namespace, then a second: if the budget does not suffice, all namespaces go short alike."""
    by_space: dict[Namespace, list[_Key]] = {}
    for key in keys:
        by_space.setdefault(key.namespace, []).append(key)
    longest = max(map(len, by_space.values()), default=0)
    starts = range(0, longest, _UNIT)
    return [some[at : at + _UNIT] for at in starts for some in by_space.values() if len(some) > at]


def _digest(recipe: Recipe, value: object) -> bytes:
    """A digest of what Redis would hold: the same bytes are no change."""
    if value is None:
        return b""
    encoded = recipe.encode(value)
    spelled = encoded if isinstance(encoded, bytes) else repr(sorted(encoded.items())).encode()
    return hashlib.blake2b(spelled, digest_size=16).digest()
