"""`make compat` itself: it finds a test that differs, forgives one that wavers, and really puts our classes in place."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import ExitStack

import pytest
from compat import page, sides
from compat import run as whole
from compat.judging import FAR_MORE, ROUNDS, WHOLE_FILES, judged, kind_of, rows_of
from compat.recording import outcomes_in
from compat.sides import OURS, STANDALONE, Choice, Outcomes, Run
from compat.suite import LINES, ROOT, Suite, requirements
from live.updater_process import eventually

from cacheupdater.local.ports import free_port
from cacheupdater.local.redis_cluster import RedisCluster

SUITE = """
import tracemalloc
import pytest, redis, redis.asyncio, redis.cluster

@pytest.fixture(scope="session", autouse=True)
def tracing():
    tracemalloc.start()
    yield
    tracemalloc.stop()
def test_traces(): assert tracemalloc.is_tracing()

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
        found = outcomes_in(tmp_path / "outcomes")
        (tmp_path / "outcomes").unlink()
        return {name.partition("::")[2]: outcome for name, outcome in found.items()}

    return run


def test_each_test_is_recorded_with_its_worst_outcome(run):
    found = run()
    assert found["test_passes"] == "passed"
    assert found["test_fails"] == found["test_leaks"] == found["test_whose"] == "failed"
    assert found["test_skips"] == "skipped"
    assert found["test_named[<object at 0x>]"] == "passed"


def test_suite_does_not_trace_allocations_which_would_take_ten_times_as_long(run):
    assert run()["test_traces"] == "failed"


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


DEADLY = """
import os, signal, threading, redis

def test_first(): leave_a_hint()
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_hangs(): threading.Event().wait()
def test_ends_pytest(): os._exit(0)
def test_last(): leave_a_hint()
def test_fails_pytest(): os._exit(3)

def leave_a_hint():
    try:
        redis.Redis(port=1, retry=None).set("a", 1)
    except redis.ConnectionError:
        pass
"""


@pytest.mark.prove
def test_tests_after_one_in_which_pytest_dies_hangs_or_ends_run_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sides, "STUCK_S", 5)
    monkeypatch.setattr(sides, "_servers", lambda *_, usual: [])
    suite = Suite("8", "8.1.0", tmp_path / "suite", sys.executable)
    (suite.folder / "tests").mkdir(parents=True)
    (suite.folder / "tests" / "test_deadly.py").write_text(DEADLY)
    (suite.folder / "pytest.ini").write_text("[pytest]\n")
    with Run(suite, STANDALONE, OURS, Choice()) as run:
        eventually(lambda: not run.goes_on())
        outcomes, hints = run.result()
    assert {name.partition("::")[2]: outcome for name, outcome in outcomes.items()} == {
        "test_first": "passed",
        "test_dies": "unfinished",
        "test_hangs": "unfinished",
        "test_ends_pytest": "unfinished",
        "test_last": "passed",
        "test_fails_pytest": "unfinished",
    }
    assert hints["emitted"] == 2
    assert "in test_hangs" in (tmp_path / f"standalone-{OURS}.log").read_text()  # where it hung


