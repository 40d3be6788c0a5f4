"""A scrape after the stages have reported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from cacheupdater.adapters.observer_prometheus import PrometheusObserver
from cacheupdater.adapters.observer_prometheus.declared import BOTH, COLLECTOR, DECLARED, DRAIN
from cacheupdater.adapters.observer_prometheus.page import reference_page
from cacheupdater.core.metrics import Metric

ROOT = Path(__file__).parents[3]


@pytest.fixture
def observer():
    return PrometheusObserver(
        version="1.2.3", namespaces=["product", "basket"], partitions=2, sources=["main"]
    )


def value(observer, name, **labels):
    """What a scrape shows for `name`."""
    return observer.registry.get_sample_value(f"cacheupdater_{name}", labels)


def series(observer):
    return len(observer.expose("")[0].splitlines())


def test_every_metric_of_the_port_is_declared():
    assert set(DECLARED) | set(COLLECTOR) | set(DRAIN) == set(get_args(Metric))


def test_count_adds_up_by_namespace_and_reason(observer):
    observer.count("decisions", 3, label="product", reason="hold")
    observer.count("decisions", 2, label="product", reason="hold")
    observer.count("decisions", 1, label="basket", reason="hold")
    assert value(observer, "decisions_total", namespace="product", decision="hold") == 5
    assert value(observer, "decisions_total", namespace="basket", decision="hold") == 1


def test_level_shows_the_last_value(observer):
    observer.level("pending", 7, label="1")
    observer.level("pending", 4, label="1")
    observer.level("peers", 2)
    assert value(observer, "pending", partition="1") == 4
    assert value(observer, "peers") == 2


def test_partitions_that_are_added_get_labels_of_their_own(observer):
    observer.level("lag", 5, label="2")
    assert value(observer, "lag", partition="other") == 5
    observer.level("partitions", 3)
    observer.level("lag", 7, label="2")
    observer.level("lag", 9, label="3")
    assert value(observer, "partitions") == 3
    assert value(observer, "lag", partition="2") == 7
    assert value(observer, "lag", partition="other") == 9


def test_partitions_are_never_taken_back_and_never_without_bound(observer):
    observer.level("partitions", 1)
    observer.level("pending", 1, label="1")
    assert value(observer, "pending", partition="1") == 1
    observer.level("partitions", 10**9)
    observer.level("pending", 1, label=str(10**9 - 1))
    assert value(observer, "pending", partition="other") == 1


def test_a_level_that_ends_leaves_no_series_and_begins_anew_if_it_comes_back(observer):
    for partition in ("0", "1"):
        observer.level("pending", 7, label=partition)
    observer.end("pending", label="1")
    observer.end("tracked", label="1")  # nobody has shown it
    assert value(observer, "pending", partition="1") is None
    assert value(observer, "pending", partition="0") == 7
    assert value(observer, "tracked", partition="1") is None
    observer.level("pending", 3, label="1")
    assert value(observer, "pending", partition="1") == 3


def test_a_level_of_a_label_that_nobody_declared_is_nothing_once_it_ends(observer):
    observer.level("pending", 7, label="1000000")
    observer.end("pending", label="1000000")
    assert value(observer, "pending", partition="other") == 0


def test_a_feed_that_a_reload_removes_leaves_no_series_on_which_an_alert_could_wait():
    fed = PrometheusObserver(
        version="1", namespaces=[], partitions=1, sources=["main", "plain"], feeds=["main"]
    )
    fed.level("feed_reads", 1.0, label="main")
    assert value(fed, "feed_changes_total", source="main") == 0
    assert value(fed, "feed_changes_total", source="plain") is None
    fed.show([], ["main", "plain"], [])
    fed.level("source_up", 1.0, label="main")
    assert value(fed, "feed_reads", source="main") is None
    assert value(fed, "feed_changes_total", source="main") is None
    assert value(fed, "source_up", source="main") == 1


def test_a_source_has_its_own_levels_and_an_unknown_one_is_other(observer):
    observer.level("price", 0.95, label="main")
    observer.level("starved", 7, label="made up")
    assert value(observer, "price", source="main") == 0.95
    assert value(observer, "starved", source="other") == 7


def test_measure_falls_into_the_declared_buckets(observer):
    observer.measure("hint_to_write_seconds", 0.3, label="product")
    observer.measure("hint_to_write_seconds", 3601, label="product")
    assert value(observer, "hint_to_write_seconds_bucket", namespace="product", le="0.25") == 0
    assert value(observer, "hint_to_write_seconds_bucket", namespace="product", le="0.5") == 1
    assert value(observer, "hint_to_write_seconds_bucket", namespace="product", le="3600.0") == 1
    assert value(observer, "hint_to_write_seconds_count", namespace="product") == 2


def test_counters_without_namespace_are_shown_before_anything_happened(observer):
    assert value(observer, "intake_rejected_total", reason="garbage") == 0
    assert value(observer, "hints_total", kind="change") == 0


def test_labels_that_nobody_declared_count_as_other_and_cost_one_series(observer):
    observer.count("dropped", 1, label="made up", reason="made up")
    before = series(observer)
    for n in range(10_000):
        observer.count("dropped", 1, label=f"key:{n}", reason=f"why {n}")
    assert value(observer, "dropped_total", namespace="other", reason="other") == 10_001
    assert series(observer) == before
    assert len(observer._counters) < 100


def test_an_unknown_reason_does_not_hide_a_known_namespace(observer):
    observer.count("errors", 1, label="product", reason="cosmic rays")
    assert value(observer, "errors_total", namespace="product", reason="other") == 1


def test_each_kind_of_metric_stays_within_its_closed_sets(observer):
    for n in range(100):
        observer.level("tracked", 1, label=f"{n}")
        observer.measure("load_seconds", 1, label=f"{n}")
        observer.count("hints", 1, label=f"{n}")
    assert value(observer, "tracked", partition="other") == 1
    assert value(observer, "tracked", partition="7") is None
    assert value(observer, "load_seconds_count", namespace="other") == 100
    assert value(observer, "hints_total", kind="other") == 100


def test_a_metric_used_as_another_kind_is_refused(observer):
    with pytest.raises(TypeError, match="peers is a gauge"):
        observer.count("peers", 1)


def test_two_observers_in_one_process_do_not_mix():
    first, second = (PrometheusObserver(version="1", namespaces=["a"], partitions=1) for _ in range(2))
    first.count("rows", 5, label="a")
    assert value(second, "rows_total", namespace="a") is None


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain", parse_text),
        ("*/*", "text/plain", parse_text),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            parse_openmetrics,
        ),
        ("application/openmetrics-text; version=nonsense", "application/openmetrics-text", parse_openmetrics),
    ],
)
def test_a_scrape_gets_the_format_that_it_asks_for(observer, accept, content_type, parse):
    observer.count("rows", 5, label="product")
    observer.measure("load_seconds", 0.01, label="product")
    page, told = observer.expose(accept)
    assert told.startswith(content_type)
    families = {family.name: family for family in parse(page.decode())}
    build = families["cacheupdater_build_info"].samples[0].labels
    assert build["version"] == "1.2.3"
    assert families["cacheupdater_load_seconds"].type == "histogram"
    assert "process_resident_memory_bytes" in families
    assert not [name for name in families if name.endswith("_created")]


def test_names_follow_the_conventions_of_prometheus():
    for metric, row in [*DECLARED.items(), *COLLECTOR.items(), *DRAIN.items()]:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric)
        assert (row.kind == "histogram") == bool(row.buckets)
        assert list(row.buckets) == sorted(set(row.buckets))
        assert not metric.endswith("_total")
        assert row.help.endswith(".")


def test_every_reason_that_the_code_reports_is_declared():
    """Else it would silently show as `other`."""
    said = re.compile(r'\.(?:add|count)\(\s*"(\w+)",[^\n]*?reason="(\w+)"')
    folders = [ROOT / "cacheupdater" / name for name in ("core", "pipeline", "adapters")]
    found = [
        pair for folder in folders for file in folder.rglob("*.py") for pair in said.findall(file.read_text())
    ]
    assert found
    assert [(metric, reason) for metric, reason in found if reason not in DECLARED[metric].reasons] == []


def test_the_reference_page_is_current():
    page = ROOT / "docs" / "reference" / "metrics.md"
    assert page.read_text() == reference_page(), (
        f"write it anew: python -m cacheupdater.adapters.observer_prometheus.page > {page.relative_to(ROOT)}"
    )


def test_metrics_that_a_reload_brings_are_shown_from_zero_and_keep_what_was_counted(observer):
    observer.count("dropped", 2, label="product", reason="aged")
    observer.add(BOTH)
    observer.add(BOTH)
    observer.count("forwarded", 3, label="change")
    assert value(observer, "forwarded_total", kind="change") == 3.0
    assert value(observer, "forwarded_total", kind="miss") == 0.0
    assert value(observer, "dropped_total", namespace="product", reason="aged") == 2.0
