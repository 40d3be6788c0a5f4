"""What every stage reports, as Prometheus metrics.

The service makes one `PrometheusObserver` and hands it to every stage; the admin server asks it for the page that
a scrape reads. `DECLARED` is the only place that names a metric: the registry, the documentation page
(`docs/reference/metrics.md`) and the closed sets of labels all come from it. A label outside its set counts as
`other`: a Prometheus series costs over 600 bytes for ever, so a label that a sender could invent would be a leak.
It decides nothing and keeps no history; a scrape may render in another thread while the stages count.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

import prometheus_client as prometheus
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from cacheupdater.core.answers import Result
from cacheupdater.core.automaton import Action
from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cacheupdater.core.metrics import Metric

OTHER = "other"
PARTITIONS_MAX = (
    10_000  # a fleet for millions of reads a second has hundreds; each costs ten series where it is owned
)

_IO_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_AGE_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_UNIT_KEYS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)  # a unit never holds more than 200

_ACTIONS = (
    Action.ACCEPT,
    Action.MERGE,
    Action.BLOCK,
    Action.COVER,
    Action.HOLD,
    Action.DECLINE,
    Action.ABSENT,
)
_DECISIONS = (*(action.name.lower() for action in _ACTIONS), "policy")
_KINDS = tuple(kind.name.lower() for kind in Kind)
_RESULTS = (*(result.value for result in Result), "evicted", "error", "late")
_DROPS = ("unknown", "backlog", "aged", "quarantined")
_ERRORS = ("unavailable", "faulty")
_LOST = ("retention", "reset")
_COMMIT_FAILURES = ("rebalance", "unavailable", "denied")
_REJECTS = (
    # packs
    *("garbage", "too_large", "unknown_version"),
    # peers
    *("frame_out_of_range", "partition_out_of_range", "cut_short", "stalled", "too_many_peers", "closed"),
)


class Declared(NamedTuple):
    """One metric: `label` and `reason` are the label names that those two arguments of the port become."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: Literal["", "kind", "namespace", "partition", "source"] = ""
    reason: str = ""
    reasons: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.label, self.reason) if name)


DECLARED: dict[Metric, Declared] = {
    "hints": Declared("counter", "Hints that reached the engine, repeated ones counted.", "kind"),
    "decisions": Declared(
        "counter", "What the automaton decided about hints.", "namespace", "decision", _DECISIONS
    ),
    "refreshes": Declared("counter", "How the refreshes of keys ended.", "namespace", "result", _RESULTS),
    "dropped": Declared("counter", "Hints that were given up.", "namespace", "reason", _DROPS),
    "rows": Declared("counter", "Keys asked from the source; each costs a row of the budget.", "namespace"),
    "statements": Declared("counter", "Statements sent to the source.", "namespace"),
    "errors": Declared("counter", "Loads and writes that failed.", "namespace", "reason", _ERRORS),
    "invalidations": Declared(
        "counter", "Keys removed because their change could not be served.", "namespace"
    ),
    "intake_rejected": Declared(
        "counter",
        "Packs, frames and connections that were refused.",
        reason="reason",
        reasons=_REJECTS,
    ),
    "peers": Declared("gauge", "Hint senders that are connected."),
    "load_seconds": Declared("histogram", "Time of one load.", "namespace", buckets=_IO_SECONDS),
    "write_seconds": Declared("histogram", "Time of one fenced write.", "namespace", buckets=_IO_SECONDS),
    "unit_keys": Declared("histogram", "Keys that were loaded together.", "namespace", buckets=_UNIT_KEYS),
    "age_seconds": Declared(
        "histogram", "From a hint's arrival to its written value.", "namespace", buckets=_AGE_SECONDS
    ),
    "price": Declared("gauge", "Stale reads that the next row of the budget would prevent.", "source"),
    "budget_used": Declared("gauge", "Share of the budget that is spent, lately.", "source"),
    "learned": Declared("gauge", "Keys whose reads and changes are being learned.", "source"),
    "starved": Declared("gauge", "Keys that are not worth a load at this price.", "source"),
    "stale_estimated": Declared("gauge", "Share of reads that were stale, as expected, lately.", "namespace"),
    "stale_measured": Declared(
        "gauge", "Share of reads that were stale, as drawn in 10 minutes.", "namespace"
    ),
    "stale_measured_low": Declared("gauge", "With 95 % confidence it is at least this.", "namespace"),
    "stale_measured_high": Declared("gauge", "With 95 % confidence it is at most this.", "namespace"),
    "over_age": Declared("counter", "Reads of values older than `max_age`.", "namespace"),
    "pending": Declared("gauge", "Keys with a refresh that waits or runs.", "partition"),
    "tracked": Declared("gauge", "Keys that have a seat.", "partition"),
    "scan_offset": Declared("gauge", "Packs before this offset were read.", "partition"),
    "done_offset": Declared("gauge", "Packs before this offset are finished.", "partition"),
    "quarantined": Declared("gauge", "Keys set aside after repeated errors.", "partition"),
    "partitions": Declared("gauge", "Partitions of the topic; it grows when some are added."),
    "lag": Declared(
        "gauge", "Packs on the queue that are not finished, where this process owns them.", "partition"
    ),
    "rebalances": Declared("counter", "How often the group has shared out the partitions."),
    "lost_packs": Declared(
        "counter",
        "Packs that were gone from the queue before they were read; a topic that was made anew counts as one at least.",
        reason="reason",
        reasons=_LOST,
    ),
    "commit_failures": Declared(
        "counter",
        "Commits that came to nothing; after a rebalance that is harmless.",
        reason="reason",
        reasons=_COMMIT_FAILURES,
    ),
}

