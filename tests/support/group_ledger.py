"""Were all hints served, and was anything committed too early? Pure numpy over what a run has left behind.

The stories of the group (`group_story`) gather five lists: the hints that a generator emitted, the loads that PostgreSQL
saw begin, the records of the topic, the commits of the group, and what Redis and the table hold at rest. Here they are held
against each other; nothing that an updater says of itself is believed. Times are whole microseconds of Unix time, all of
one machine; keys are the numbers in their names. Each check is one pass over sorted arrays, so ten million hints are fine.

A hint needs a load that began at or after its time less a slack: none for a change; the hold for a touch, which an earlier
load may cover; the gap and the longest life of a head for a miss, which is served by a load that *ends* after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

SECOND = 1_000_000
MILLISECOND = 1_000
NEVER = np.int64(2**62)
_TIME_BITS = 42  # microseconds in a composite of key and time: 50 days


class Hints(NamedTuple):
    """In the order in which they were emitted."""

    keys: np.ndarray
    kinds: np.ndarray
    times: np.ndarray


class Records(NamedTuple):
    """What lies in the topic: a line for each key of each record."""

    partitions: np.ndarray
    offsets: np.ndarray
    kinds: np.ndarray
    keys: np.ndarray
    counts: np.ndarray


class Commits(NamedTuple):
    """Of one group, in the order in which the broker took them."""

    partitions: np.ndarray
    offsets: np.ndarray
    times: np.ndarray  # no commit came later than this


class Values(NamedTuple):
    """What Redis holds: a line for each key that is there."""

    keys: np.ndarray
    versions: np.ndarray
    read: np.ndarray  # when the load began that has brought it


class Loads:
    """When each key was loaded; asked for the next load since a time."""

    def __init__(self, keys: np.ndarray, times: np.ndarray) -> None:
        self._origin = int(times.min()) - 3600 * SECOND if len(times) else 0
        self._line = np.sort(self._place(keys, times))
        self.count = len(keys)

    def _place(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        return (keys.astype(np.int64) << _TIME_BITS) | np.maximum(times - self._origin, 0)

    def next_since(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        """When the first load of each key at or after its time began; NEVER."""
        if not len(self._line):
            return np.full(len(keys), NEVER)
        at = np.searchsorted(self._line, self._place(keys, times))
        found = self._line[np.minimum(at, len(self._line) - 1)]
        there = (at < len(self._line)) & (found >> _TIME_BITS == keys)
        return np.where(there, (found & ((1 << _TIME_BITS) - 1)) + self._origin, NEVER)

    def widest_gaps(self, owner: np.ndarray, start: float, end: float) -> np.ndarray:
        """Of each owner of keys, the longest time without a load between these seconds. `owner` is by key."""
        owners = owner[self._line >> _TIME_BITS]
        times = ((self._line & ((1 << _TIME_BITS) - 1)) + self._origin) / SECOND
        within = (times > start) & (times < end)
        gaps = np.zeros(int(owner.max()) + 1)
        for each in range(len(gaps)):
            own = np.sort(times[within & (owners == each)])
            gaps[each] = np.diff(own, prepend=start, append=end).max()
        return gaps


class Slack(NamedTuple):
    """Microseconds that a load may have begun before the hint that it serves, by kind."""

    touch: int
    miss: int
    change: int = 0

    def needs(self, kinds: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Since when a load serves."""
        by_kind = np.zeros(3, dtype=np.int64)
        by_kind[[TOUCH, MISS, CHANGE]] = self
        return times - by_kind[kinds]


# --- the checks -----------------------------------------------------------------------------------------


def lost(hints: Hints, loads: Loads, slack: Slack) -> np.ndarray:
    """L1: which hints no load has served."""
    return loads.next_since(hints.keys, slack.needs(hints.kinds, hints.times)) == NEVER


