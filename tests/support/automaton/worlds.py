"""The small worlds of the automaton's stories: limits, namespaces and budgets drawn from a seed.

All times are multiples of a tick, 1/32 s, so that floats are exact and "just now" happens often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater_client.protocol.patterns import Pattern

if TYPE_CHECKING:
    from random import Random

TICK = 1 / 32
GAP = 4 * TICK
PATTERNS = [Pattern.compile(f"{name}:{{id:int}}") for name in "abc"]


def draw_limits(rng: Random) -> Limits:
    pick = rng.choice
    return Limits(
        gap=GAP,
        head_timeout=24 * TICK,
        unit_keys=pick((1, 2, 3, 200)),
        gather=pick((0.0, 2 * TICK)),
        pace=pick((0.0, 8 * TICK)),
        max_attempts=pick((2, 3)),
        backoff=4 * TICK,
        backoff_max=16 * TICK,
        backlog_age=pick((64 * TICK, 30.0)),
        quarantined=pick((1, 1000)),
        quarantine_for=32 * TICK,
        absent=1000,
        prune=8 * TICK,
        removals=0,  # none waits for its rate: `test_removing` covers that
        senders_wait=False,
    )


def draw_namespaces(rng: Random, now: float) -> list[Namespace]:
    pick = rng.choice
    limited = rng.random() < 0.3
    source = Source("db", _limited(rng, now) if limited else _plenty(now), concurrency=pick((1, 2, 100, 100)))
    return [
        Namespace(
            pattern.text[0],
            pattern,
            source,
            every=pick((0.0, 2 * TICK, 16 * TICK)),
            ttl=pick((32 * TICK, 300.0)),
            missing_ttl=pick((0.0, 16 * TICK)),
            max_backlog=pick((2, 10_000, 10_000)),
            quota=_limited(rng, now) if rng.random() < 0.15 else None,
        )
        for pattern in PATTERNS[: pick((1, 1, 2, 3))]
    ]


def _limited(rng: Random, now: float) -> Bucket:
    return Bucket(rng.choice((4.0, 16.0)), rng.choice((1.0, 3.0)), now=now)


def _plenty(now: float) -> Bucket:
    return Bucket(2.0**30, 2.0**30, now=now - 1.0)
