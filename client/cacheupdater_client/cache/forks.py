"""What a forked child begins anew: flights, and waits for leases. Those who would end them stayed in the parent.

`Flights` and the two `Watch`es enrol themselves. Python calls `begin` of each in a new child, before any code of the
application runs there, so no thread meets a lock that a thread of the parent held.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """What cannot go on in a child."""

    def begin(self) -> None:
        """Forgets everything."""


_enrolled: WeakSet[Renewable] = WeakSet()


def enrol(it: Renewable) -> None:
    """From now on a forked child begins this anew. This list keeps no object alive."""
    _enrolled.add(it)


def _begin_all() -> None:
    for each in list(_enrolled):
        each.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all)
