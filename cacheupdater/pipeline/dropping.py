"""Hints that are dropped although nothing fails, because more is asked than can be loaded: a line for each source.

`Vitals` makes one `Dropping`, hands it what the cores of all partitions have counted, and calls `tick` once a second. The line
says what is short. It says connections if the namespaces may take none while budget and quota are not used up. A trouble is
over after a minute without a drop. Keys that wait because something fails have another line, so they count for nothing here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cacheupdater.core.events import of_quota
from cacheupdater.core.words import counted
from cacheupdater.pipeline.looking import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        lost: Counter[Namespace] = Counter()
        healthy = {each.name: each for each in self._healthy(namespaces)} if new else {}
        for (name, reason), keys in new.items():
            if (namespace := healthy.get(name)) is not None:
                lost[namespace] += keys
                lately = self._lately.setdefault(namespace.source.name, {}).setdefault(name, Lately())
                lately.keys, lately.last = lately.keys + keys, now
                lately.reasons.add(reason)
        for name, names in list(self._lately.items()):
            self._forget(name, names, now)
        for source in dict.fromkeys(each.source for each in lost):
            losers = [each for each in lost if each.source is source]
            text = f"{_said(self._lately[source.name])}: {_short(source, losers, now)}"
            self._notices.trouble("dropped", source.name, text, keys=sum(lost[each] for each in losers))

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

    def _healthy(self, namespaces: Iterable[Namespace]) -> list[Namespace]:
        """The namespaces whose keys wait for nothing but their turn."""
        failing = self._failing
        if ("redis_down", "") in failing:
            return []
        return [
            each
            for each in namespaces
            if ("fleet_down", of_quota(each.name)) not in failing
            and not any((event, each.name) in failing for event in _OF_A_NAMESPACE)
            and not any((event, each.source.name) in failing for event in _OF_A_SOURCE)
        ]


def _said(names: dict[str, Lately]) -> str:
    """The namespaces that lose most, and the reasons as the metric has them."""
    most = sorted(names, key=lambda name: names[name].keys, reverse=True)[:NAMES_MOST]
    more = f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else ""
    reasons = ", ".join(sorted(set().union(*(each.reasons for each in names.values()))))
    return f"hints of {', '.join(most)}{more} are dropped ({reasons})"


def _short(source: Source, losers: Sequence[Namespace], now: float) -> str:
    """What is short for the namespaces that lose hints."""
    if all(_waits_for_connections(each, now) for each in losers):
        busy = counted(int(source.slots.window), "connection")
        return (
            f"the loads of source {source.name} take too long for its {busy}, and its budget is not used up"
        )
    return f"the budget of source {source.name}, or a quota, does not pay for all that is asked"


def _waits_for_connections(namespace: Namespace, now: float) -> bool:
    """Whether it may take no connection, while its budget and its quota have saved up half of a burst."""
    source, quota = namespace.source, namespace.quota
    buckets = (source.bucket,) if quota is None else (source.bucket, quota)
    saved = all(each.level(now) >= each.burst / 2 for each in buckets)
    return saved and source.slots.room(namespace) <= 0
