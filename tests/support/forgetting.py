"""A pytest plugin: what one test has read as a password is no secret of the next, whose texts may hold the same word."""

import sys

import pytest


@pytest.fixture(autouse=True)
def secrets_forgotten():
    yield
    masking = sys.modules.get("cacheupdater.masking")
    if masking is not None:
        masking._passwords.clear()
        masking._users.clear()
