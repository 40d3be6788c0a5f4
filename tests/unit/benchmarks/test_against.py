"""The comparison of two commits tells a slower change from a noisy machine."""

from __future__ import annotations

import random
import subprocess

import against
import pytest
import run
from against import ROUNDS, Round, verdicts


def rows(ratio, better="lower"):
    return {"P5": {"name": "P5", "ratio": ratio, "better": better}}


def rounds(cost, noise, better="lower"):
    rng = random.Random(1)
    noisy = [[1.0 + rng.uniform(-noise, noise) for _ in range(3)] for _ in range(ROUNDS)]
    return [
        Round(*(rows(4.0 * n * c, better) for n, c in zip(each, (cost, 1.0, cost), strict=True)))
        for each in noisy
    ]


def test_a_change_that_costs_a_tenth_is_slower_on_a_quiet_machine():
    (verdict,) = verdicts(rounds(1.1, 0.005))
    assert verdict.slower
    assert verdict.ratio == pytest.approx(1.1, abs=0.02)


def test_the_same_change_proves_nothing_on_a_machine_whose_noise_is_larger():
    (verdict,) = verdicts(rounds(1.1, 0.4))
    assert verdict.noise > 0.07
    assert not verdict.slower


def test_a_change_that_costs_nothing_is_not_slower():
    assert not any(each.slower for each in verdicts(rounds(1.0, 0.05)))


def test_where_more_is_better_less_is_slower():
    assert verdicts(rounds(0.8, 0.005, "higher"))[0].slower
    assert not verdicts(rounds(1.2, 0.005, "higher"))[0].slower


def test_a_row_that_only_one_tree_has_is_left_out():
    assert verdicts([Round(rows(1.0), {}, rows(1.0))] * ROUNDS) == []


BENCHMARK = '''"""P0: what it costs."""
from cacheupdater import COST
def run():
    return [{{"name": "P0", "ratio": COST, "goal": None, "better": "{better}", "met": True, "method": ""}}]
'''


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """A repository whose last commit costs 1; what is done to its files afterwards is not committed."""
    for folder in ("benchmarks", "cacheupdater", "client"):
        (tmp_path / folder).mkdir()
    (tmp_path / "benchmarks" / "p0_cost.py").write_text(BENCHMARK.format(better="lower"))
    (tmp_path / "cacheupdater" / "__init__.py").write_text("COST = 1.0\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "before"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(run, "TREE", tmp_path)
    monkeypatch.setattr(against.table, "FILE", tmp_path / "build" / "bench.json")
    monkeypatch.setattr(against, "FILE", tmp_path / "build" / "against.json")
    monkeypatch.setattr(against, "ROUNDS", 2)
    return tmp_path


def test_each_tree_is_measured_with_its_own_code_and_a_slower_one_is_told(trees, capfd):
    assert against.main("HEAD", []) == 0
    (trees / "cacheupdater" / "__init__.py").write_text("COST = 2.25\n")
    assert against.main("HEAD", ["p0"]) == 1
    assert "SLOWER" in capfd.readouterr().out


def test_a_benchmark_that_has_changed_is_marked(trees, capfd):
    (trees / "benchmarks" / "p0_cost.py").write_text(
        BENCHMARK.format(better="lower") + "\n# measured otherwise\n"
    )
    assert against.main("HEAD", []) == 0
    assert "the benchmark itself differs" in capfd.readouterr().out


def test_a_benchmark_whose_file_was_renamed_is_compared_by_its_id(trees, capfd):
    (trees / "benchmarks" / "p0_cost.py").rename(trees / "benchmarks" / "cost.py")
    assert against.main("HEAD", ["p0"]) == 0
    assert "-- P0 cost\n" in capfd.readouterr().out


def test_benchmarks_are_found_by_id_and_by_file_and_run_in_the_order_of_their_ids():
    tree = run.TREE
    everything = run.scripts(tree, [])
    assert [*everything][:3] == ["F6", "P1", "P2"]
    assert [*everything][-2:] == ["P18", "S"]
    assert (
        run.scripts(tree, ["p5"]) == run.scripts(tree, ["dedup"]) == {"P5": tree / "benchmarks" / "dedup.py"}
    )
    assert run.scripts(tree, ["p"]) == {}


def test_a_commit_that_does_not_exist_is_an_error_that_names_it(trees):
    with pytest.raises(SystemExit, match="AGAINST=nowhere"):
        against.main("nowhere", [])


def test_names_that_no_benchmark_has_are_told(trees, capfd):
    assert against.main("HEAD", ["p77"]) == 2
    assert "nothing was compared" in capfd.readouterr().out
