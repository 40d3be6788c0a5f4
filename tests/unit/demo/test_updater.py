"""The updater of the demonstration: its configuration, and the costs that are kept over a kill."""

from __future__ import annotations

import signal

import pytest

from cacheupdater.config import load_config
from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.lanes import FIXED, PRICE, SERVED, TOLD
from cacheupdater.demo.opening import Places
from cacheupdater.demo.updater import Cost, Updater

PAGE = """\
cacheupdater_statements_total{namespace="price"} 3.0
cacheupdater_statements_total{namespace="told"} 2.0
cacheupdater_unit_keys_bucket{le="+Inf",namespace="price"} 3.0
cacheupdater_unit_keys_count{namespace="price"} 3.0
cacheupdater_rows_total{namespace="price"} 120.0
"""


class Process:
    """Notes its signals."""

    stdout = None

    def __init__(self):
        self.signals = []

    def send_signal(self, number):
        self.signals.append(number)

    def wait(self, _timeout):
        return 0


@pytest.fixture
def updater(tmp_path):
    return Updater(Places(tmp_path, "redis://127.0.0.1:6379/0", tmp_path / "shop.db"))


def config(tmp_path):
    return load_config(tmp_path / "cacheupdater.yaml", {})


def test_its_configuration_is_valid_and_gives_each_application_a_namespace_and_the_same_budget(
    updater, tmp_path
):
    told = config(tmp_path)
    assert {name: each.budget for name, each in told.sources.items()} == {
        lane.name: updater.budget for lane in SERVED
    }
    assert {name: (each.refresh.policy, each.load.source) for name, each in told.namespaces.items()} == {
        FIXED.name: ("fixed", FIXED.name),
        PRICE.name: ("price", PRICE.name),
        TOLD.name: ("price", TOLD.name),
    }
    assert told.namespaces[FIXED.name].refresh.every == pytest.approx(interval(plan.BUDGET), abs=0.001)
    assert all(told.namespaces[lane.name].pattern.parse(lane.key(7).encode()) == (7,) for lane in SERVED)


def test_another_budget_is_in_the_file_before_the_signal_that_tells_of_it(updater, tmp_path):
    updater._process, updater._listens = process, _ = Process(), True
    updater.spend(60)
    assert {each.budget for each in config(tmp_path).sources.values()} == {60}
    assert process.signals == [signal.SIGHUP]


def test_an_updater_that_does_not_listen_yet_is_not_killed_by_the_signal(updater, tmp_path):
    updater._process = process = Process()
    updater.spend(15)
    assert {each.budget for each in config(tmp_path).sources.values()} == {15}
    assert process.signals == []


def test_its_cost_is_read_from_its_page_and_outlives_it(updater, monkeypatch):
    pages = iter([PAGE, PAGE.replace("120.0", "130.0")])
    monkeypatch.setattr(updater, "_page", lambda: next(pages))
    assert updater.cost() == {
        "fixed": Cost(),
        "price": Cost(rows=120, statements=3),
        "told": Cost(rows=0, statements=2),
    }
    updater.kill()  # looks once more

    def nobody_answers():
        raise ConnectionRefusedError

    monkeypatch.setattr(updater, "_page", nobody_answers)
    assert updater.cost()["price"] == Cost(rows=130, statements=3)
    monkeypatch.setattr(updater, "_page", lambda: PAGE)  # the next one counts from zero
    assert updater.cost()["price"] == Cost(rows=250, statements=6)
    assert updater.cost()["told"] == Cost(rows=0, statements=4)
