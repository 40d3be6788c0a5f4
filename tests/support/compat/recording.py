"""A pytest plugin for redis-py's suite: it writes each test's id, outcome and seconds to a file, one line of JSON each.

`sides` loads it on both sides, and `judging` compares the two files. A line is written as soon as the test has ended, so `sides`
can show the progress, and a crash loses nothing. It changes nothing in the suite. With `--chosen` it leaves out all tests but
those named in a file: pytest's own way refuses to run at all if one of the ids is not there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

RANK = ("passed", "skipped", "failed")  # the worst of setup, call and teardown counts


def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path, help="the file to which the outcomes are written")
    parser.addoption("--chosen", type=Path, help="a file with the ids of the tests to run; without it, all")


def pytest_configure(config):
    config.pluginmanager.register(Recorder(config.option.outcomes), "compat-recorder")


def pytest_collection_modifyitems(config, items):
    if not config.option.chosen:
        return
    chosen = set(config.option.chosen.read_text("utf-8").splitlines())
    left = [item for item in items if steady(item.nodeid) not in chosen]
    items[:] = [item for item in items if steady(item.nodeid) in chosen]
    config.hook.pytest_deselected(items=left)


def steady(name):
    """The id of a test without addresses of objects, which differ from run to run."""
    return re.sub(r"0x[0-9a-f]+", "0x", name)


class Recorder:
    """The outcomes of one run."""

    def __init__(self, path):
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._worst, self._seconds = "passed", 0.0

    def pytest_runtest_logstart(self):
        self._worst, self._seconds = "passed", 0.0

    def pytest_runtest_logreport(self, report):
        self._worst = max(self._worst, report.outcome, key=RANK.index)
        self._seconds += report.duration

    def pytest_runtest_logfinish(self, nodeid):
        self._file.write(json.dumps([steady(nodeid), self._worst, round(self._seconds, 3)]) + "\n")

    def pytest_unconfigure(self):
        self._file.close()
