"""Commands configure the log of their process; each test here restores it."""

import logging

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
