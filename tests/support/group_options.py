"""A pytest plugin: how long the stories of the group are told."""

from __future__ import annotations

SECONDS = 60.0
OUTAGE = 15.0


def pytest_addoption(parser):
    parser.addoption(
        "--group-seconds",
        type=float,
        default=SECONDS,
        help=f"seconds for which updaters of a group are killed under load (default: {SECONDS:g})",
    )
    parser.addoption(
        "--group-outage",
        type=float,
        default=OUTAGE,
        help=f"seconds for which the group's broker is away (default: {OUTAGE:g})",
    )
