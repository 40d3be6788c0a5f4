"""An observer that remembers totals, for tests that ask "how many, and why".

A test passes it to any stage in place of Prometheus and reads it afterwards; it lives as long as the test. It keeps every
label, so a test also sees those that a real observer would show as `other`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.metrics import Metric


class RecordingObserver:
    """`ports.Observer` in plain dicts."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Metric, str, str]] = Counter()  # by metric, label, reason
        self.measured: defaultdict[tuple[Metric, str], list[float]] = defaultdict(list)
        self.levels: dict[tuple[Metric, str], float] = {}

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        self.counts[metric, label, reason] += amount

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        self.measured[metric, label].append(value)

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        self.levels[metric, label] = value

    def end(self, metric: Metric, *, label: str = "") -> None:
        self.levels.pop((metric, label), None)

    def total(self, metric: Metric, *, label: str | None = None, reason: str | None = None) -> int:
        """The sum over everything that matches; None matches all."""
        return sum(
            amount
            for (name, at, why), amount in self.counts.items()
            if name == metric and label in {None, at} and reason in {None, why}
        )
