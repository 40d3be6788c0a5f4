"""`make compat` itself: it finds a test that differs, forgives one that wavers, and really puts our classes in place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest
from compat import page
from compat.judging import ROUNDS, judged, kind_of, rows_of
from compat.sides import Choice, Outcomes
from compat.suite import LINES, ROOT, requirements

SUITE = """
import pytest, redis, redis.asyncio, redis.cluster

def test_passes(): pass
def test_fails(): assert False
def test_skips(): pytest.skip("no server")
@pytest.fixture
def leaky():
    yield
    raise OSError("it passes, and fails as it is taken down")
def test_leaks(leaky): pass
@pytest.mark.parametrize("thing", [1, 2], ids=["<object at 0x7f01>", "a b"])
def test_named(thing): pass
def test_whose(): assert redis.Redis.__module__.startswith("cacheupdater_client")
def test_whose_cluster(): assert redis.cluster.RedisCluster.__module__ == "redis.cluster"
def test_reads():
    with pytest.raises(redis.ConnectionError):
        redis.Redis(port=1, retry=None).set("a", 1)
"""


@pytest.fixture
def run(tmp_path):
    """Runs the little suite with these options; returns the outcomes."""
    (tmp_path / "test_little.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "compat.recording", "--outcomes=outcomes", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")}  # noqa: TID251  handed on to a child
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
        lines = map(json.loads, (tmp_path / "outcomes").read_text().splitlines())
        return {name.partition("::")[2]: outcome for name, outcome, _ in lines}

    return run


def test_each_test_is_recorded_with_its_worst_outcome(run):
    found = run()
    assert found["test_passes"] == "passed"
    assert found["test_fails"] == found["test_leaks"] == found["test_whose"] == "failed"
    assert found["test_skips"] == "skipped"
    assert found["test_named[<object at 0x>]"] == "passed"


def test_chosen_tests_run_alone_and_one_that_is_not_there_does_no_harm(run, tmp_path):
    chosen = ["test_named[<object at 0x>]", "test_named[a b]", "test_gone"]
    (tmp_path / "chosen").write_text("\n".join(f"test_little.py::{name}" for name in chosen))
    assert run("--chosen=chosen") == dict.fromkeys(chosen[:2], "passed")


def test_suite_gets_our_classes_under_redis_pys_names_and_they_leave_hints(run, tmp_path):
    found = run("-p", "compat.replacing", "--replaces=single", "--hints=hints")
    assert found["test_whose"] == found["test_whose_cluster"] == found["test_reads"] == "passed"
    assert json.loads((tmp_path / "hints").read_text()) == {"emitted": 1, "delivered": 1, "faults": 0}
    found = run("-p", "compat.replacing", "--replaces=cluster", "--hints=hints")
    assert found["test_whose"] == found["test_whose_cluster"] == "failed"


def sides(stock, ours):
    return {"stock": Outcomes(stock, {}), "ours": Outcomes(ours, {"emitted": 1, "faults": 0})}


def never(names):
    raise AssertionError(f"nothing differed, and yet {names} ran again")


def test_tests_that_agree_are_counted_and_do_not_run_again():
    outcomes = {"t::a": "passed", "t::b": "failed", "t::c": "skipped"}
    verdict = judged(sides(outcomes, dict(outcomes)), never)
    assert verdict.same == outcomes
    assert not verdict.doubts


@pytest.mark.parametrize(
    ("ours", "again", "differs"),
    [
        ("failed", [("passed", "failed")] * ROUNDS, True),
        ("skipped", [("passed", "skipped")] * ROUNDS, True),
        ("failed", [("passed", "passed")] * ROUNDS, False),  # the moment
        (
            "failed",
            [("failed", "failed"), ("passed", "passed"), ("passed", "failed")],
            False,
        ),  # stock fails too
        ("failed", [("passed", "passed"), ("passed", "failed"), ("passed", "passed")], True),
        (None, [("passed", None)] * ROUNDS, True),  # it is not there
    ],
)
def test_test_differs_if_it_shows_again_what_stock_never_shows(ours, again, differs):
    asked = []

    def played(stock, mine):
        return sides({"t::same": "passed", "t::odd": stock}, {"t::odd": mine} if mine else {})

    def run_again(names):
        asked.append(names)
        return played(*again[len(asked) - 1])

    first = played("passed", ours)
    first["ours"].by_test["t::same"] = "passed"
    verdict = judged(first, run_again)
    assert asked == [["t::odd"]] * ROUNDS
    assert [each.name for each in verdict.different] == ["t::odd"] * differs
    assert [each.name for each in verdict.wavering] == ["t::odd"] * (not differs)
    [row] = rows_of(verdict, "standalone")
    assert row == ("sync", 1, 0, 0, int(not differs), int(differs))


@pytest.mark.parametrize(
    ("name", "topology", "kind"),
    [
        ("tests/test_lock.py::test_pipeline", "standalone", "sync"),
        ("tests/test_asyncio/test_lock.py::TestLock::test_x[a::b]", "standalone", "asyncio"),
        ("tests/test_asyncio/test_pipeline.py::test_x", "standalone", "pipelines"),
        ("tests/test_asyncio/test_pipeline.py::test_x", "cluster", "cluster"),
    ],
)
def test_kind_of_a_test_is_seen_from_its_file_and_its_run(name, topology, kind):
    assert kind_of(name, topology) == kind


def test_tests_that_run_again_are_found_by_their_files():
    names = ["tests/a.py::t[x]", "tests/a.py::u", "tests/b.py::T::v"]
    assert Choice.of(names).paths == ["tests/a.py", "tests/b.py"]


def test_page_says_what_passed_what_wavered_and_what_failed_on_both_sides():
    outcomes = {f"tests/a.py::t{each}": "passed" for each in range(1_500)}
    first = sides(
        outcomes | {"b.py::f": "failed"}, outcomes | {"b.py::f": "failed", "tests/a.py::t7": "failed"}
    )
    verdict = judged(first, lambda names: sides(*[dict.fromkeys(names, "passed")] * 2))
    part = page.Part("standalone", rows_of(verdict, "standalone"), verdict, {"emitted": 7, "faults": 0})
    text = page.text_of([page.Result("8", "8.1.0", "12ab", [part])])
    assert "There is no result yet of redis-py 6.2, 7." in text
    assert "| 8.1.0 | 12ab | sync | 1,499 | 1 | 0 | 1 | 0 |" in text
    assert (
        "| 8.1.0 | standalone | `tests/a.py::t7` | passed, passed, passed, passed | failed, passed," in text
    )
    assert "| 8.1.0 | standalone | `b.py` | 1 |" in text


def test_versions_are_those_that_the_project_claims():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [claim] = [each for each in project["dependencies"] if each.startswith("redis")]
    assert claim == f"redis>={LINES[0]},<{int(LINES[-1]) + 1}"
    majors = [int(line.partition(".")[0]) for line in LINES]
    assert majors == [*range(majors[0], majors[-1] + 1)]


def test_suite_is_installed_with_its_requirements_and_without_its_developers_tools():
    text = (
        "build\nbuild==1.2 ; python_version < '3'\n\npytest-asyncio>=0.24\npytest-cov\nruff==0.9\nnumpy>=1\n"
    )
    assert requirements(text) == ["pytest-asyncio>=0.24", "numpy>=1"]
