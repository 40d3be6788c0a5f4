"""What is done about a key whose refresh failed: when it is tried again, and when never.

This is our own code rather than a retry library: nothing here waits, the delay is data for the schedule, and attempts belong
to a key and not to a call. `Troubles` holds a record only while a key fails. It lives as long as its engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from cacheupdater.core.limits import Limits


@dataclass(slots=True)
class Trouble:
    """`tries` make the delay longer, whatever failed; only `faults` (its own errors) count towards quarantine."""

    tries: int = 0
    faults: int = 0
    timeouts: int = 0
    failing: float = inf  # since when it has been at fault itself
    witnessed: bool = False  # others of its source were answered while it timed out


class Troubles:
    """Keys that failed and have not succeeded since."""

    def __init__(self, limits: Limits, random: Callable[[], float]) -> None:
        self.quarantine = Quarantine(limits)
        self._limits = limits
        self._random = random
        self._troubles: dict[bytes, Trouble] = {}

    def __len__(self) -> int:
        return len(self._troubles)

    def failed(self, key: bytes, now: float, *, own: bool) -> bool:
        """One more failure; True when the key has used up its attempts."""
        trouble, early = self._troubles.setdefault(key, Trouble()), self.quarantine.early
        trouble.tries += 1
        if not own:
            return False
        trouble.faults += 1
        trouble.failing = min(trouble.failing, early.get(key, now))
        return trouble.faults >= self._limits.max_attempts or key in early

    def failing(self, key: bytes) -> float:
        """Since when the key has failed by itself; inf: it has not."""
        trouble = self._troubles.get(key)
        return trouble.failing if trouble else inf

    def is_slow(self, key: bytes) -> bool:
        """Whether the key, and not its source, is known to be slow: since its last success, it has failed by itself, and it has timed
        out while others were answered."""
        trouble = self._troubles.get(key)
        return trouble is not None and trouble.witnessed and trouble.faults > 0

    def timed_out(self, keys: Iterable[bytes], *, witnessed: bool) -> set[bytes]:
        """These keys timed out once more; `witnessed`: while others were answered. Returns those for which it was not the first
        time."""
        again = set()
        for key in keys:
            trouble = self._troubles.setdefault(key, Trouble())
            trouble.timeouts += 1
            trouble.witnessed |= witnessed
            if trouble.timeouts > 1:
                again.add(key)
        return again

    def delay(self, key: bytes) -> float:
        """Seconds until the next try: doubling, at most `backoff_max`, half of it random."""
        trouble = self._troubles.get(key)
        tries = min(trouble.tries, 16) if trouble else 1
        full: float = min(self._limits.backoff * 2.0 ** (tries - 1), self._limits.backoff_max)
        return full * (0.5 + 0.5 * self._random())

    def over(self, keys: Collection[bytes]) -> None:
        """These keys succeeded, or were given up."""
        troubles = self._troubles
        if self.quarantine.early:
            for key in keys:
                self.quarantine.early.pop(key, None)
        if troubles and not troubles.keys().isdisjoint(keys):
            for key in keys:
                troubles.pop(key, None)
