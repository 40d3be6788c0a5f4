"""Counts the reads that applications report, instead of refreshing anything, for `cacheupdater record`.

`service.record` puts one in the place of the queue, behind the listeners, for a minute. It decodes packs as they come and
remembers one number per key. The number of keys is bounded: beyond it the keys read least make way.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.core.hints import believable
from cacheupdater.core.peers import NOBODY, Peering
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.namespace import Namespace

KEYS_MAX = 1_000_000  # some 150 MB
_MAKE_ROOM = 0.1  # of the keys at a time, so that it is done seldom


class Recorder(Peering):
    """The `Inlet` of listeners, and the `Observer` of what goes wrong at them."""

    def __init__(self, keyspace: Keyspace[Namespace], *, most: int = KEYS_MAX) -> None:
        super().__init__()
        self.reads: dict[Namespace, dict[bytes, int]] = {}
        self.announced: Counter[Namespace] = Counter()
        self.foreign = 0
        """Keys of no namespace, each time they came."""
        self.dropped = 0
        """Keys that made way."""
        self.rejected = 0
        """Packs and frames that could not be read."""
        self._keyspace = keyspace
        self._most = most
        self._known = 0

    def owed(self, _peer: int) -> int:
        """Nothing: what is taken may be acknowledged."""
        return 0

    def offer(self, _partition: int, payload: bytes, peer: int = NOBODY) -> bool:
        """There is always room."""
        try:
            pack = wire.decode_pack(payload)
        except wire.Malformed:
            self.rejected += 1
        else:
            self._take(pack, self.clients_of(peer))
        return True

    async def put(self, partition: int, payload: bytes, peer: int = NOBODY) -> None:
        self.offer(partition, payload, peer)

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:  # noqa: ARG002  the port's signature
        if metric == "intake_rejected":
            self.rejected += amount

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Not recorded."""

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Not recorded."""

    def end(self, metric: Metric, *, label: str = "") -> None:
        """Not recorded."""

    def _take(self, pack: wire.Pack, clients: int) -> None:
        groups, foreign = self._keyspace.resolve_many(pack.keys)
        self.foreign += len(foreign)
        counts = dict(zip(pack.keys, believable(pack.counts, clients), strict=True)) if pack.counts else {}
        for namespace, keys in groups.items():
            if pack.kind in wire.CHANGES:
                self.announced[namespace] += len(keys)
                continue
            reads = self.reads.setdefault(namespace, {})
            self._known -= len(reads)
            for key in keys:
                reads[key] = reads.get(key, 0) + counts.get(key, 1)
            self._known += len(reads)
        if self._known > self._most:
            self._make_room()

    def _make_room(self) -> None:
        numbers = np.concatenate(
            [np.fromiter(each.values(), np.float64, len(each)) for each in self.reads.values()]
        )
        excess = len(numbers) - int(self._most * (1.0 - _MAKE_ROOM))
        least = float(np.partition(numbers, excess)[excess])
        for reads in self.reads.values():
            leaving = [key for key, count in reads.items() if count <= least][:excess]
            excess -= len(leaving)
            self.dropped += len(leaving)
            self._known -= len(leaving)
            for key in leaving:
                del reads[key]
