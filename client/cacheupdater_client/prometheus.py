"""The counts of this process as metrics, for the registry of an application that uses prometheus-client.

    from prometheus_client import REGISTRY
    from cacheupdater_client.prometheus import ClientCollector

    REGISTRY.register(ClientCollector(cache))

The registry calls `collect` at each scrape. It reads the counts that the client keeps anyway, so a metric costs a read
nothing. Nothing of the client imports this module, which needs prometheus-client. A collector lives as long as its registry
and holds its caches. It counts nothing itself, and it knows one process: see `docs/reference/client.md` for several.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.sender import sender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

PREFIX = "cacheupdater_client_"
DROPS = ("undeclared", "full", "refused", "closed", "oversized", "unencodable")
"""Reasons that begin at 0: a rate needs a sample before the first drop."""

HELP = {
    "hits": "Keys that Redis had.",
    "misses": "Keys that Redis did not have.",
    "loads": "Calls of the loader.",
    "waits": "Keys that somebody else was loading.",
    "not_filled": "Keys that no updater has filled while their reader waited.",
    "absent": "Keys whose row does not exist.",
    "fills": "Values that were loaded and are in Redis.",
    "refilled": "Keys whose values were too old for the caller, or could not be read.",
    "unfilled": "Values that were loaded and did not land in Redis.",
    "foreign": "Of these: Redis holds a value that the cache did not write.",
    "failed": "Loads that raised.",
    "served_old": "Values older than refresh_after that readers got while a load was due.",
}
"""What the fields of `Counts` say, by name. A field that is missing here is shown under its own name all the same."""

AGE = ("aged", "age_ms")  # the fields that one summary shows: how many ages are known, and their sum


class Counting(Protocol):
    """A `Cache`, sync or asyncio."""

    def stats(self) -> Mapping[str, Counts]: ...


class ClientCollector(Collector):
    """The hints of this process, and the reads of the declared values of these caches."""

    def __init__(self, *caches: Counting) -> None:
        self._caches = caches

    def describe(self) -> Iterator[Metric]:
        """As `collect`: a registry refuses a second collector of the same names."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """What a scrape shows."""
        yield from _hints()
        yield from _values(_summed(self._caches))


def _hints() -> Iterator[Metric]:
    stats = sender.stats()
    # not `emitted`: a hint that the sender moves meanwhile counts twice there, and a counter must not fall
    yield CounterMetricFamily(
        f"{PREFIX}hints_delivered", "Hints that an updater or a topic has taken.", value=stats["delivered"]
    )
    yield GaugeMetricFamily(
        f"{PREFIX}hints_waiting", "Hints that are neither delivered nor dropped.", value=stats["waiting"]
    )
    dropped = CounterMetricFamily(f"{PREFIX}hints_dropped", "Hints that were given up.", labels=["reason"])
    for reason, hints in {**dict.fromkeys(DROPS, 0), **stats["dropped"]}.items():
        dropped.add_metric([reason], hints)
    yield dropped
    yield CounterMetricFamily(
        f"{PREFIX}faults", "Commands that could not be observed.", value=stats["faults"]
    )
    connected = GaugeMetricFamily(
        f"{PREFIX}connected", "1 while the target takes hints, else 0.", labels=["target"]
    )
    for target, each in stats["targets"].items():
        connected.add_metric([target], float(each["connected"]))
    yield connected


def _summed(caches: tuple[Counting, ...]) -> Mapping[str, Counter[str]]:
    """The counts by declared value. Caches that declare a value of the same name share its series."""
    sums: dict[str, Counter[str]] = {}
    for cache in caches:
        for name, counts in cache.stats().items():
            into = sums.setdefault(name, Counter())
            for each in fields(counts):
                into[each.name] += getattr(counts, each.name)
    return sums


def _values(sums: Mapping[str, Counter[str]]) -> Iterator[Metric]:
    for each in fields(Counts):
        if each.name in AGE:
            continue
        family = CounterMetricFamily(
            f"{PREFIX}{each.name}", HELP.get(each.name, f"The count `{each.name}`."), labels=["value"]
        )
        for name, counts in sums.items():
            family.add_metric([name], counts[each.name])
        yield family
    ages = SummaryMetricFamily(
        f"{PREFIX}age_at_read_seconds", "Ages of values when they were read, if known.", labels=["value"]
    )
    for name, counts in sums.items():
        ages.add_metric([name], count_value=counts["aged"], sum_value=counts["age_ms"] / 1000)
    yield ages
