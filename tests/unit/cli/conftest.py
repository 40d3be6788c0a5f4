"""Commands that run in the test's own process set up its logging; it is put back, for other tests listen to it."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def library_speaks_as_before():
    library = logging.getLogger("aiokafka")
    level = library.level
    yield
    library.setLevel(level)
