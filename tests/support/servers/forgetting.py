"""A pytest plugin: forgets the passwords that a test has read, for the texts of the next test may hold the same words."""

import sys

import pytest


@pytest.fixture(autouse=True)
def secrets_forgotten():
    yield
    masking = sys.modules.get("cacheupdater.masking")
    if masking is not None:
        masking._passwords.clear()
        masking._users.clear()
