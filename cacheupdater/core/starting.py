"""Starts the units that have been paid for. Only here are the captures of keys parsed, when a key is worth a load.

The engine calls `start` in each step, and hands the units to the pipeline. Keys that do not parse are nobody's: they leave
their unit, and what was paid for them is given back. Lives as long as its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.policy import Policy
    from cacheupdater.core.strangers import Strangers
    from cacheupdater.core.unit import Unit


class Starting:
    """The start of heads."""

    def __init__(
        self, dedup: Dedup, policy: Policy, *, strangers: Strangers, limits: Limits, tally: Tally
    ) -> None:
        self._dedup = dedup
        self._policy = policy
        self._strangers = strangers
        self._most = limits.turn_keys
        self._tally = tally
        self._removed = 0  # keys that this step found to be nobody's
        self.cut_short = False
        """Whether the last `start` found so many keys of nobody that it left some for the next step."""

    def start(self, now: float) -> list[Unit]:
        """The units that run from now on."""
        units: list[Unit] = []
        self._removed, self.cut_short = 0, False
        while not self.cut_short and (started := self._dedup.start(now)):
            running = [unit for unit in started if self._run(unit, now)]
            units += running
            if len(running) == len(started):
                break  # else a unit held nobody's keys only and gave its slot back: another unit may take it
        return units

    def _run(self, unit: Unit, now: float) -> bool:
        pattern = unit.namespace.pattern
        captures = pattern.parse_many(unit.keys)
        if captures is None:
            self._remove(unit, {key for key in unit.keys if pattern.parse(key) is None}, now)
            captures = pattern.parse_many(unit.keys) or ()
        unit.captures = captures
        if not unit.keys:
            unit.receipt.cancel(now)
            return False
        self._dedup.run(unit, self._policy.hold(unit.namespace), now)
        unit.namespace.source.began(unit, now)
        return True

    def _remove(self, unit: Unit, bad: set[bytes], now: float) -> None:
        self._tally.add("dropped", len(bad), reason="unknown")
        self._strangers.put(bad)
        self._removed += len(bad)
        self.cut_short = self._removed >= self._most
        self._dedup.strip(unit, bad)
        unit.receipt.give_back(len(bad), now)
