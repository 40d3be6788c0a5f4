"""Fixtures of the live tests: updater processes, and the test's own connection to its database."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def sockets():
    """A folder for unix sockets; not tmp_path, for a socket's whole path may have a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        yield Path(folder)


@pytest.fixture
def updaters(sockets):
    """Starts updater processes; all of them end with the test, their logs are shown where it failed."""
    from updater_process import Updaters

    started = Updaters(sockets)
    yield started
    started.close()


@pytest.fixture
def database(pg_url):
    """The tests' own connection to an empty database."""
    from live_database import Database

    with Database(pg_url) as own:
        yield own
