"""The due keys of one namespace in one partition, and which of them go into its next unit.

`schedule` makes a lane per namespace when its first key is due and keeps it as long as itself. A lane knows the order
of its own keys only: misses before changes before touches, and last what can wait for a quiet moment. Whose turn it
is and what can be paid is the schedule's business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.unit import PATIENT, Claim, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.namespace import Namespace

_OVERTAKEN = 4  # units that a smaller one may overtake: a pack of 1000 is five units


class Picked(NamedTuple):
    """What a unit is made of; `whole` is the one unit that these keys came as, where they are just that."""

    parts: list[tuple[Claim, list[bytes]]]
    whole: Unit | None


class Lane:
    """The due keys of one namespace."""

    __slots__ = (
        "claims",
        "last_partial",
        "namespace",
        "need",
        "patient",
        "queues",
        "ready",
        "rests",
        "start",
        "waiting",
    )

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.queues: tuple[deque[Unit], ...] = tuple(deque() for _ in range(PATIENT + 1))
        self.ready = 0  # live keys in the queues
        self.patient = 0  # those of them in the last one
        self.waiting = 0  # those and the delayed ones
        self.claims = 0  # those of them that are a claim on the budget
        self.last_partial = -inf  # when its last unit was started
        self.rests = inf  # until when nothing of it may start, whatever the budget
        self.start: float | None = None  # its place in the line of its source, once it stands there
        self.need = 0  # keys that its turn is worth waiting for

    @property
    def urgent(self) -> bool:
        """Somebody waits, or an old value does."""
        return bool(self.queues[0] or self.queues[1])

    def count_ready(self, claim: Claim, keys: int) -> None:
        """So many more live keys are in the queues (fewer, if negative)."""
        self.ready += keys
        if claim.urgency == PATIENT:
            self.patient += keys

    def put(self, unit: Unit) -> None:
        """In the order of arrival: what is due again, or merged, has kept its place."""
        unit.ready = True
        queue, since = self.queues[unit.claim.urgency], unit.claim.since
        if queue and since < queue[-1].claim.since:
            queue.insert(bisect_right(queue, since, key=lambda other: other.claim.since), unit)
        else:
            queue.append(unit)
        self.count_ready(unit.claim, len(unit.keys) - unit.gone)

    def clear(self) -> None:
        """What is left in the queues has no live keys."""
        for queue in self.queues:
            queue.clear()

    def pick(self, rows: int, seats: dict[bytes, Unit], *, quiet: bool) -> Picked:
        """The most urgent keys; those that can wait only if it is `quiet`.

        To run as it came saves a unit the new seats of all its keys. So where the next unit is too large, a smaller
        one a few places behind goes along, and half of what could be had is enough before one is cut in two.
        """
        parts: list[tuple[Claim, list[bytes]]] = []
        whole: Unit | None = None
        enough = rows // 2
        for queue in self._served(quiet=quiet):
            while queue and rows:
                unit = queue[0]
                if unit.claim.alone and parts:
                    return Picked(parts, whole)
                keys = unit.live(seats)
                if len(keys) > rows:
                    if parts and _bring_forward(queue, rows):
                        continue
                    if rows <= enough:
                        return Picked(parts, whole)
                    unit.keys, unit.gone = keys[rows:], 0
                    parts.append((unit.claim, keys[:rows]))
                    return Picked(parts, None)
                queue.popleft()
                if not keys:
                    continue
                whole = unit if not parts and not unit.gone else None
                parts.append((unit.claim, keys))
                rows -= len(keys)
                if unit.claim.alone:
                    return Picked(parts, whole)
        return Picked(parts, whole)

    def _served(self, *, quiet: bool) -> Sequence[deque[Unit]]:
        """The queues whose turn it may be."""
        return self.queues if quiet else self.queues[:PATIENT]


def _bring_forward(queue: deque[Unit], rows: int) -> bool:
    """Let a unit that fits overtake a few that do not; they run next."""
    for at in range(1, min(len(queue), _OVERTAKEN + 1)):
        unit = queue[at]
        if len(unit.keys) - unit.gone <= rows and not unit.claim.alone:
            del queue[at]
            queue.appendleft(unit)
            return True
    return False
