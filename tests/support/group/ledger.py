"""Were all hints served, and was anything committed too early? Pure numpy over the records of a run.

The stories of the group (`group_story`) gather five lists: the hints that a generator emitted, the loads that PostgreSQL saw
begin, the records of the queue, the commits of the group, and the values of Redis and the table at rest. This module compares
them, and relies on nothing that an updater says of itself. Times are whole microseconds of Unix time, all of one machine. Keys
are the numbers in their names. Each check is one pass over sorted arrays, so ten million hints are fine.

A hint needs a load that began at or after its time less a slack. A change has no slack. For a touch, which an earlier load may
cover, the slack is the hold. For a miss, which is served by a load that *ends* after it, the slack is the gap and the longest
life of a head.
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
    """Hints, in the order in which they were emitted."""

    keys: np.ndarray
    kinds: np.ndarray
    times: np.ndarray


class Records(NamedTuple):
    """The content of the queue: a line for each key of each record."""

    partitions: np.ndarray
    offsets: np.ndarray
    kinds: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    removed: np.ndarray | None = None  # when each was removed; a topic removes none
    put: np.ndarray | None = None  # when each came, if touches lie apart from the others (lanes)


class Commits(NamedTuple):
    """The commits of one group, in the order in which the queue took them."""

    partitions: np.ndarray
    offsets: np.ndarray
    times: np.ndarray  # no commit came later than this


class Values(NamedTuple):
    """The values in Redis: a line for each existing key."""

    keys: np.ndarray
    versions: np.ndarray
    read: np.ndarray  # when the load of this value began


class Loads:
    """The times of each key's loads, for finding the next load since a time."""

    def __init__(self, keys: np.ndarray, times: np.ndarray) -> None:
        self._origin = int(times.min()) - 3600 * SECOND if len(times) else 0
        self._line = np.sort(self._place(keys, times))
        self.count = len(keys)

    def _place(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        return (keys.astype(np.int64) << _TIME_BITS) | np.maximum(times - self._origin, 0)

    def next_since(self, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
        """When the first load of each key at or after its time began; NEVER if there is none."""
        if not len(self._line):
            return np.full(len(keys), NEVER)
        at = np.searchsorted(self._line, self._place(keys, times))
        found = self._line[np.minimum(at, len(self._line) - 1)]
        there = (at < len(self._line)) & (found >> _TIME_BITS == keys)
        return np.where(there, (found & ((1 << _TIME_BITS) - 1)) + self._origin, NEVER)

    def widest_gaps(self, owner: np.ndarray, start: float, end: float) -> np.ndarray:
        """The longest time without a load between these seconds, for each owner of keys. `owner` is by key."""
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
        """The earliest begin of a load that serves each hint."""
        by_kind = np.zeros(3, dtype=np.int64)
        by_kind[[TOUCH, MISS, CHANGE]] = self
        return times - by_kind[kinds]


# --- the checks -----------------------------------------------------------------------------------------


def lost(hints: Hints, loads: Loads, slack: Slack) -> np.ndarray:
    """L1: the hints that no load has served."""
    return loads.next_since(hints.keys, slack.needs(hints.kinds, hints.times)) == NEVER


def unserved(hints: Hints, values: Values, slack: Slack) -> np.ndarray:
    """L1 at rest: hints whose value in Redis is too old, or absent. Nothing was dropped, so every hint needs its value."""
    highest = max(values.keys.max(initial=0), hints.keys.max(initial=0))
    read = np.full(highest + 1, -NEVER)
    read[values.keys] = values.read
    return read[hints.keys] < slack.needs(hints.kinds, hints.times)


def astray(hints: Hints, records: Records) -> int:
    """The number of hints that are missing in the queue. (A resent record may give it too many.)"""
    return int(np.maximum(_missing(hints, records), 0).sum())


def repeated(hints: Hints, records: Records) -> int:
    """The number of hints that the queue has twice: a producer repeats records that a slow broker confirms too late."""
    return int(np.maximum(-_missing(hints, records), 0).sum())


def _missing(hints: Hints, records: Records) -> np.ndarray:
    """For each key and kind, the number of emitted hints that are not in the queue; negative for hints that are there twice."""
    shape = max(hints.keys.max(initial=0), records.keys.max(initial=0)) + 1
    emitted = np.bincount(hints.kinds * shape + hints.keys, minlength=3 * shape)
    arrived = np.bincount(records.kinds * shape + records.keys, records.counts, minlength=3 * shape)
    return emitted - arrived.astype(np.int64)


def early(hints: Hints, records: Records, commits: Commits, *, loads: Loads, slack: Slack) -> np.ndarray:
    """K1: the lines of records that were committed before a load had begun for their last hint.

    A record's counts say how many hints of a key it holds. Hints of a key and kind arrive in order, so the sum of the counts
    shows which hint of the ledger was its last. Only for queues into which nothing was sent twice. A record that an owner
    has removed alone, before `done` came there, counts as committed then.
    """
    needs = slack.needs(records.kinds, _last_times(hints, records))
    served = loads.next_since(records.keys, needs)
    return served > passed(records, commits)


def _last_times(hints: Hints, records: Records) -> np.ndarray:
    """For each line of a record, when its last hint was emitted."""
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


def passed(records: Records, commits: Commits) -> np.ndarray:
    """For each line of a record, when nothing stood for it any more; NEVER if something does."""
    found = np.minimum(_removed(records), _reached(records, commits))
    return found if records.put is None else _apart(records, records.put, found)


def _reached(records: Records, commits: Commits) -> np.ndarray:
    """For each line of a record, when a commit passed it; NEVER if none did."""
    found = np.full(len(records.offsets), NEVER)
    for partition in np.unique(records.partitions):
        mine = commits.partitions == partition
        reached, times = np.maximum.accumulate(commits.offsets[mine]), commits.times[mine]
        if len(reached):
            here = records.partitions == partition
            at = np.searchsorted(reached, records.offsets[here], side="right")
            found[here] = np.where(at < len(reached), times[np.minimum(at, len(times) - 1)], NEVER)
    return found


def _removed(records: Records) -> np.ndarray:
    """For each line of a record, when it was removed, and nothing of its lane stood for it; NEVER if something does.

    A hint may merge into one that waits: an older one of its key, which is as strong. Then the older record stands for both.
    """
    if records.removed is None:
        return np.full(len(records.offsets), NEVER)
    gone = records.removed.copy()
    for kind in (TOUCH, MISS, CHANGE):  # the weakest first
        own = records.kinds == kind
        in_line = own if kind == TOUCH and records.put is not None else records.kinds >= kind
        strong = np.flatnonzero(in_line)
        line = strong[np.lexsort((records.offsets[strong], records.keys[strong]))]
        gone[own] = _latest(records.keys, gone, line)[own]
    return gone


def _apart(records: Records, put: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The same where touches lie apart: a stronger hint that came before a touch was finished may stand for the touch.

    The stronger one may have been read first, whichever came first.
    """
    touches = records.kinds == TOUCH
    line = np.lexsort((np.where(touches, found, put), records.keys))
    return np.where(touches, _latest(records.keys, found, line), found)


def _latest(keys: np.ndarray, removed: np.ndarray, line: np.ndarray) -> np.ndarray:
    """For each of these lines of records, the latest removal of those of its key up to there. They are sorted by key."""
    most = (1 << _TIME_BITS) - 1
    origin = int(removed.min(initial=NEVER)) - 1
    since = np.minimum(removed - origin, most)
    latest = np.maximum.accumulate((keys[line] << _TIME_BITS) | since[line]) & most
    found = removed.copy()
    found[line] = np.where(latest == most, NEVER, latest + origin)
    return found


def moved_back(commits: Commits) -> int:
    """K1: the number of commits that were behind an earlier one of their partition."""
    back = 0
    for partition in np.unique(commits.partitions):
        offsets = commits.offsets[commits.partitions == partition]
        back += int((offsets < np.maximum.accumulate(offsets)).sum())
    return back


def stale(values: Values, rows: np.ndarray) -> np.ndarray:
    """S2: the values with another version than their row. `rows` are versions by key."""
    return values.versions != rows[values.keys]
