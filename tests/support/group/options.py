"""A pytest plugin: how long the stories of killed updaters take, and for how long servers are away.

Both have a short form for `make test` and a full one (`proving`); the options name any other length.
"""

from __future__ import annotations

import pytest

SECONDS = (12.0, 60.0)  # in the short form, in the full one
OUTAGE = (3.0, 30.0)
FITS_S = 15.0  # of an outage: a client's buffer holds the hints of so long


def pytest_addoption(parser):
    parser.addoption("--group-seconds", type=float, help="seconds for which updaters of a group are killed")
    parser.addoption("--outage", type=float, help="seconds for which a server is away")


@pytest.fixture
def group_seconds(request, amount):
    """The seconds for which updaters are killed under load."""
    return request.config.option.group_seconds or amount(*SECONDS)


@pytest.fixture
def outage(request, full_form):
    """The seconds for which a server is away."""
    return request.config.option.outage or OUTAGE[full_form]
