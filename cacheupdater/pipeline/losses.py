"""Hints that were refused, or left the queue before an updater read them: counters that are troubles too.

A service wraps its observer in one `Losses`. A collector and a drain do the same if they run without a service. Listeners,
queues and intake count what they refuse or miss, as they count everything, and know no `Losses`. Its owner calls `tell` once a
second. The subject of a trouble is the reason. The trouble is over once a minute has passed without a loss for that reason.

A connection that was cut short and a pack that came while a process was ending are counted only: their hints are sent again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.core.events import Event
    from cacheupdater.core.metrics import Metric
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer

STANDS_S = 60.0  # seconds without a loss, after which the trouble is over

_EVENTS: Mapping[Metric, Event] = {"intake_rejected": "rejected", "lost_packs": "lost"}
_TEXTS: Mapping[tuple[Event, str], str] = {
    ("rejected", "garbage"): "something sends what is no pack of hints: does another program write to this queue or port?",
    ("rejected", "too_large"): "packs of more than 256 KiB come, which no client of ours sends",
    ("rejected", "unknown_version"): "clients of a newer version send hints that this version cannot read: update the updaters and collectors first",
    ("rejected", "frame_out_of_range"): "a connection sends no frames of ours: does another program use this port?",
    ("rejected", "crowded"): "the connections hold too many bytes of unread hints, so the largest is closed again and again",
    ("rejected", "too_many_peers"): "more clients connect than one process serves at once: a collector on each machine needs fewer connections",
    ("lost", "retention"): "packs leave the topic before they are read: the updaters are behind by more than the topic's retention",
    ("lost", "reset"): "the topic was made anew, or an election has cut its log: hints that waited there are lost",
    ("lost", "trimmed"): "too many reads wait in the stream, or reads wait for too long: the senders trim the stream",
}  # fmt: skip
"""What is said of each loss. A loss that is not here is counted only, or its queue tells of it (`depot_lost`)."""


class Losses:
    """An observer that remembers what was lost since the last look."""

    def __init__(self, observer: Observer, notices: Notices) -> None:
        self._observer = observer
        self._notices = notices
        self._lately: Counter[tuple[Event, str]] = Counter()
        # when each was met last, and how much was lost since it began
        self._standing: dict[tuple[Event, str], tuple[float, int]] = {}

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """As `Observer`."""
        self._observer.count(metric, amount, label=label, reason=reason)
        if metric in _EVENTS and (at := (_EVENTS[metric], reason)) in _TEXTS:
            self._lately[at] += amount

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """As `Observer`."""
        self._observer.measure(metric, value, label=label)

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """As `Observer`."""
        self._observer.level(metric, value, label=label)

    def end(self, metric: Metric, *, label: str = "") -> None:
        """As `Observer`."""
        self._observer.end(metric, label=label)

    def tell(self, now: float) -> None:
        """Reports what was lost since the last call, and what has ended."""
        lately, self._lately = self._lately, Counter()
        for at, amount in lately.items():
            _, before = self._standing.get(at, (now, 0))
            self._standing[at] = now, before + amount
            self._notices.trouble(*at, _TEXTS[at])
        for at, (last, amount) in list(self._standing.items()):
            if now >= last + STANDS_S:
                del self._standing[at]
                self._notices.over(*at, cost=f"{amount} {at[0]}")
