"""Keys that fail by themselves: nothing loads them for a while.

A key is at fault itself if others of its namespace were loaded since it failed first. Otherwise the statement or the loader may
be at fault, and then each key that is read ends up here. So one of these keys is tried every few seconds, if somebody asks for
it. As soon as a load of the namespace has succeeded, the next hint of each tries again. A key that leaves early has one attempt,
and what it failed before counts: if it fails again after others were loaded, it is at fault itself.

`retry` holds the list, and `outcomes` puts keys into it. The list is bounded, and a person can read it. It lives as long as its
engine.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Why a key is not tried, and until when."""

    error: str
    since: float
    until: float
    failing: float = -inf  # since when it has failed
    refused: Namespace | None = None
    """Its namespace, if no load of that had succeeded since then: nobody knows whether the key is at fault."""

    @property
    def free(self) -> bool:
        """Whether the next hint tries again before the time, for its namespace has loaded others by now."""
        return self.refused is not None and self.refused.source.outage.has_loaded(self.refused, self.failing)


class Quarantine:
    """The keys of one partition. The next hint after `until` tries again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tried: dict[Namespace, float] = {}  # when a key was let go last, though no load succeeds
        self.early: dict[bytes, float] = {}
        """Keys that have left before their time and have neither failed nor succeeded since, and since when each has failed."""
        self.keys: OrderedDict[bytes, Quarantined] = OrderedDict()

    def __len__(self) -> int:
        return len(self.keys)

    def put(
        self, key: bytes, error: str, now: float, *, namespace: Namespace | None = None, failing: float = -inf
    ) -> None:
        """A key has used up its attempts. It is of this namespace, and has failed since `failing`. The list is bounded: its oldest
        key is let go, and so may be tried again."""
        innocent = namespace is not None and not namespace.source.outage.has_loaded(namespace, failing)
        until = now + self._limits.quarantine_for
        self.keys[key] = Quarantined(error, now, until, failing, namespace if innocent else None)
        self.keys.move_to_end(key)
        self.early.pop(key, None)
        while len(self.keys) > self._limits.quarantined:
            self.keys.popitem(last=False)

    def forget(self, key: bytes) -> bool:
        """The next hint of this key tries again. False: the key is not in quarantine."""
        return self.keys.pop(key, None) is not None

    def bars(self, key: bytes, now: float) -> bool:
        """Whether a hint of this key is declined. Otherwise the key leaves quarantine, and is tried alone."""
        record = self.keys.get(key)
        if record is None:
            return False
        if now < record.until:
            if record.refused is None or self._waits(record, record.refused, now):
                return True
            self.early[key] = record.failing
        del self.keys[key]
        return False

    def _waits(self, record: Quarantined, namespace: Namespace, now: float) -> bool:
        """Whether no load of the key's namespace has succeeded yet, and it is too early for the next try."""
        if record.free:
            self._tried.pop(namespace, None)
            return False
        if now < self._tried.get(namespace, -inf) + self._limits.backoff_max:
            return True
        self._tried[namespace] = now
        return False
