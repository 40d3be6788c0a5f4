"""Commands configure the log of their process, and variables for its children; each test here restores both."""

import logging
import os

import pytest


@pytest.fixture(autouse=True)
def logging_as_before():
    root = logging.getLogger()
    before = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in ("", "cacheupdater", "aiokafka")}
    root.handlers[:] = []  # pytest's own stay open: `configure` closes what it finds
    yield
    root.handlers[:] = before
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def environment_as_before():
    """`demo` keeps its children from the working directory: other tests' programs of this worker must find their modules there."""
    before = dict(os.environ)  # noqa: TID251  restored, not read
    yield
    os.environ.clear()  # noqa: TID251  as above
    os.environ.update(before)  # noqa: TID251  as above
