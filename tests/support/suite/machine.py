"""A pytest plugin: how one run shares the machine, so that tests that take time do not disturb tests that measure it.

- Live tests (those that start updaters, and those that are marked) come first in the list, and run one at a time. xdist gives
  each worker a piece of the list and lets idle workers steal from others, so each live test holds the run's one `stage`.
  Some start updaters and wait for causes only. They are marked `untimed`, and run beside all others in `make test`. The long
  stories of `make prove` load the machine more, so there they take the stage too.
- Campaigns come last, and the long ones compute in a process of their own with the lowest priority (`apart`). So one worker
  begins with them early and uses the CPU time that the others leave. The blocks of all campaigns take turns: if time runs out,
  a part of each has been played.
- Objects from pytest's collection are exempt from garbage collection: a full collection of them stops a worker for half a
  second, which is all the time that a call to Redis may take.
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
    items.sort(key=lambda item: (_turn(item), _share_before(item)))


def _turn(item):
    live = item.get_closest_marker("live") or "updaters" in item.fixturenames
    if live and (item.config.option.prove or not item.get_closest_marker("untimed")):
        return 0
    return 2 if item.get_closest_marker("campaign") else 1


def _share_before(item):
    """How much of its campaign comes before this block of seeds."""
    if "seeds" not in item.fixturenames:
        return 0.0
    return item.callspec.params["seeds"].start / item.get_closest_marker("campaign").kwargs["full"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Comes before all other wrappers, so that waiting for the stage does not count as the test's time."""
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
    """The result or error of `work(*args)`, computed when no other process needs the machine."""
    fresh = get_context("spawn")  # a fork would copy threads' locks
    with ProcessPoolExecutor(1, mp_context=fresh, initializer=os.nice, initargs=(PATIENCE,)) as pool:
        return pool.submit(work, *args).result()