def unserved(hints: Hints, values: Values, slack: Slack) -> np.ndarray:
    """L1 at rest: for which hints the value in Redis is too old, or not there. Nothing was dropped, so all must be."""
    highest = max(values.keys.max(initial=0), hints.keys.max(initial=0))
    read = np.full(highest + 1, -NEVER)
    read[values.keys] = values.read
    return read[hints.keys] < slack.needs(hints.kinds, hints.times)


def astray(hints: Hints, records: Records) -> int:
    """How many hints the topic has too few of; a resent record may give it too many."""
    return int(np.maximum(_missing(hints, records), 0).sum())


def repeated(hints: Hints, records: Records) -> int:
    """How many hints the topic has too many of: a producer sends again what a slow broker did not confirm in time."""
    return int(np.maximum(-_missing(hints, records), 0).sum())


def _missing(hints: Hints, records: Records) -> np.ndarray:
    """Of each key and kind: hints that were emitted and are not in the topic; below zero are those that are there twice."""
    shape = max(hints.keys.max(initial=0), records.keys.max(initial=0)) + 1
    emitted = np.bincount(hints.kinds * shape + hints.keys, minlength=3 * shape)
    arrived = np.bincount(records.kinds * shape + records.keys, records.counts, minlength=3 * shape)
    return emitted - arrived.astype(np.int64)


def early(hints: Hints, records: Records, commits: Commits, *, loads: Loads, slack: Slack) -> np.ndarray:
    """K1: which lines of records were committed before a load had begun for their last hint.

    A record's counts say how many hints of a key it holds, and hints of a key and kind arrive in their order, so the sum of the
    counts tells which hint of the ledger was its last. Only for topics in which nothing was sent twice.
    """
    needs = slack.needs(records.kinds, _last_times(hints, records))
    served = loads.next_since(records.keys, needs)
    return served > _passed(records, commits)


def _last_times(hints: Hints, records: Records) -> np.ndarray:
    """Of each line of a record, when the last hint that it holds was emitted."""
    shape = max(hints.keys.max(initial=0), records.keys.max(initial=0)) + 1
    asked = hints.kinds * shape + hints.keys
    order = np.argsort(asked, kind="stable")
    ledger, times = asked[order], hints.times[order]

    said = records.kinds * shape + records.keys
    line = np.lexsort((records.offsets, said))
    total = np.cumsum(records.counts[line])
    first = np.searchsorted(said[line], said[line], side="left")
    within = total - (total[first] - records.counts[line][first])  # hints of this key and kind up to here
    at = np.searchsorted(ledger, said[line], side="left") + within - 1
    known = at < np.searchsorted(ledger, said[line], side="right")
    if not known.all():
        raise ValueError(f"{(~known).sum()} lines of records hold more hints than were emitted")
    last = np.empty(len(line), dtype=np.int64)
    last[line] = times[at]
    return last


def _passed(records: Records, commits: Commits) -> np.ndarray:
    """Of each line of a record, when a commit had gone beyond it; NEVER."""
    passed = np.full(len(records.offsets), NEVER)
    for partition in np.unique(records.partitions):
        mine = commits.partitions == partition
        reached, times = np.maximum.accumulate(commits.offsets[mine]), commits.times[mine]
        if len(reached):
            here = records.partitions == partition
            at = np.searchsorted(reached, records.offsets[here], side="right")
            passed[here] = np.where(at < len(reached), times[np.minimum(at, len(times) - 1)], NEVER)
    return passed


def moved_back(commits: Commits) -> int:
    """K1: how many commits were behind an earlier one of their partition."""
    back = 0
    for partition in np.unique(commits.partitions):
        offsets = commits.offsets[commits.partitions == partition]
        back += int((offsets < np.maximum.accumulate(offsets)).sum())
    return back


def stale(values: Values, rows: np.ndarray) -> np.ndarray:
    """S2: which values are of another version than their row; `rows` are versions by key."""
    return values.versions != rows[values.keys]
