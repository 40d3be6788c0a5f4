"""The whole simulator in its quick form: the shipped policy in tiny worlds, the table, the goals, the page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from freshness import goals, ours, report, run, worlds
from freshness.cells import OURS, UPDATED_AT, Cell, Job, measure
from freshness.truth import judge
from suite.machine import apart

pytestmark = pytest.mark.campaign

TINY = worlds.SETTINGS["A"].scaled(keys=50, reads=50.0, changes=2.0, seconds=60.0, warm=20.0)


# two cells of all policies take as long as a campaign of schedules; what else is here takes moments
of_cells = pytest.mark.prove


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    nowhere = tmp_path_factory.mktemp("no-traces")
    return [apart(measure, Job(name, 8.0, 1, nowhere, quick=True)) for name in "AE"]


@of_cells
def test_the_shipped_policy_is_fresher_than_an_interval_and_keeps_its_budget(cells):
    for cell in cells:
        mine, capped = cell.policies[OURS], cell.policies["capped"]
        assert mine.stale < capped.stale
        assert mine.blocked == 0
        assert mine.rows == pytest.approx(cell.budget, rel=0.05)
        assert cell.window_use() <= 1
        assert cell.bounds["clairvoyant"] < cell.bounds["optimum, run"] < mine.stale
    assert cells[1].policies[UPDATED_AT].stale < cells[1].policies[OURS].stale


@of_cells
def test_every_goal_that_the_cells_speak_of_has_its_row(cells):
    names = [each["name"] for each in goals.rows(cells)]
    optimum = ["F3-ABCDH", "F3-ABCDH-gap", "F3-E", "F3-E-updated_at"]
    assert names == ["F1", "F1-worst", "F1-age", "F2", *optimum, "F4"]


@of_cells
def test_the_page_says_what_was_measured(cells, tmp_path):
    page = report.write(cells, goals.rows(cells), tmp_path / "page.md")
    text = page.read_text()
    assert f"**{100 * cells[0].policies[OURS].stale:.2f} / " in text
    assert "plots/made.svg" in text
    plot = (tmp_path / "plots" / "made.svg").read_bytes()
    report.write(cells, goals.rows(cells), tmp_path / "page.md")
    assert (tmp_path / "plots" / "made.svg").read_bytes() == plot


@of_cells
def test_cells_survive_being_kept(cells):
    again = [Cell.of(json.loads(json.dumps(cell.plain()))) for cell in cells]
    assert goals.rows(again) == goals.rows(cells)


@pytest.mark.prove
def test_hints_make_nearly_every_read_fresh():
    world = worlds.make(TINY, 1)
    blind = judge(world, ours.run(world, ours.Conditions(4.0, 4.0)))
    hinted = judge(world, ours.run(world, ours.Conditions(4.0, 4.0, hinted=1.0)))
    assert hinted.stale < 0.25 * blind.stale


def test_a_run_can_be_had_again():
    world = worlds.make(TINY, 1)
    one, two = (ours.run(world, ours.Conditions(4.0, 4.0)) for _ in range(2))
    assert np.array_equal(one.at.times, two.at.times)


def test_a_run_over_its_budget_is_refused():
    world = worlds.make(TINY, 1)
    drive = ours.Drive(world, ours.Conditions(4.0, 4.0))
    drive.log.append((np.full(9, 1.0), np.zeros(9, np.int32)))
    with pytest.raises(AssertionError):
        drive.refreshes()


@pytest.mark.prove
def test_a_reader_who_finds_nothing_waits_and_is_fresh():
    world = worlds.make(TINY, 1)
    drive = ours.Drive(world, ours.Conditions(4.0, 4.0))
    drive.absent[:] = drive.any_absent = True
    drive.run()
    found = drive.refreshes()
    first = {int(key): at for at, key in zip(world.times[::-1], world.ids[::-1], strict=True)}
    assert {key: np.nextafter(at, 0) for key, at in first.items()} == {key: at for at, key in drive.own}
    assert judge(world, found).rows == pytest.approx(4.0, rel=0.1)  # what readers load is not the budget's


@of_cells
def test_without_traces_the_run_says_what_it_leaves_out(tmp_path, capsys):
    assert run.main(["--quick", "--only", "A", "--traces", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "half-real rows (F2-semi, F5) are left out" in said
    assert "ours" in said
    assert "F1-age" in said
    assert "F5" not in said.split("left out")[1]
