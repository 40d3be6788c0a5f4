"""Signs that an updater works for nobody although nothing fails. No single stage could see them.

The partitions of a process share one `Vitals`, in their `Surroundings`. The service calls `tick` once a second. `Vitals`
reports that no client is connected or sends hints, that hints belong to no namespace, or that keys which readers find are not
in our Redis. For each source it reports whether the source is up, and the time since its last success;
for each namespace, how many misses wait because too many rows do not exist. `dropping` is a part of it. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from cacheupdater.pipeline.dropping import REASONS, Dropping
from cacheupdater.pipeline.looking import WINDOW_S, Looking
from cacheupdater.pipeline.naming import named
from cacheupdater.pipeline.whereabouts import Whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.naming import LogKeys
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer, Writer

ALONE_S = 30.0  # seconds without a client: longer than a restart of the application takes
NOBODYS_MOST = 0.01  # share of the hints: where patterns share a prefix, some keys of no namespace are usual
NOBODYS_FEW = 0.005  # share that ends the trouble; at one limit for both, a share near it would come and go
NAMES_MOST = 5  # prefixes of patterns in one sentence
HINTS_LEAST = 100  # hints within the minute, before a share of them is worth a line


class Vitals:
    """The signs of one process."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        *,
        observer: Observer,
        notices: Notices,
        random: Callable[[], float],
        log_keys: LogKeys = "hash",
        listens: Sequence[str] = (),
    ) -> None:
        """`listens` are the addresses that clients may use, for the line that says that no client is connected."""
        self.looking = Looking(keyspace, observer=observer, random=random, log_keys=log_keys)
        self.whereabouts = Whereabouts(keyspace)
        self._namespaces = list(keyspace.values)
        self._sources = list(dict.fromkeys(each.source for each in self._namespaces))
        self._waiting: set[str] = (
            set()
        )  # namespaces whose misses of unseen keys waited, by name: a reload makes new ones
        self._observer = observer
        self._notices = notices
        self._log_keys = log_keys
        self._listens = " ".join(listens) or "here"
        self._begin = _beginnings(keyspace)
        self._heard = self._nobodys = 0  # since the last tick
        self._minute: deque[tuple[float, int, int]] = deque()  # when, hints, hints of nobody
        self._too_many_nobodys = False  # whether the trouble stands
        self._dropping = Dropping(notices)
        self._succeeded: dict[str, float] = {}  # sources, and when
        self._alone_since: float | None = None
        self._no_hint_since: float | None = None
        self._hinted = False  # ever

    def follow(self, keyspace: Keyspace[Namespace]) -> None:
        """The namespaces are others from now on; the clients and their hints are the same."""
        self.looking.follow(keyspace)
        self.whereabouts.follow(keyspace)
        self._begin = _beginnings(keyspace)
        self._namespaces = list(keyspace.values)
        self._sources = list(dict.fromkeys(each.source for each in self._namespaces))

    def hear(self, hints: Hints) -> None:
        """Called for every pack that is not late."""
        self._hinted = True
        self.looking.hear(hints)
        self.whereabouts.hear(hints)

    async def run(self, writer: Writer) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.looking.run(writer))
            group.create_task(self.whereabouts.run(writer))

    def counted(self, totals: Mapping[tuple[Metric, str, str], int]) -> None:
        """What the core of a partition has counted since the last call, by metric, label and reason."""
        for (metric, label, reason), amount in totals.items():
            if metric == "hints":
                self._heard += amount
            elif metric == "dropped" and reason == "unknown":
                self._nobodys += amount
            elif metric == "dropped" and reason in REASONS:
                self._dropping.counted(label, reason, amount)

    def loaded(self, source: str, now: float) -> None:
        """The source has answered a statement."""
        self._succeeded[source] = now

    def tick(self, now: float, *, sources: Mapping[str, float], clients: int | None) -> None:
        """Called once a second.

        `sources` says since when each source is known. `clients` is the number of connected clients, None if it cannot be known.
        """
        self.looking.tick()
        self._tick_sources(now, sources)
        self._tick_clients(now, clients)
        self._tick_hints(now, clients)
        self._tick_nobodys(now)
        self._tick_elsewhere(now)
        self._tick_absent(now)
        self._dropping.tick(now, self._namespaces)

    def plain(self, now: float) -> dict[str, object]:
        """The figures of the last minute, for JSON. Keys are named as the configuration allows."""
        heard, nobodys = self._sums(now)
        return {
            "hints": heard,
            "of_nobody": nobodys,
            "examples": self._examples(),
            "looked": self.whereabouts.looked,
            "not_in_redis": self.whereabouts.absent,
        }

    def read_ages(self, now: float) -> list[dict[str, object]]:
        """The ages of values that were read in the last minute, in seconds, by namespace."""
        return [
            {"name": name, "looks": len(ages), "median": _at(ages, 0.5), "p95": _at(ages, 0.95)}
            for name, ages in self.looking.ages(now).items()
        ]

    # --- signs ------------------------------------------------------------------------------------------

    def _tick_sources(self, now: float, sources: Mapping[str, float]) -> None:
        down = {each.subject for each in self._notices.standing() if each.event == "load_failed"}
        for name, since in sources.items():
            self._observer.level("source_up", float(name not in down), label=name)
            last = self._succeeded.get(name, since)
            self._observer.level("source_silence_seconds", now - last, label=name)
        for source in self._sources:
            self._observer.level("source_slots", float(int(source.slots.window)), label=source.name)
            self._observer.level("source_probed", float(source.breaker.is_open), label=source.name)

    def _tick_clients(self, now: float, clients: int | None) -> None:
        if clients is None or clients > 0:
            self._alone_since = None
            self._notices.over("no_client", "")
            return
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since >= ALONE_S:
            # a question mark behind an address would hide it: options with secrets may follow one
            text = f"no client is connected to {self._listens}: does the application send its hints there?"
            self._notices.trouble("no_client", "", text)

    def _tick_hints(self, now: float, clients: int | None) -> None:
        """A client sends no hint of a key that begins like none of our patterns. Such a client may never send any hint."""
        if self._hinted or not clients:
            self._no_hint_since = None
            self._notices.over("no_hint", "")
            return
        if self._no_hint_since is None:
            self._no_hint_since = now
        if now - self._no_hint_since >= ALONE_S:
            text = f"clients are connected, and none has ever sent a hint: do their keys begin with {self._begin}?"
            self._notices.trouble("no_hint", "", text)

    def _tick_nobodys(self, now: float) -> None:
        self._minute.append((now, self._heard, self._nobodys))
        self._heard = self._nobodys = 0
        heard, nobodys = self._sums(now)
        share = nobodys / heard if heard else 0.0
        self._observer.level("nobodys_share", share)
        limit = NOBODYS_FEW if self._too_many_nobodys else NOBODYS_MOST
        self._too_many_nobodys = heard >= HINTS_LEAST and share >= limit
        if not self._too_many_nobodys:
            self._notices.over("nobodys", "")
            return
        text = f"{share:.1%} of {heard} hints in a minute are of no namespace: compare the patterns with the keys"
        if examples := self._examples():
            text += f", such as {', '.join(examples)}"
        if self._log_keys != "full":
            text += " (log_keys: full shows which)"
        self._notices.trouble("nobodys", "", text)

    def _tick_elsewhere(self, now: float) -> None:
        where = self.whereabouts
        self._observer.level("elsewhere", float(where.elsewhere))
        if where.elsewhere:
            text = (
                "most keys that applications have found or set were not in our Redis:"
                " do cache.url and the application name the same server and database?"
            )
            self._notices.trouble("elsewhere", "", text)
        else:
            self._notices.over("elsewhere", "")
        where.tick(now)

    def _tick_absent(self, now: float) -> None:
        buckets = {each.name: each.absent_bucket for each in self._namespaces}
        waiting = {name: b for name, b in buckets.items() if b.waiting > b.room(now)}
        for name, bucket in waiting.items():
            text = (
                f"rows that do not exist have used up what missing.share saves for them, {bucket.rate:g} a second:"
                f" {bucket.waiting} misses of keys that no load has found before wait; all other keys go on"
            )
            self._observer.level("unseen_waiting", float(bucket.waiting), label=name)
            self._notices.trouble("absent", name, text)
        for name in self._waiting - waiting.keys():
            self._observer.level("unseen_waiting", 0.0, label=name)
            self._notices.over("absent", name)
        self._waiting = set(waiting)

    def _sums(self, now: float) -> tuple[int, int]:
        while self._minute and self._minute[0][0] < now - WINDOW_S:
            self._minute.popleft()
        return sum(heard for _, heard, _ in self._minute), sum(nobodys for *_, nobodys in self._minute)

    def _examples(self) -> list[str]:
        return [said for key in self.looking.nobodys if (said := named(key, self._log_keys))]


def _at(ages: Sequence[float], share: float) -> float:
    """The age in seconds that this share of the sorted ages does not exceed."""
    return round(ages[min(len(ages) - 1, int(share * len(ages)))], 3)


def _beginnings(keyspace: Keyspace[Namespace]) -> str:
    return _some([each.decode(errors="backslashreplace") for each in keyspace.prefixes])


def _some(names: Sequence[str]) -> str:
    """The first names, and how many others there are: a log line is no place for thousands."""
    more = len(names) - NAMES_MOST
    return ", ".join(names[:NAMES_MOST]) + (f" or one of {more} others" if more > 0 else "")
