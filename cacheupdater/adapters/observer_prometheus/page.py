"""Makes the reference page of the metrics for operators, `docs/reference/metrics.md`, from `declared`.

Run as `python -m cacheupdater.adapters.observer_prometheus.page`. A test compares the committed page with the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.observer_prometheus.declared import COLLECTOR, DECLARED, DRAIN, Declared
from cacheupdater.adapters.observer_prometheus.meanings import KINDS
from cacheupdater.core.events import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.core.metrics import Metric

_HEAD = """\
# Metrics

This page is generated from `cacheupdater/adapters/observer_prometheus/declared.py`. All names begin with `cacheupdater_`.
The values of labels come from the configuration and from the lists below, never from a key; any other value is shown as `other`.
A gauge with the label `partition` is shown by the owner of the partition, and ends when another process takes the partition over.
In Kubernetes, Prometheus stores our label `namespace` as `exported_namespace`, unless a monitor says `honorLabels: true`.

| metric | kind | labels | what |
| --- | --- | --- | --- |
"""
_BUILD = "| `build_info` | gauge | `version`, `python` | What runs here. |\n"
_WORKERS = "| `worker_restarts_total` | counter | `worker` | With `run --workers`: how often this worker was started again. All other metrics have the label `worker` too, then. |\n"
_AUTOMATON = "Decisions and results have the names of [the automaton](../automaton.md).\n"
_COLLECTOR = """
## Metrics of a collector

`cacheupdater collect` has these metrics, and no others. An updater that collects has them beside its own. Its `dropped_total` has
the reasons of both; what its collector drops has no `namespace`.

| metric | kind | labels | what |
| --- | --- | --- | --- |
"""
_DRAIN = """
## Metrics of a drain

`cacheupdater collect --drain` has these metrics, and no others. Those of partitions are about the old queue.

| metric | kind | labels | what |
| --- | --- | --- | --- |
"""
_TAIL = "\nBesides these, there are the usual `process_*` metrics of this process.\n"


def reference_page() -> str:
    """The page, as Markdown."""
    rows = "".join(_row(metric, declared) for metric, declared in DECLARED.items())
    closed = [(f"{metric}_total", row.reason, row.reasons) for metric, row in DECLARED.items() if row.reason]
    labels: Sequence[tuple[str, str, Mapping[str, str]]]
    labels = [("hints_total", "kind", KINDS), *closed, ("troubles", "event", EVENTS)]
    values = "".join(_values(metric, name, meanings) for metric, name, meanings in labels)
    collected = "".join(_row(metric, declared) for metric, declared in COLLECTOR.items())
    drops: Sequence[Metric] = ("dropped", "spill_dropped")
    reasons = "".join(
        _values(f"{each}_total", COLLECTOR[each].reason, COLLECTOR[each].reasons) for each in drops
    )
    collector = f"{_COLLECTOR}{collected}{_BUILD}{reasons}"
    drain = _DRAIN + "".join(_row(metric, declared) for metric, declared in DRAIN.items()) + _BUILD
    return (
        f"{_HEAD}{rows}{_BUILD}{_WORKERS}\n## Label values\n\n{_AUTOMATON}{values}{collector}{drain}{_TAIL}"
    )


def _row(metric: Metric, row: Declared) -> str:
    name = f"{metric}_total" if row.kind == "counter" else metric
    labels = ", ".join(f"`{label}`" for label in row.label_names)
    buckets = f" Buckets: {', '.join(f'{bound:g}' for bound in row.buckets)}." if row.buckets else ""
    return f"| `{name}` | {row.kind} | {labels} | {row.help}{buckets} |\n"


def _values(metric: str, label: str, meanings: Mapping[str, str]) -> str:
    rows = "".join(f"| `{value}` | {meaning} |\n" for value, meaning in meanings.items())
    return f"\n| `{metric}`, `{label}` | |\n| --- | --- |\n{rows}"


if __name__ == "__main__":
    print(reference_page(), end="")  # noqa: T201  the page is this module's output when it is run
