"""Commands set up the log of their process; each test here leaves it as it was."""

import logging

import pytest


@pytest.fixture(autouse=True)
def logging_as_before():
    root = logging.getLogger()
    ours = logging.getLogger("cacheupdater")
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = []  # pytest's own stay open: `configure` closes what it finds
    yield
    root.handlers[:], level, ours_level = before
    root.setLevel(level)
    ours.setLevel(ours_level)