_Family: TypeAlias = prometheus.Counter | prometheus.Gauge | prometheus.Histogram
_F = TypeVar("_F", prometheus.Counter, prometheus.Gauge, prometheus.Histogram)
_At: TypeAlias = "tuple[Metric, str, str]"  # metric, label, reason, as the port's caller gave them


class PrometheusObserver:
    """`ports.Observer` on a registry of its own, so that several services can live in one process."""

    def __init__(
        self, *, version: str, namespaces: Iterable[str], partitions: int, sources: Iterable[str] = ()
    ) -> None:
        """The namespaces, partitions and sources are the only labels that will ever be shown, besides `other`.

        The partitions grow with the gauge of that name, for a topic does.
        """
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # half of all series, used by nobody
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        self._known: dict[str, Collection[str]] = {
            "": ("",),
            "kind": _KINDS,
            "namespace": frozenset({"", *namespaces}),  # some decisions fall before the namespace is known
            "partition": _numbers(partitions),
            "source": frozenset(sources),
        }
        self._families = {metric: self._declare(metric, row) for metric, row in DECLARED.items()}
        # The port's arguments -> the child. Only arguments from the closed sets get in, so it stays small.
        self._counters: dict[_At, prometheus.Counter] = {}
        self._gauges: dict[_At, prometheus.Gauge] = {}
        self._histograms: dict[_At, prometheus.Histogram] = {}
        build = prometheus.Gauge(
            "cacheupdater_build_info", "What runs here.", ("version", "python"), registry=self.registry
        )
        build.labels(version=version, python=platform.python_version()).set(1)
        self._start_at_zero()

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """Add to a counter: one dict look-up and the driver's increment."""
        child = self._counters.get((metric, label, reason))
        if child is None:
            child = self._child(self._counters, prometheus.Counter, (metric, label, reason))
        child.inc(amount)

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """One observation of a histogram."""
        child = self._histograms.get((metric, label, ""))
        if child is None:
            child = self._child(self._histograms, prometheus.Histogram, (metric, label, ""))
        child.observe(value)

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """The present value of a gauge."""
        child = self._gauges.get((metric, label, ""))
        if child is None:
            child = self._child(self._gauges, prometheus.Gauge, (metric, label, ""))
        child.set(value)
        if metric == "partitions":
            self._grow(int(value))

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The page of a scrape and its content type: OpenMetrics for whoever asks for it, else plain text."""
        # The driver's own negotiation fails on odd version numbers and repeats the asker's words in its answer.
        if "application/openmetrics-text" in accept:
            return openmetrics.generate_latest(self.registry), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]  # the driver has no types there
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _grow(self, partitions: int) -> None:
        """A topic got more of them: these labels are no longer made up. None is ever taken back."""
        if partitions > len(self._known["partition"]):
            self._known["partition"] = _numbers(partitions)

    def _declare(self, metric: Metric, row: Declared) -> _Family:
        name, names = f"cacheupdater_{metric}", row.label_names
        if row.kind == "counter":
            return prometheus.Counter(name, row.help, names, registry=self.registry)
        if row.kind == "gauge":
            return prometheus.Gauge(name, row.help, names, registry=self.registry)
        return prometheus.Histogram(name, row.help, names, registry=self.registry, buckets=row.buckets)

    def _start_at_zero(self) -> None:
        """A counter that appears with its first event hides it from rate(); by namespace it would be too many."""
        for metric, row in DECLARED.items():
            if row.kind == "counter" and row.label != "namespace":
                for label in self._known[row.label]:
                    for reason in row.reasons or ("",):
                        self.count(metric, 0, label=label, reason=reason)

    def _child(self, children: dict[_At, _F], kind: type[_F], at: _At) -> _F:
        """Find or make the child, and remember it if no part of its labels was made up."""
        metric, label, reason = at
        row, family = DECLARED[metric], self._families[metric]
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


def _numbers(partitions: int) -> frozenset[str]:
    return frozenset(map(str, range(min(partitions, PARTITIONS_MAX))))


_HEAD = """\
# Metrics

Generated from `cacheupdater/adapters/observer_prometheus.py`; a test compares. All names begin with `cacheupdater_`.
Labels take their values from the configuration and from the lists below, never from a key; anything else is `other`.

| metric | kind | labels | what |
| --- | --- | --- | --- |
"""


def reference_page() -> str:
    """`docs/reference/metrics.md`, for people."""
    rows = "".join(_reference_row(metric, row) for metric, row in DECLARED.items())
    build = "| `build_info` | gauge | `version`, `python` | What runs here. |\n"
    closed = [(metric, row.reason, row.reasons) for metric, row in DECLARED.items() if row.reason]
    values = "".join(
        f"- `{metric}`, `{name}`: {', '.join(f'`{value}`' for value in known)}\n"
        for metric, name, known in [("hints", "kind", _KINDS), *closed]
    )
    process = "\nBeside these stand the usual `process_*` metrics of this process.\n"
    return f"{_HEAD}{rows}{build}\n## Label values\n\n{values}{process}"


def _reference_row(metric: Metric, row: Declared) -> str:
    name = f"{metric}_total" if row.kind == "counter" else metric
    labels = ", ".join(f"`{label}`" for label in row.label_names)
    buckets = f" Buckets: {', '.join(f'{bound:g}' for bound in row.buckets)}." if row.buckets else ""
    return f"| `{name}` | {row.kind} | {labels} | {row.help}{buckets} |\n"
