"""Throws the waiting packs of a shared queue away, after the values of their changed keys were removed from the cache.

`cacheupdater queue purge` makes one `Purge` and calls it once. The order is the promise: a partition's packs are dropped only when
Redis has removed, behind the fence, the value of each key that has a waiting change. So no reader is left with an old value that
nobody will refresh. Packs that come after the beginning stay. Updaters may run: they finish what they have read.

Changes are treated as those that an updater drops (`pipeline.remove`, `core.strangers`). A value that the updater would not have
replaced is foreign and stays. A key of no namespace is nobody's, such as a session in the same Redis, and its value stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cacheupdater.core.answers import FINISHING, Result
from cacheupdater.core.hints import KIND_OF, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.service.components import form_in
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.config.models import NamespaceSection
    from cacheupdater.depot_ports import Lag, Waiting
    from cacheupdater.ports import Message, Writer
    from cacheupdater_client.protocol.fence import Form

PACKS = 250  # read at once: at most 64 MiB, usually two
WORDS = {Kind.CHANGE: "changes", Kind.MISS: "misses", Kind.TOUCH: "touches"}
UNREADABLE = "unreadable"


@dataclass(slots=True)
class Purged:
    """What a purge has done."""

    partitions: int = 0  # that had packs, and have none of them now
    packs: Counter[str] = field(default_factory=Counter)  # that were dropped, by kind
    removals: int = (
        0  # of changed keys, whether they had a value or not; a key may count once for each `PACKS`
    )
    foreign: int = 0  # changed keys whose value stays, for it is not ours
    strangers: int = 0  # changed keys that no namespace has
    kept: dict[int, str] = field(default_factory=dict)  # partitions that were not purged, and why


class Purge:
    """One purge of one queue."""

    def __init__(
        self,
        waiting: Waiting,
        writer: Writer,
        namespaces: Sequence[NamespaceSection],
        *,
        tell: Callable[[int, int], None],
    ) -> None:
        """`tell` hears how many packs were read so far, of how many."""
        self._waiting = waiting
        self._writer = writer
        self._namespaces = {each.name: each for each in namespaces}
        self._keyspace = Keyspace([(each.pattern, each.name) for each in namespaces])
        self._tell = tell
        self._read = self._all = 0
        self._purged = Purged()

    async def run(self) -> Purged:
        """Goes through the partitions, one after the other. A trouble with Redis or the queue ends it; one with a key does not."""
        partitions: dict[int, list[Lag]] = {}
        for lag in await self._waiting.lag():
            if lag.packs:
                self._all += lag.packs
                partitions.setdefault(partition_of_lane(lag.lane), []).append(lag)
        left = list(partitions)
        for partition, lags in partitions.items():
            left.remove(partition)
            try:
                await self._partition(partition, lags)
            except CacheUpdaterError as e:
                self._purged.kept |= {partition: str(e), **dict.fromkeys(left, "not tried after that")}
                break
        return self._purged

    async def _partition(self, partition: int, lags: Sequence[Lag]) -> None:
        packs: Counter[str] = Counter()
        for lag in lags:
            if kept := await self._removed(lag, packs):
                self._purged.kept[partition] = kept
                return
        for lag in lags:
            await self._waiting.drop(lag.lane, lag.end)
        self._purged.partitions += 1
        self._purged.packs += packs

    async def _removed(self, lag: Lag, packs: Counter[str]) -> str:
        """Removes the values of the changed keys of this lane. Returns why one of them stays that must go; empty if none does."""
        at, kept = lag.done, ""
        while at < lag.end and not kept:
            found = (await self._waiting.read({lag.lane: at}, PACKS)).get(lag.lane, ())
            here = [each for each in found if each.offset < lag.end]
            if not here:  # updaters have finished the rest meanwhile: `read` leaves out nothing that waits
                break
            kept = await self._remove(_changed(here, packs))
            at = here[-1].offset + 1
            self._read += len(here)
            self._tell(self._read, self._all)
        return kept

    async def _remove(self, keys: Sequence[bytes]) -> str:
        """Removes the values of these keys. Returns why one of them stays that must go; empty if none does."""
        asked, forms = self._ours(keys)
        self._purged.strangers += len(keys) - len(asked)
        if not asked:
            return ""
        answers = await self._writer.invalidate(asked, forms)
        self._purged.removals += sum(each.result in FINISHING for each in answers)
        self._purged.foreign += sum(each.result is Result.FOREIGN for each in answers)
        for key, answer in zip(asked, answers, strict=True):
            if answer.result not in FINISHING and answer.result is not Result.FOREIGN:
                return f"Redis does not remove {key.decode(errors='backslashreplace')}: {answer.why or answer.result.value}"
        return ""

    def _ours(self, keys: Sequence[bytes]) -> tuple[list[bytes], dict[bytes, Form]]:
        """Those of these keys that a namespace takes, and the forms without which values are foreign."""
        ours: list[bytes] = []
        forms: dict[bytes, Form] = {}
        for name, begin_so in self._keyspace.resolve_many(keys)[0].items():
            namespace = self._namespaces[name]
            taken = [key for key in begin_so if namespace.pattern.takes(key)]
            ours += taken
            if namespace.value.foreign != "replace":
                forms |= dict.fromkeys(taken, form_in(namespace))
        return ours, forms


def _changed(messages: Sequence[Message], packs: Counter[str]) -> list[bytes]:
    """The keys that these packs report as changed, each once. Counts the packs by kind."""
    changed: dict[bytes, None] = {}
    for message in messages:
        try:
            pack = wire.decode_pack(message.payload)
        except wire.Malformed:
            packs[UNREADABLE] += 1
            continue
        packs[WORDS[KIND_OF[pack.kind]]] += 1
        if pack.kind in wire.CHANGES:
            changed |= dict.fromkeys(pack.keys)
    return list(changed)
