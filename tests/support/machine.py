"""A pytest plugin: how one run shares the machine, so that tests that take time do not disturb tests that measure it.

- Live tests (whoever starts updaters, and what is marked so) come first in the list, and run one at a time: xdist gives each
  worker a piece of the list and lets idle workers steal from another's, so each takes the run's one `stage` for its time.
- Campaigns come last, and the long ones compute in a process of their own that yields to everybody (`apart`). So one
  worker begins with them early and fills what the others leave idle.
- What collecting has made is never collected again: a full collection of it stops a worker for half a second, in which
  the 0.5 s that a call to Redis may take pass unseen.
"""

from __future__ import annotations

import fcntl
import gc
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

PATIENCE = 19  # the least urgent there is


def pytest_collection_modifyitems(items):
    items.sort(key=_turn)


def _turn(item):
    if item.get_closest_marker("live") or "updaters" in item.fixturenames:
        return 0
    return 2 if item.get_closest_marker("campaign") else 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """First of all wrappers, so that waiting for the stage is not counted as the test's time."""
    if _turn(item):
        return (yield)
    base = item.config._tmp_path_factory.getbasetemp()
    folder = base.parent if hasattr(item.config, "workerinput") else base
    with (folder / "stage").open("w") as stage:
        fcntl.flock(stage, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


def apart(work, *args):
    """What `work(*args)` returns or raises, computed when nobody else needs the machine."""
    fresh = get_context("spawn")  # a fork would copy threads' locks
    with ProcessPoolExecutor(1, mp_context=fresh, initializer=os.nice, initargs=(PATIENCE,)) as pool:
        return pool.submit(work, *args).result()
