"""The scaling page: every figure comes from the files of a run, the arithmetic holds, and the page is not edited by hand."""

from __future__ import annotations

import json
import re

import pytest
import scaling_page
from scaling_page import BUSY, READS, ROWS, Missing, Model, fleet

NS = {500: 400.0, 60: 450.0, 10: 800.0}
STORED = {500: 6.0, 60: 8.0, 10: 20.0}


def updater(processes, partitions, pack):
    return {
        "processes": processes,
        "partitions": partitions,
        "pack": pack,
        "ns": NS[pack],
        "to_first": NS[pack] / NS[500],
        "to_one": 1.0 + processes / 100,
        "stored": STORED[pack],
    }


def keys(count, ns):
    return {
        "tracked": count,
        "learned": count,
        "universe": count,
        "bytes": 150.0,
        "ns": ns,
        "longest_ms": 9.0,
    }


@pytest.fixture
def found():
    setups = [(1, partitions, pack) for partitions in (12, 96) for pack in NS]
    setups += [(processes, *rest) for processes in (2, 4) for rest in ((12, 500), (96, 60))]
    counts = {"100": 90, "1000": 800, "10000": 6_000, "100000": 40_000}
    return {
        "updaters": [updater(*setup) for setup in setups],
        "rounds": 5,
        "idle_ms": {"12": 10.0, "96": 31.0},
        "base_rss": 100 * 2**20,
        "keys": {
            "ratio": 1.2,
            "small": keys(1_000_000, 500.0),
            "big": keys(10_000_000, 600.0),
            "slices": 10,
        },
        "price": {"fits": keys(1_000_000, 900.0), "capped": keys(1_000_000, 1_100.0)},
        "distinct": {"1000000": counts, "10000000": counts},
        "cores": 2,
        "load": [1.0, 1.5],
    }


@pytest.fixture
def rows():
    said = {
        "P1-sync": "",
        "P2": "x / a hint with delivery (200 ns) at",
        "P4-zipf": "",
        "P4-uniform": "",
        "P6-d1": "CPU of the bare loop (75 k keys/s by CPU) / whole updater (50 k keys/s by CPU, 40 k by wall)",
        "P10-hint": "dearest / cheapest hint: 8.0 us with 100, 9.0 us with 1,000, 10.0 us with 10,000",
        "P10-unit": "dearest / cheapest unit: 40.0 us with 100, 45.0 us with 1,000, 50.0 us with 10,000",
    }
    return {
        name: {"name": name, "ratio": 1.5, "goal": 2.0, "method": method} for name, method in said.items()
    }


def written(tmp_path, found, rows):
    figures, bench = tmp_path / "scaling.json", tmp_path / "bench.json"
    figures.write_text(json.dumps(found))
    bench.write_text(json.dumps(list(rows.values())))
    return scaling_page.write(tmp_path / "page.md", figures, bench).read_text()


def test_a_fleet_is_computed_from_what_was_measured(found, rows):
    model = Model(found, rows)
    need = fleet(model)
    sent = model.traffic(scaling_page.CLIENT_READS, need.partitions)
    assert need.keys == pytest.approx(READS * sent.share)
    assert need.hint_cores == pytest.approx(need.keys * model.ns(sent.pack) / 1e9)
    assert need.refresh_cores == pytest.approx(ROWS * 20e-6)
    assert need.processes - 1 < (need.hint_cores + need.refresh_cores) / BUSY <= need.processes
    assert need.processes <= need.partitions


def test_a_fleet_grows_with_the_cost_of_a_hint(found, rows):
    before = fleet(Model(found, rows)).processes
    for each in found["updaters"]:
        each["ns"] *= 3
    assert fleet(Model(found, rows)).processes > 2 * before


def test_small_clients_wait_for_company_and_large_ones_do_not(found, rows):
    model = Model(found, rows)
    small, large = model.traffic(1_000, 96), model.traffic(100_000, 12)
    assert small.every == pytest.approx(0.5)
    assert large.every == pytest.approx(0.1)
    assert small.pack < 10 < large.pack


def test_costs_between_the_measured_sizes_lie_between_them(found, rows):
    model = Model(found, rows)
    for pack, ns in NS.items():
        assert model.ns(pack) == pytest.approx(ns)
    assert NS[500] < model.ns(200) < NS[60] < model.ns(30) < NS[10]
    assert model.ns(1_000) == pytest.approx(NS[500])
    assert model.ns(5) == pytest.approx(2 * NS[10])


def test_the_page_names_what_has_to_be_measured_first(found, rows, tmp_path):
    del rows["P2"]
    with pytest.raises(Missing, match="no P2"):
        written(tmp_path, found, rows)


def without_figures(text):
    """What does not depend on a run; a figure keeps no letter, so neither do its unit's prefix and its width."""
    return re.sub(r"[\d.,]+(e[+-]?\d+)?( M)?", "#", text)


def test_the_page_in_the_documentation_is_the_written_one(found, rows, tmp_path):
    page = scaling_page.PAGE.read_text()
    assert without_figures(page) == without_figures(written(tmp_path, found, rows))
