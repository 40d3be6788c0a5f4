"""A pytest plugin for redis-py's suite: it writes each test's id, outcome and seconds to a file, one line of JSON each.

`sides` loads it on both sides, and `judging` compares the two files. A test has two lines, one when it begins and one when it has
ended. So `sides` can show the progress, a crash loses nothing, and a test in which pytest hangs or dies is known. Tests that the
file names already do not run again: that is how `sides` goes on after such a test. With `--chosen` the plugin leaves out all
tests but those named in another file: pytest's own way refuses to run at all if one of the ids is not there.

The suites of redis-py 6 and 7 trace every allocation, and no test of theirs asks for the traces. On a cluster that takes ten
times as long (127 ms instead of 12 for each new client), more than an hour in all; so the plugin leaves tracing out.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

RANK = ("passed", "skipped", "failed")  # the worst of setup, call and teardown counts
UNFINISHED = "unfinished"  # the test has begun; as an outcome: pytest hung or died in it


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="the file to which the outcomes are written")
    parser.addoption("--chosen", type=Path, help="a file with the ids of the tests to run; without it, all")


def pytest_configure(config):
    tracemalloc.start = tracemalloc.stop = lambda *_: None
    config.pluginmanager.register(Recorder(config.option.outcomes), "compat-recorder")


def pytest_collection_modifyitems(config, items):
    begun, chosen = set(outcomes_in(config.option.outcomes)), None
    if config.option.chosen:
        chosen = set(config.option.chosen.read_text("utf-8").splitlines())

    def is_due(name):
        return name not in begun and (chosen is None or name in chosen)

    left = [item for item in items if not is_due(steady(item.nodeid))]
    items[:] = [item for item in items if is_due(steady(item.nodeid))]
    config.hook.pytest_deselected(items=left)


def steady(name):
    """The id of a test without addresses of objects, which differ from run to run."""
    return re.sub(r"0x[0-9a-f]+", "0x", name)


def outcomes_in(path):
    """The last outcome of each test in the file."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {name: outcome for name, outcome, _ in map(json.loads, lines)}


class Recorder:
    """The outcomes of one run."""

    def __init__(self, path):
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._worst, self._seconds = "passed", 0.0

    def pytest_runtest_logstart(self, nodeid):
        self._worst, self._seconds = "passed", 0.0
        self._write(nodeid, UNFINISHED)

    def pytest_runtest_logreport(self, report):
        self._worst = max(self._worst, report.outcome, key=RANK.index)
        self._seconds += report.duration

    def pytest_runtest_logfinish(self, nodeid):
        self._write(nodeid, self._worst)

    def _write(self, nodeid, outcome):
        self._file.write(json.dumps([steady(nodeid), outcome, round(self._seconds, 3)]) + "\n")

    def pytest_unconfigure(self):
        self._file.close()