def test_servers_are_where_the_suite_looks_for_them_as_far_as_the_ports_are_free(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(sides, "PORT", free_port())
        monkeypatch.setattr(sides, "SECOND_PORT", taken.getsockname()[1])
        with ExitStack() as stack:
            url, sentinels = sides._servers(stack, STANDALONE, usual=True)
            assert url == f"--redis-url=redis://localhost:{sides.PORT}/0"
            assert sentinels.count("localhost") == 3
        with ExitStack() as stack:
            url, _ = sides._servers(stack, STANDALONE, usual=False)
            assert not url.endswith(f":{sides.PORT}/0")


def test_node_of_a_cluster_starts_on_the_port_that_it_is_given():
    with RedisCluster(primaries=1, replicas=0) as first:
        port = first.nodes[0].port  # free once more, with its bus port
    second = RedisCluster(primaries=1, replicas=0)
    second.nodes[0].port = port
    with second:
        assert second.url.endswith(f":{port}")


def played(stock, ours):
    return {"stock": Outcomes(stock, Counter()), "ours": Outcomes(ours, Counter(emitted=1, faults=0))}


def never(names, whole):
    raise AssertionError(f"nothing differed, and yet {names} ran again")


def test_tests_that_agree_are_counted_and_do_not_run_again():
    outcomes = {"t::a": "passed", "t::b": "failed", "t::c": "skipped"}
    verdict = judged(played(outcomes, dict(outcomes)), never)
    assert verdict.same == outcomes
    assert not verdict.doubts


def test_test_that_fails_on_both_sides_counts_as_it_ends_on_the_ports_that_the_suite_expects(monkeypatch):
    """Else two sides that find no server would be equal, whatever our client does with one."""
    asked = []
    first = played({"t::a": F, "t::b": F, "t::c": F, "t::d": P}, {"t::a": F, "t::b": F, "t::c": P, "t::d": S})
    later = played({"t::a": P, "t::b": P}, {"t::a": P, "t::b": F})
    monkeypatch.setattr(whole, "both", lambda *_: first)

    def in_turn(suite, topology, choice):
        asked.append(list(choice.names))
        return later if len(asked) == 1 else {side: first[side].updated(later[side]) for side in first}

    monkeypatch.setattr(whole, "in_turn", in_turn)
    part = whole._part(Suite("8", "8.1.0", None, None), STANDALONE, [])
    assert asked[0] == ["t::a", "t::b"]
    assert part.verdict.same == {"t::a": P}
    assert [each.name for each in part.verdict.different] == ["t::b", "t::c", "t::d"]
    assert part.hints["emitted"] == 2


P, F, S = "passed", "failed", "skipped"


@pytest.mark.parametrize(
    ("stock", "ours", "differs"),
    [
        ([P] * 6, [F] * 6, True),
        ([P] * 6, [S] * 6, True),
        ([F] * 6, [P] * 6, True),
        ([P] * 6, [None] * 6, True),  # it is not there
        ([P] * 6, [F, P, P, P, P, P], False),  # the moment
        ([P] * 6, [F, P, F, P, P, P], True),  # it came back
        ([P] * 6, [F, F, P, P, P, P], True),  # it came back with all tests of its file
        ([P, F, P, P, F, P], [F, P, P, F, P, F], False),  # stock fails as well
        ([P, F, P, P, F, P], [F, F, F, F, F, F], True),  # but not always
        ([P, F, P, P, P, P], [F, F, F, F, F, P], True),
        ([F, F, F, F, P, F], [P, P, P, P, P, P], True),
    ],
)
def test_test_differs_if_it_shows_again_what_stock_never_shows_or_shows_rarely(stock, ours, differs):
    asked = []
    assert len(stock) == len(ours) == 1 + ROUNDS == 2 * FAR_MORE

    def shown(at):
        mine = {} if ours[at] is None else {"t::odd": ours[at]}
        return played({"t::same": P, "t::odd": stock[at]}, {"t::same": P} | mine)

    def run_again(names, whole):
        asked.append((names, whole))
        return shown(len(asked))

    verdict = judged(shown(0), run_again)
    assert asked == [(["t::odd"], whole) for whole in WHOLE_FILES]
    assert [each.name for each in verdict.different] == ["t::odd"] * differs
    assert [each.name for each in verdict.wavering] == ["t::odd"] * (not differs)
    [row] = rows_of(verdict, "standalone")
    assert row == ("sync", 1, 0, 0, 0, int(not differs), int(differs))


@pytest.mark.parametrize(
    ("name", "topology", "kind"),
    [
        ("tests/test_lock.py::test_pipeline", "standalone", "sync"),
        ("tests/test_asyncio/test_lock.py::TestLock::test_x[a::b]", "standalone", "asyncio"),
        ("tests/test_asyncio/test_pipeline.py::test_x", "standalone", "pipelines"),
        ("tests/test_asyncio/test_pipeline.py::test_x", "cluster", "cluster asyncio"),
        ("tests/maint_notifications/test_async_x.py::test_x", "standalone", "asyncio"),
        ("tests/test_cluster.py::test_x", "cluster", "cluster sync"),
    ],
)
def test_kind_of_a_test_is_seen_from_its_file_and_its_run(name, topology, kind):
    assert kind_of(name, topology) == kind


def test_tests_that_run_again_are_found_by_their_files():
    names = ["tests/a.py::t[x]", "tests/a.py::u", "tests/b.py::T::v"]
    assert Choice.of(names, whole=False) == (["tests/a.py", "tests/b.py"], names, True)
    assert Choice.of(names, whole=True) == (["tests/a.py", "tests/b.py"], (), True)


def result_of(line, version, odd=()):
    """A version whose tests pass on both sides, but for one that always fails, and the odd ones, which fail once with ours."""
    outcomes = {f"tests/a.py::t{each}": P for each in range(1_500)} | {"b.py::f": F}
    verdict = judged(
        played(outcomes, outcomes | dict.fromkeys(odd, F)),
        lambda names, whole: played(*[dict.fromkeys(names, P)] * 2),
    )
    part = page.Part("standalone", rows_of(verdict, "standalone"), verdict, {"emitted": 7, "faults": 0})
    return page.Result(line, version, "12ab", [part])


def test_page_says_what_passed_what_wavered_and_what_failed_on_both_sides():
    text = page.text_with(result_of("8", "8.1.0", ["tests/a.py::t7"]), "")
    assert "There is no result yet of redis-py 6.2, 7." in text
    assert (
        "## redis-py 8.1.0\n\nTested: the client whose `git rev-parse HEAD:client` begins with 12ab," in text
    )
    assert "| sync | 1,499 | 1 | 0 | 0 | 1 | 0 |" in text
    assert "| standalone | `tests/a.py::t7` | wavering | passed, passed, passed" in text
    assert "| standalone | `b.py` | failed | 1 |" in text


def test_page_keeps_the_sections_of_versions_that_did_not_run():
    text = page.text_with(result_of("7", "7.4.0", ["tests/a.py::t7"]), "")
    text = page.text_with(result_of("6.2", "6.2.0", ["tests/a.py::t6"]), text)
    text = page.text_with(result_of("8", "8.1.0", ["tests/a.py::t8"]), text)
    assert "There is no result" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## redis-py 6.2.0",
        "## redis-py 7.4.0",
        "## redis-py 8.1.0",
    ]
    newer = page.text_with(result_of("7", "7.4.1"), text)
    assert "7.4.0" not in newer
    assert "t7" not in newer
    assert newer.count("t6") == newer.count("t8") == 1
    assert page.text_with(result_of("7", "7.4.1"), newer) == newer


def test_version_that_does_not_come_to_its_end_costs_the_others_nothing(tmp_path, monkeypatch, capsys):
    def result(line, only):
        if line == "7":
            raise TimeoutError("not at its end")
        return result_of(line, f"{line}.0")

    monkeypatch.setattr(whole, "_result", result)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PATH", tmp_path / "compat.md")
    monkeypatch.setattr(sys, "argv", ["run", "6.2,7,8"])
    assert whole.main() == 1
    text = page.PATH.read_text()
    assert "There is no result yet of redis-py 7." in text
    assert "## redis-py 6.2.0" in text
    assert "## redis-py 8.0" in text
    assert "no result of redis-py 7: not at its end" in capsys.readouterr().out


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
