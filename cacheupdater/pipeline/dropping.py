"""Hints that are dropped although nothing fails, because more is asked than can be loaded: a line for each source.

`Vitals` makes one `Dropping`, hands it what the cores of all partitions have counted, and calls `tick` once a second. The line
says what is short: the budget or a quota, or connections, if all are busy and the budget is not used up. A trouble is over
after a minute without a drop. Keys that wait because something fails have another line, so they count for nothing here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cacheupdater.core.events import of_quota
from cacheupdater.core.words import counted
from cacheupdater.pipeline.looking import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cacheupdater.core.budget import Source
    from cacheupdater.core.events import Event
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices

NAMES_MOST = 5  # namespaces in one sentence
REASONS = frozenset({"backlog", "aged"})
"""Reasons for which keys are dropped that wait for their turn."""

_OF_A_SOURCE: tuple[Event, ...] = ("load_failed", "fleet_down")
_OF_A_NAMESPACE: tuple[Event, ...] = (
    "load_refused",
    "unexpected",
    "write_failed",
    "write_delayed",
    "absent",
)
_CAUSES = frozenset({*_OF_A_SOURCE, *_OF_A_NAMESPACE, "redis_down"})
"""Troubles for which keys wait, whatever the budget is."""
AFTER_S = 30.0
"""Seconds after the end of a trouble. No key waits for longer, so until then a dropped key may have waited for that trouble."""


class Lately:
    """What a namespace has lost since it began to lose hints. A minute without a loss ends that."""

    __slots__ = ("keys", "last", "reasons")

    def __init__(self) -> None:
        self.keys = 0
        self.last = 0.0
        self.reasons: set[str] = set()


class Dropping:
    """The dropped hints of one process."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._new: Counter[tuple[str, str]] = Counter()  # keys since the last tick, by namespace and reason
        self._lately: dict[str, dict[str, Lately]] = {}  # by source and namespace
        self._failing: dict[
            tuple[str, str], float
        ] = {}  # causes with their subjects, and when each stood last

    def counted(self, name: str, reason: str, keys: int) -> None:
        """So many keys of this namespace were dropped, for one of the `REASONS`."""
        self._new[name, reason] += keys

    def tick(self, now: float, namespaces: Iterable[Namespace]) -> None:
        """Called once a second."""
        self._note_causes(now)
        new, self._new = self._new, Counter()
        lost: Counter[Source] = Counter()
        sources = self._sources_of_the_healthy(namespaces) if new else {}
        for (name, reason), keys in new.items():
            if (source := sources.get(name)) is not None:
                lost[source] += keys
                lately = self._lately.setdefault(source.name, {}).setdefault(name, Lately())
                lately.keys, lately.last = lately.keys + keys, now
                lately.reasons.add(reason)
        for name, names in list(self._lately.items()):
            self._forget(name, names, now)
        for source, keys in lost.items():
            text = f"{_said(self._lately[source.name])}: {_short(source, now)}"
            self._notices.trouble("dropped", source.name, text, keys=keys)

    def _forget(self, source: str, names: dict[str, Lately], now: float) -> None:
        for name in [name for name, lately in names.items() if now - lately.last >= WINDOW_S]:
            del names[name]
        if not names:
            del self._lately[source]
            self._notices.over("dropped", source)

    def _note_causes(self, now: float) -> None:
        stand = [(each.event, each.subject) for each in self._notices.standing() if each.event in _CAUSES]
        self._failing |= dict.fromkeys(stand, now)
        for cause in [cause for cause, last in self._failing.items() if now - last > AFTER_S]:
            del self._failing[cause]

    def _sources_of_the_healthy(self, namespaces: Iterable[Namespace]) -> dict[str, Source]:
        """The source of each namespace whose keys wait for nothing but their turn."""
        failing = self._failing
        if ("redis_down", "") in failing:
            return {}
        return {
            each.name: each.source
            for each in namespaces
            if ("fleet_down", of_quota(each.name)) not in failing
            and not any((event, each.name) in failing for event in _OF_A_NAMESPACE)
            and not any((event, each.source.name) in failing for event in _OF_A_SOURCE)
        }


def _said(names: dict[str, Lately]) -> str:
    """The namespaces that lose most, and the reasons as the metric has them."""
    most = sorted(names, key=lambda name: names[name].keys, reverse=True)[:NAMES_MOST]
    more = f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else ""
    reasons = ", ".join(sorted(set().union(*(each.reasons for each in names.values()))))
    return f"hints of {', '.join(most)}{more} are dropped ({reasons})"


def _short(source: Source, now: float) -> str:
    """What is short: connections, if all of them are busy while the budget has saved up half of a burst."""
    bucket, slots = source.bucket, source.slots
    if slots.free <= 0 and bucket.level(now) >= bucket.burst / 2:
        busy = counted(int(slots.window), "connection")
        return (
            f"the loads of source {source.name} take too long for its {busy}, and its budget is not used up"
        )
    return f"the budget of source {source.name}, or a quota, does not pay for all that is asked"
