"""Until when a backlog rests. None of its keys may start before, whatever its source can pay.

`schedule` asks about a backlog to which something has come, and before it starts a unit. The keys of a resting backlog wait
for a slot of suspects, for the absent bucket, for company, for their quota, or for a quiet moment. Plain functions of the
backlog and of `now`: nothing is remembered.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.unit import PATIENT

if TYPE_CHECKING:
    from cacheupdater.core.backlog import Backlog
    from cacheupdater.core.budget import Source
    from cacheupdater.core.limits import Limits

MOMENT = 1e-6
"""Seconds: rounding in a bucket must not wake us at the very same time again."""

_QUIET = 0.5  # share of a full bucket above which patient keys are served: `price` aims at just that level


def rests_until(backlog: Backlog, limits: Limits, now: float) -> float:
    """When the backlog may start a unit: `now`, or later; inf: once something else has happened."""
    ready, namespace = backlog.ready, backlog.namespace
    quota = namespace.quota
    if (backlog.slow_waits or backlog.known_waits) and is_apart(backlog):
        return inf
    if backlog.unseen_wait and ready == backlog.live[PATIENT]:
        paid = max(now + MOMENT, namespace.absent_bucket.opens_at(now))
        return min(paid, quiet_from(namespace.source, now)) if ready else paid
    # no free connection waits while a reader or a change does: company comes while all of them are busy
    if ready < limits.unit_keys and now < backlog.last_partial + limits.gather and not backlog.urgent:
        return backlog.last_partial + limits.gather
    if quota is not None:
        enough = min(limits.unit_keys, ready, quota.share(limits.pace))
        if quota.rows(now) < enough:
            return max(now + MOMENT, quota.when(enough))
    if ready == backlog.live[PATIENT]:
        return quiet_from(namespace.source, now)
    return now


def is_apart(backlog: Backlog) -> bool:
    """Whether nothing is left but suspects that wait for the end of another one."""
    return 0 < backlog.withheld == backlog.queued


def quiet_from(source: Source, now: float) -> float:
    """When the bucket holds more than urgent keys need."""
    quiet = source.bucket.burst * _QUIET
    return now if source.bucket.level(now) >= quiet else max(now + MOMENT, source.bucket.when(quiet))
