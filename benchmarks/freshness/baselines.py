"""Other policies: four with one interval per cache, tuned until they cost the budget, one with a cap, and an oracle.

The four on-access policies differ in what a read does at a copy's age. *TTL*: past T the read waits for a load. *XFetch*: the
same, a little early by chance (beta 1, loads of 50 ms). *Refresh-ahead*: from 0.75 T on a load runs in the background; past T
the read waits. *Min-interval*: past T a load runs in the background, and no read waits; this is the policy `fixed`. The
*capped article* is min-interval whose loads queue, one place per key, for the tokens of a bucket. It is the only one with a
hard cap. The *oracle* knows every true rate and refreshes at fixed intervals, with rates proportional to sqrt(mu lam).

At the start the copies' ages are spread evenly, as in a cache that has run for a while. The code is compiled, and runs key by
key where keys do not affect each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshness.compiled import Csr, after, by_key, compiled
from freshness.truth import Refreshes, stale_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from freshness.worlds import World

INF = float("inf")
LOAD_S = 0.05  # what XFetch assumes of a load
EARLIEST = 40  # times LOAD_S: earlier than that, XFetch's chance is e^-40
AHEAD = 0.75
TOLERANCE = 0.002  # relative, of the measured rows; well inside the protocol's 0.5 %
SEED = 7


class Rule(NamedTuple):
    """On access: from age `soft` on a load runs in the background, from `hard` on the read waits for it."""

    soft: float
    hard: float
    early: float = 0.0  # seconds: mean of the random time by which `hard` comes early


def ttl(t: float) -> Rule:
    return Rule(INF, t)


def xfetch(t: float) -> Rule:
    return Rule(INF, t, LOAD_S)


def ahead(t: float) -> Rule:
    return Rule(AHEAD * t, t)


def least_interval(t: float) -> Rule:
    return Rule(t, INF)


ON_ACCESS: dict[str, Callable[[float], Rule]] = {
    "ttl": ttl,
    "xfetch": xfetch,
    "ahead": ahead,
    "min-interval": least_interval,
}


def on_access(world: World, rule: Rule) -> Refreshes:
    """All refreshes of this rule."""
    terms = (*rule, world.warm)
    counts, _ = _counted(world.reads, terms, np.random.default_rng(SEED))
    start = np.concatenate([[0], np.cumsum(counts)])
    times = np.empty(start[-1])
    blocked = _filled(world.reads, terms, np.random.default_rng(SEED), (times, start))
    return Refreshes(Csr(start, times), blocked)


def rows_of(world: World, rule: Rule) -> float:
    """Rows per second after the warm-up."""
    return _counted(world.reads, (*rule, world.warm), np.random.default_rng(SEED))[1] / world.judged


def tuned(world: World, policy: Callable[[float], Rule], budget: float) -> Rule:
    """The interval at which this policy costs so many rows per second."""
    return policy(_solve(lambda t: rows_of(world, policy(t)), budget, world.keys / budget))


def equally_fresh(world: World, stale: float) -> float:
    """Rows per second that min-interval needs for this share of stale reads."""

    def measured(t: float) -> float:
        return stale_share(world, on_access(world, least_interval(t)))

    t = _solve(lambda t: 1 / max(measured(t), 1e-9), 1 / max(stale, 1e-9), world.seconds / 20)
    return rows_of(world, least_interval(t))


def _solve(measure: Callable[[float], float], wanted: float, guess: float) -> float:
    """The t at which a decreasing measure takes the wanted value. Brackets it, then halves in logarithms."""
    low = high = guess
    while measure(low) < wanted and low > 1e-4:
        high, low = low, low / 2
    if high == low:
        while measure(high) > wanted and high < 1e7:
            low, high = high, high * 2
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        got = measure(middle)
        if abs(got - wanted) <= TOLERANCE * wanted:
            return middle
        low, high = (middle, high) if got > wanted else (low, middle)
    return (low * high) ** 0.5


def capped(world: World, budget: float, burst: float, interval: float) -> Refreshes:
    """The article with this interval, under a bucket of this rate and burst (rows) that starts empty."""
    first = -_spread(world.keys) * interval
    terms = (interval, budget, max(burst, 1.0), world.seconds)
    times, keys = _queued(world.times, world.ids, terms, first)
    return Refreshes(by_key(times, keys, world.keys))


def best_capped(world: World, budget: float, burst: float) -> Refreshes:
    """The article with its best interval, found by a coarse search, then finer ones."""
    base = tuned(world, least_interval, budget).soft
    tried: dict[float, float] = {}

    def stale(factor: float) -> float:
        if factor not in tried:
            tried[factor] = stale_share(world, capped(world, budget, burst, base * factor))
        return tried[factor]

    best = min((0.1, 0.5, 0.8, 1.0, 1.3, 2.0), key=stale)
    for step in (1.2, 1.08, 1.03):
        best = min((best / step, best, best * step), key=stale)
    return capped(world, budget, burst, base * best)


def scheduled(world: World, rates: np.ndarray) -> Refreshes:
    """Refreshes at fixed intervals, each key at its own rate and a random phase."""
    phase = _spread(world.keys)
    counts = np.ceil(np.maximum(world.seconds * rates - phase, 0.0)).astype(np.int64)
    start = np.concatenate([[0], np.cumsum(counts)])
    nth = np.arange(start[-1]) - np.repeat(start[:-1], counts)
    each = np.repeat(np.arange(world.keys), counts)
    return Refreshes(Csr(start, (nth + phase[each]) / rates[each]))


def sqrt_rates(world: World, budget: float) -> np.ndarray:
    """The five-line policy of an oracle that knows every rate."""
    wanted = np.sqrt(world.mu * world.lam)
    return wanted * (budget / wanted.sum())


def _spread(n: int) -> np.ndarray:
    return np.random.default_rng(SEED).random(n)


@compiled
def _counted(reads, terms, rng):
    counts = np.zeros(len(reads.start) - 1, np.int64)
    nowhere = (np.empty(0), -1)
    judged = 0
    for key in range(len(counts)):
        own = reads.times[reads.start[key] : reads.start[key + 1]]
        counts[key], late, _ = _one_key(own, terms, rng, nowhere)
        judged += late
    return counts, judged


@compiled
def _filled(reads, terms, rng, into):
    out, start = into
    blocked = 0
    for key in range(len(start) - 1):
        own = reads.times[reads.start[key] : reads.start[key + 1]]
        blocked += _one_key(own, terms, rng, (out, start[key]))[2]
    return blocked


@compiled
def _one_key(times, terms, rng, into):
    """Three counts of one key's refreshes: all, those after the warm-up, and those of the latter that a read waited for."""
    soft, hard, early, warm = terms
    out, at = into
    nearest = min(soft, hard - EARLIEST * early)
    last = -rng.random() * min(soft, hard)
    i = count = judged = blocked = 0
    while i < len(times):
        moment = times[i]
        if moment - last < nearest:
            i = after(times, i, len(times), last + nearest)
            continue
        age = moment - last
        waits = age + (rng.exponential(early) if early > 0 else 0.0) >= hard
        if waits or age >= soft:
            last = moment
            if at >= 0:
                out[at + count] = np.nextafter(moment, -INF) if waits else moment
            count += 1
            if moment >= warm:
                judged += 1
                blocked += waits
        i += 1
    return count, judged, blocked


@compiled
def _queued(times, ids, terms, last):
    interval, rate, burst, end = terms
    room = int(rate * end + burst) + 2
    out_times, out_keys = np.empty(room), np.empty(room, np.int32)
    n = len(last)
    queue, since = np.empty(n, np.int32), np.empty(n)
    waits = np.zeros(n, np.bool_)
    head = tail = served = 0
    tokens = at = 0.0
    for i in range(len(times)):
        moment = times[i]
        while head < tail:
            key = queue[head % n]
            now = max(since[head % n], at)
            held = min(burst, tokens + (now - at) * rate)
            if held < 1:
                now += (1 - held) / rate
                held = 1.0
            if now > moment:
                break
            tokens, at = held - 1, now
            out_times[served], out_keys[served] = now, key
            served += 1
            last[key] = now
            waits[key] = False
            head += 1
        key = ids[i]
        if not waits[key] and moment - last[key] >= interval:
            waits[key] = True
            queue[tail % n], since[tail % n] = key, moment
            tail += 1
    return out_times[:served], out_keys[:served]
