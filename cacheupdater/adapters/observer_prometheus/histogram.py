"""A histogram of all values that a stage has measured, for Prometheus' registry.

`PrometheusObserver` makes one for each metric of this kind, and children of it by their labels. The driver has a histogram
too, but the driver's takes two locks and 0.7 us for each value. Ours takes 0.14 us, and each unit of keys has six values. Ours
needs no lock, for all values come from the thread of the event loop. A scrape in another thread may find that the sum and the
buckets differ by one value.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

_INF = float("inf")


class Histogram:
    """All series of one metric, or one of them."""

    __slots__ = ("_bounds", "_children", "_counts", "_help", "_label_names", "_name", "_sum")

    def __init__(
        self,
        name: str,
        help_: str,
        label_names: Sequence[str],
        *,
        bounds: Sequence[float],
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`bounds`: the largest value of each bucket but the last, which takes all others."""
        self._name, self._help, self._label_names = name, help_, label_names
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._children: dict[tuple[str, ...], Histogram] = {}
        if registry is not None:
            registry.register(self)

    def observe(self, value: float) -> None:
        """Add one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def labels(self, *values: str) -> Histogram:
        """The series with these labels, in the order of their names."""
        child = self._children.get(values)
        if child is None:
            child = Histogram(self._name, self._help, self._label_names, bounds=self._bounds)
            self._children[values] = child
        return child

    def remove(self, *values: str) -> None:
        """The series with these labels ends."""
        self._children.pop(values, None)

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """The names, for a registry that refuses a name twice."""
        return [HistogramMetricFamily(self._name, self._help, labels=self._label_names)]

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """All series as they are now."""
        [family] = self.describe()
        series = dict(self._children) if self._label_names else {(): self}
        for values, each in series.items():
            each._add_to(family, values)  # noqa: SLF001  a histogram of this class
        return [family]

    def _add_to(self, family: HistogramMetricFamily, values: Sequence[str]) -> None:
        bounds = map(floatToGoString, (*self._bounds, _INF))
        counts = map(float, accumulate(self._counts))
        family.add_metric(values, list(zip(bounds, counts, strict=True)), self._sum)
