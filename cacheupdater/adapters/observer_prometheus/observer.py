"""Shows the reports of all stages as Prometheus metrics.

The service makes one `PrometheusObserver` and hands it to every stage. The admin server gets the page for a scrape from it.
`declared` is the only place that names metrics: the registry, the documentation page (`page`) and the closed sets of labels
all come from it. A label outside its set counts as `other`. The observer decides nothing and keeps no history. A scrape may
render the page in another thread while the stages count.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import prometheus_client as prometheus
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from cacheupdater.adapters.observer_prometheus.declared import DECLARED, Declared
from cacheupdater.adapters.observer_prometheus.histogram import Histogram
from cacheupdater.adapters.observer_prometheus.meanings import KINDS
from cacheupdater.core.events import EVENTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cacheupdater.core.metrics import Metric

OTHER = "other"
PARTITIONS_MAX = (
    10_000  # a fleet for millions of reads a second has hundreds; each costs its owner ten series
)

_Family: TypeAlias = prometheus.Counter | prometheus.Gauge | Histogram
_F = TypeVar("_F", prometheus.Counter, prometheus.Gauge, Histogram)
_At: TypeAlias = "tuple[Metric, str, str]"  # metric, label, reason, as the port's caller gave them


class PrometheusObserver:
    """`ports.Observer` on a registry of its own, so that several services can live in one process."""

    def __init__(
        self,
        *,
        version: str,
        namespaces: Iterable[str],
        partitions: int,
        sources: Iterable[str] = (),
        feeds: Iterable[str] = (),
        declared: Mapping[Metric, Declared] = DECLARED,
    ) -> None:
        """The namespaces, partitions and sources are the only labels that are shown, besides `other`. `feeds` are those sources
        that have a feed.

        The set of partitions grows with the gauge `partitions`, for a topic may get more of them. A reload brings other
        namespaces and sources: see `show`. An updater and a collector have `declared` different metrics.
        """
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # half of all series, and unused
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        self._known: dict[str, Collection[str]] = {
            "": ("",),
            "event": EVENTS,
            "kind": KINDS,
            "partition": _numbers(partitions),
            **_names(namespaces, sources, feeds),
        }
        self._declared = declared
        self._families = {metric: self._declare(metric, row) for metric, row in declared.items()}
        # The port's arguments -> the child. Only arguments from the closed sets are kept, so the dicts stay small.
        self._counters: dict[_At, prometheus.Counter] = {}
        self._gauges: dict[_At, prometheus.Gauge] = {}
        self._histograms: dict[_At, Histogram] = {}
        build = prometheus.Gauge(
            "cacheupdater_build_info", "What runs here.", ("version", "python"), registry=self.registry
        )
        build.labels(version=version, python=platform.python_version()).set(1)
        self._start_at_zero()

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """Add to a counter, by one dict look-up and the driver's increment."""
        child = self._counters.get((metric, label, reason))
        if child is None:
            child = self._child(self._counters, prometheus.Counter, (metric, label, reason))
        child.inc(amount)

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Add one observation to a histogram."""
        child = self._histograms.get((metric, label, ""))
        if child is None:
            child = self._child(self._histograms, Histogram, (metric, label, ""))
        child.observe(value)

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """Set a gauge."""
        child = self._gauges.get((metric, label, ""))
        if child is None:
            child = self._child(self._gauges, prometheus.Gauge, (metric, label, ""))
        child.set(value)
        if metric == "partitions":
            self._grow(int(value))

    def end(self, metric: Metric, *, label: str = "") -> None:
        """End the series of a gauge. `other` stands for many labels, so its series stays, and is 0."""
        if self._gauges.pop((metric, label, ""), None) is not None:
            self._families[metric].remove(label)
        elif label not in self._known[self._declared[metric].label]:
            self.level(metric, 0, label=label)

    def add(self, declared: Mapping[Metric, Declared]) -> None:
        """These metrics are shown too from now on: a reload has brought the first feed, or another part that counts."""
        self._families |= {
            metric: self._declare(metric, row)
            for metric, row in declared.items()
            if metric not in self._families
        }
        self._declared = {**self._declared, **declared}
        self._start_at_zero()

    def show(self, namespaces: Iterable[str], sources: Iterable[str], feeds: Iterable[str]) -> None:
        """These are the labels from now on. The series of the others end, or each reload would leave some behind."""
        self._known |= _names(namespaces, sources, feeds)
        for metric, label, reason in [*self._counters, *self._gauges, *self._histograms]:
            row = self._declared[metric]
            if label in self._known[row.label]:
                continue
            for children in (self._counters, self._gauges, self._histograms):
                children.pop((metric, label, reason), None)
            self._families[metric].remove(label, *((reason,) if row.reason else ()))
        self._start_at_zero()

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The page for a scrape and its content type: OpenMetrics if the client accepts it, else plain text."""
        # The driver's own negotiation fails on odd version numbers, and repeats the client's words in its answer.
        if "application/openmetrics-text" in accept:
            return openmetrics.generate_latest(self.registry), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]  # the driver has no types there
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _grow(self, partitions: int) -> None:
        """A topic has more partitions now, so more labels are valid. No label is ever removed."""
        if partitions > len(self._known["partition"]):
            self._known["partition"] = _numbers(partitions)

    def _declare(self, metric: Metric, row: Declared) -> _Family:
        name, names = f"cacheupdater_{metric}", row.label_names
        if row.kind == "counter":
            return prometheus.Counter(name, row.help, names, registry=self.registry)
        if row.kind == "gauge":
            return prometheus.Gauge(name, row.help, names, registry=self.registry)
        return Histogram(name, row.help, names, bounds=row.buckets, registry=self.registry)

    def _start_at_zero(self) -> None:
        """Show counters from the start: rate() misses the first event of a counter that begins with it.

        Counters by namespace are left out, for they would be too many.
        """
        for metric, row in self._declared.items():
            if row.kind == "counter" and row.label != "namespace":
                for label in self._known[row.label]:
                    for reason in row.reasons or ("",):
                        self.count(metric, 0, label=label, reason=reason)

    def _child(self, children: dict[_At, _F], kind: type[_F], at: _At) -> _F:
        """Find or make the child, and remember it if its labels are in the closed sets."""
        metric, label, reason = at
        row, family = self._declared[metric], self._families[metric]
        if not isinstance(family, kind):
            raise TypeError(f"{metric} is a {row.kind}")
        known_label = label in self._known[row.label]
        known_reason = reason in (row.reasons or ("",))
        values = []
        if row.label:
            values.append(label if known_label else OTHER)
        if row.reason:
            values.append(reason if known_reason else OTHER)
        child = family.labels(*values) if values else family
        if known_label and known_reason:
            children[at] = child
        return child


def _names(
    namespaces: Iterable[str], sources: Iterable[str], feeds: Iterable[str]
) -> dict[str, Collection[str]]:
    # empty for decisions before the namespace is known
    known = frozenset({"", *namespaces})
    return {"namespace": known, "source": frozenset(sources), "feed": frozenset(feeds)}


def _numbers(partitions: int) -> frozenset[str]:
    return frozenset(map(str, range(min(partitions, PARTITIONS_MAX))))
