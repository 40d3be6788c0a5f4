"""What a running updater knows about one key: the page `/explain`, which `cacheupdater explain` fetches.

`Service` makes one `Explainer`, which lives as long as the service runs. It reads the state of the core, the pipeline and the
policy, and changes nothing. It uses neither Redis nor the database: the command itself asks these (`service.look`). The page
names the key and may hold a database's words about it, so the page is data. `adapters.admin_http` shows it on a loopback
address without a token, and on other addresses only with the token.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from cacheupdater import __version__
from cacheupdater.core.events import of_quota
from cacheupdater.core.explain import NO_SEAT, shortage
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.price import Price
from cacheupdater.price.view import view, worthy
from cacheupdater.service.whose import declared_in
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.models import NamespaceSection
    from cacheupdater.core.events import Event
    from cacheupdater.core.explain import Shortage
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.partition import Partition
    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater.price.shell.pricing import Pricing
    from cacheupdater.service.door import Door

_EVERYBODYS: frozenset[Event] = frozenset(
    {
        "queue_missing",
        "depot_lost",
        "redis_down",
        "reload_refused",
        "pauses_unread",
        "rejected",
        "lost",
        "late",
        "clock_off",
        "no_client",
        "no_hint",
        "nobodys",
        "elsewhere",
    }
)
"""Troubles that may concern any key, whatever the subject of the trouble."""

_OF_A_PARTITION: frozenset[Event] = frozenset({"fetch_failed", "commit_failed", "batch_skipped", "full"})
"""Troubles whose subject is a partition; fetch_failed also has no subject, for all partitions."""

_OF_A_SOURCE: frozenset[Event] = frozenset(
    {"load_failed", "dropped", "feed_down", "feed_lacks", "feed_skipped", "feed_unmapped"}
)
"""Troubles whose subject is a source. A namespace may have the same name."""


class Explainer:
    """The page `/explain` of one service."""

    def __init__(
        self,
        door: Door,
        around: Surroundings,
        pricing: Pricing,
        *,
        partitions: Mapping[int, Partition],
        feeds: Sequence[Mapping[str, object]] = (),
        sections: Mapping[str, NamespaceSection],
    ) -> None:
        """`partitions` are the partitions that this process owns at the moment, `feeds` what it knows of its feeds, and
        `sections` the namespaces as the configuration has them."""
        self._sections = sections
        self._feeds = feeds
        self._door = door
        self._around = around
        self._pricing = pricing
        self._partitions = partitions

    async def page(self, key: bytes) -> dict[str, object]:
        """Everything that is known here about the key, for JSON."""
        now = asyncio.get_running_loop().time()
        # a queue that was not found yet has no partitions
        number = wire.partition_of(key, self._door.partitions) if self._door.partitions else None
        resolved = self._around.keyspace.resolve(key)
        section = self._sections.get(resolved.name) if resolved else None
        # a key that only begins like a pattern has none: its hints are dropped, whatever a policy thinks of them
        namespace = resolved if resolved and resolved.pattern.takes(key) else None
        ours = None if number is None else self._partitions.get(number)
        return {
            "version": __version__,
            "namespace": namespace.name if namespace else None,
            "declared": declared_in(section, self._sections, key).plain(),
            "accepting": self._door.open_now,
            "partition": number,
            "partitions": self._door.partitions,
            "owner": "this updater" if ours else await self._owner(number),
            "ours": ours is not None,
            "session": self._door.session,
            "troubles": self._troubles(namespace, number),
            "lives_on": _lives_on(namespace),
            "paused": self._paused(namespace),
            "left_alone": namespace is not None and self._around.judging.is_foreign(namespace),
            **(self._held(ours, key, namespace, now=now) if ours else {}),
            "last": self._last(key, now),
            "policy": self._policy(namespace, number, key, now),
            "feed": self._feed(namespace),
        }

    async def _owner(self, partition: int | None) -> str | None:
        try:
            return None if partition is None else await self._door.owner(partition)
        except CacheUpdaterError as e:
            return f"unknown: {e}"

    def _held(
        self, ours: Partition, key: bytes, namespace: Namespace | None, *, now: float
    ) -> dict[str, object]:
        found = ours.engine.explain(key, now)
        barred = found.quarantined
        short = self._short(namespace, now, seated=found.seat is not NO_SEAT) if namespace else None
        return {
            "seat": None if found.seat is NO_SEAT else found.seat._asdict(),
            "absent": found.absent,
            "quarantined": {
                "error": barred.error,
                "since": now - barred.since,
                "left": max(0.0, barred.until - now),
                "refused": barred.refused is not None,
            }
            if barred and not barred.free
            else None,
            "open": ours.engine.pending,
            "full": ours.engine.full,
            "short": None if short is None else short._asdict(),
        }

    def _short(self, namespace: Namespace, now: float, *, seated: bool) -> Shortage | None:
        """A key with a seat need not wait for those that a policy has not asked for yet."""
        known = self._pricing.policies
        policies = [] if seated else [known[each] for each in self._partitions if each in known]
        return shortage(namespace, self._pricing.limits.backlog_age, now, worthy=worthy(policies, now))

    def _paused(self, namespace: Namespace | None) -> dict[str, object] | None:
        pause = self._around.paused.pauses.get(namespace) if namespace else None
        wall = self._around.wall
        lasted = max(0.0, wall() - pause.since) if pause and pause.since is not None and wall else None
        return {"by": pause.by, "since": lasted} if pause else None

    def _last(self, key: bytes, now: float) -> dict[str, object] | None:
        last = self._around.recent.last(key)
        return last._asdict() | {"at": now - last.at} if last else None

    def _policy(
        self, namespace: Namespace | None, partition: int | None, key: bytes, now: float
    ) -> dict[str, object] | None:
        if namespace is None:
            return None
        if namespace.terms is None:
            return {"name": "fixed", "every": namespace.every}
        policy = None if partition is None else self._pricing.policies.get(partition)
        known = view(policy, key, now) if isinstance(policy, Price) else None
        return {"name": "price", "known": None if known is None else known._asdict()}

    def _feed(self, namespace: Namespace | None) -> Mapping[str, object] | None:
        """The feed that tells changes of this namespace; others of its source may have none."""
        name = namespace.name if namespace else ""
        return next((each for each in self._feeds if name in cast("Sequence[str]", each["namespaces"])), None)

    def _troubles(self, namespace: Namespace | None, partition: int | None) -> list[dict[str, object]]:
        """The standing troubles that may concern a key of this namespace and partition."""
        return [
            each
            for each in self._around.notices.plain()
            if each["event"] in _EVERYBODYS
            or (each["event"] in _OF_A_PARTITION and each["subject"] in {"", str(partition)})
            or (namespace and _concerns(each, namespace))
        ]


def _concerns(trouble: Mapping[str, object], namespace: Namespace) -> bool:
    """Whether a trouble is about this namespace or its source."""
    name, source, subject = namespace.name, namespace.source.name, trouble["subject"]
    if trouble["event"] == "quarantined":  # told of each such key, and no concern of the others
        return False
    if trouble["event"] == "fleet_down":  # of a budget, or of a quota
        return subject in {of_quota(name), source}
    return subject == (source if trouble["event"] in _OF_A_SOURCE else name)


def _lives_on(namespace: Namespace | None) -> float | None:
    """How old a value may get while its source fails, in seconds; None unless the source fails now."""
    if namespace is None or not namespace.fail_safe or not namespace.source.outage.concerns(namespace):
        return None
    return namespace.ttl + namespace.fail_safe
