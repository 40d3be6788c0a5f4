"""Our histogram shows exactly what the driver's own shows for the same values."""

from __future__ import annotations

import random

import prometheus_client as prometheus
import pytest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from cacheupdater.adapters.observer_prometheus.histogram import Histogram

BOUNDS = (0.001, 0.01, 0.5, 1.0, 20.0)


@pytest.fixture(autouse=True)
def _no_series_of_creation_times():
    prometheus.disable_created_metrics()


def both(*label_names):
    """The same metric of either kind, each in a registry of its own."""
    ours, theirs = prometheus.CollectorRegistry(), prometheus.CollectorRegistry()
    return (
        (ours, Histogram("took", "Time that it took.", label_names, bounds=BOUNDS, registry=ours)),
        (
            theirs,
            prometheus.Histogram("took", "Time that it took.", label_names, buckets=BOUNDS, registry=theirs),
        ),
    )


def pages(registry):
    return prometheus.generate_latest(registry), openmetrics(registry)


@pytest.mark.parametrize("seed", range(5))
def test_values_fall_into_the_same_buckets(seed):
    rng = random.Random(seed)
    values = [*BOUNDS, 0.0, 1e9, *(rng.lognormvariate(-2.0, 4.0) for _ in range(200))]
    (ours, histogram), (theirs, driver) = both()
    for value in values:
        histogram.observe(value)
        driver.observe(value)
    assert pages(ours) == pages(theirs)


def test_series_are_kept_apart_by_their_labels_and_end_one_by_one():
    (ours, histogram), (theirs, driver) = both("namespace")
    for each in (histogram, driver):
        each.labels("a").observe(0.2)
        each.labels("b").observe(3.0)
        each.labels("b").observe(4.0)
    assert pages(ours) == pages(theirs)
    for each in (histogram, driver):
        each.remove("b")
    assert pages(ours) == pages(theirs)
    assert b'namespace="b"' not in pages(ours)[0]


def test_a_metric_without_labels_is_shown_from_the_start_and_one_with_labels_is_not():
    for names in ((), ("namespace",)):
        (ours, _), (theirs, _) = both(*names)
        assert pages(ours) == pages(theirs)


def test_a_name_is_taken_once():
    registry = prometheus.CollectorRegistry()
    Histogram("took", "Time.", (), bounds=BOUNDS, registry=registry)
    with pytest.raises(ValueError, match="took"):
        prometheus.Counter("took_count", "Another.", registry=registry)
