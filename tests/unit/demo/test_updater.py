"""The updater of the demonstration: what it is told to do, and what of its cost survives a kill."""

from __future__ import annotations

from cacheupdater.config import load_config
from cacheupdater.demo import plan
from cacheupdater.demo.lanes import OURS, TOLD
from cacheupdater.demo.updater import Cost, Places, Updater

PAGE = """\
cacheupdater_statements_total{namespace="ours"} 3.0
cacheupdater_statements_total{namespace="inv"} 2.0
cacheupdater_unit_keys_bucket{le="+Inf",namespace="ours"} 3.0
cacheupdater_unit_keys_count{namespace="ours"} 3.0
cacheupdater_rows_total{namespace="ours"} 120.0
"""


def updater(tmp_path):
    return Updater(Places(tmp_path, "redis://127.0.0.1:6379/0", tmp_path / "shop.db"))


def test_its_configuration_is_valid_and_gives_each_application_a_namespace(tmp_path):
    updater(tmp_path)
    config = load_config(tmp_path / "cacheupdater.yaml", {})
    assert {name: each.every for name, each in config.namespaces.items()} == {
        OURS.name: plan.EVERY_S,
        TOLD.name: plan.TOLD_EVERY_S,
    }
    assert all(
        config.namespaces[lane.name].pattern.parse(lane.key(7).encode()) == (7,) for lane in (OURS, TOLD)
    )


def test_its_cost_is_read_from_its_page_and_outlives_it(tmp_path, monkeypatch):
    ours = updater(tmp_path)
    pages = iter([PAGE, PAGE.replace("120.0", "130.0")])
    monkeypatch.setattr(ours, "_page", lambda: next(pages))
    assert ours.cost() == {"ours": Cost(rows=120, statements=3), "inv": Cost(rows=0, statements=2)}
    ours.kill()  # looks once more

    def nobody_answers():
        raise ConnectionRefusedError

    monkeypatch.setattr(ours, "_page", nobody_answers)
    assert ours.cost()["ours"] == Cost(rows=130, statements=3)
    monkeypatch.setattr(ours, "_page", lambda: PAGE)  # the next one counts from zero
    assert ours.cost() == {"ours": Cost(rows=250, statements=6), "inv": Cost(rows=0, statements=4)}
