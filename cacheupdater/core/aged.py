"""Which ready keys have waited too long: they are dropped, so that no key holds up the cursor for longer.

Whatever waits in a paused namespace has waited too long.

`schedule` makes one, reports each unit that becomes ready, and drops what is found. A backlog is looked at when its oldest key
may have waited too long, and not before. So thousands of namespaces that wait for their quotas cost nothing meanwhile. A step
makes some looks and leaves the rest to the next one. `now` is an argument.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.unit import PATIENT

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.backlog import Backlog
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.unit import Unit

LOOKS = 100
"""Backlogs at which one step looks: half a millisecond."""


class Aged:
    """What has waited too long in one partition."""

    def __init__(self, limits: Limits) -> None:
        self.units: deque[Unit] = deque()  # found, and to be dropped
        self.paused: Collection[Namespace] = frozenset()
        self._limits = limits
        self._looks: list[
            tuple[float, int, Backlog]
        ] = []  # (when, order, backlog); some are not valid any more
        self._order = count()
        self._left = False

    @property
    def unfinished(self) -> bool:
        """Whether the next step has more to look for, or to drop."""
        return self._left or bool(self.units)

    def at(self, unit: Unit) -> float:
        """When these keys have waited too long."""
        if unit.namespace in self.paused:
            return -inf
        return unit.demand.since + min(unit.namespace.backlog_age, self._limits.backlog_age)

    def why(self, unit: Unit) -> str:
        """Why these keys are dropped."""
        if unit.namespace in self.paused:
            return "paused"
        return "unworthy" if unit.demand.urgency == PATIENT else "aged"

    def look_at(self, backlog: Backlog) -> None:
        """The next `find` looks at this backlog, whatever its age."""
        self.watch(backlog, -inf)

    def watch(self, backlog: Backlog, at: float) -> None:
        """`find` looks at this backlog at that time: a unit of its has waited too long by then."""
        backlog.looked_at = at
        if at < inf:
            heappush(self._looks, (at, next(self._order), backlog))

    def find(self, now: float) -> bool:
        """Collects units that have waited too long. Returns whether these were all; if not, there are enough for a step."""
        looks = self._looks
        for _ in range(LOOKS):
            while looks and looks[0][0] != looks[0][2].looked_at:
                heappop(looks)
            self._left = bool(looks) and looks[0][0] <= now
            if not self._left:
                return True
            backlog = heappop(looks)[2]
            all_found = self._collect(backlog, now)
            oldest = backlog.oldest
            self.watch(backlog, inf if oldest is None else self.at(oldest))
            if not all_found:
                break
        return False

    def _collect(self, backlog: Backlog, now: float) -> bool:
        """Whether these were all."""
        for queue in list(backlog.all_queues()):
            while queue and self.at(queue[0]) <= now:
                if len(self.units) >= self._limits.turn_keys:
                    return False
                unit = queue.popleft()
                unit.ready = False
                backlog.count_ready(unit.demand, unit.gone - len(unit.keys))
                self.units.append(unit)
        return True
