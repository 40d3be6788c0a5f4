"""A group of real updaters over a real queue, under load, and the verdict on a run.

A story starts some updaters, lets a generator emit, does its harm, and asks for the verdict, which `group.ledger` computes. A
verdict waits until the group has committed the whole queue. It counts faults; all its numbers must be 0. The queue is a
`topic.Topic`, or one of `depots`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from live.updater_process import ROOT, config

from cacheupdater.core.limits import Limits
from cacheupdater.local.children import dying_with_us
from group import ledger
from group import rows as group_rows
from group.ledger import SECOND, Hints, Slack
from group.rows import KEYS

PARTITIONS = 12
HOLD_S = 10
SESSION_S = 3
REST_S = 60.0  # for a backlog after a storm, on a machine that has other things to do
FREEZES = 40  # tries to freeze a member outside a write; a write takes milliseconds
THAWED_S = 0.05  # between two tries, for the end of that write
SUPPORT = Path(__file__).parent
PLANTED = str(SUPPORT / "planted.py")
LATE = str(SUPPORT / "late.py")

# Stories start dozens of processes. If a run forbids bytecode, each would compile all its imports: 4 s instead of 1.
QUICK_START = {
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "cacheupdater-bytecode")),
}

_LIMITS = Limits()
# a touch: the clocks of a process and of the machine may drift apart by a thousandth; a miss: see group.ledger
SLACK = Slack(touch=round(HOLD_S * 1.001 * SECOND), miss=round((_LIMITS.gap + _LIMITS.head_timeout) * SECOND))


class Verdict(NamedTuple):
    """The faults, in hints, records, commits and values, and the numbers checked."""

    lost: int  # hints that no load has served
    unserved: int  # hints without a value in Redis that was loaded for them
    astray: int  # hints that never reached the queue
    early: int  # keys of records that were committed before their load
    moved_back: int  # commits
    stale: int  # values at rest
    repeated: int  # hints that the queue has twice; if there are any, `early` is not known
    hints: int
    loads: int
    commits: int
    values: int
    rate: float

    @property
    def faults(self):
        return {name: getattr(self, name) for name in self._fields[:6] if getattr(self, name)}

    def __str__(self):
        return (
            f"{self.hints:,} hints ({self.rate:,.0f}/s), {self.loads:,} rows loaded, {self.commits:,} commits,"
            f" {self.values:,} values; faults: {self.faults or 'none'}"
        )


class Emitted(NamedTuple):
    """The records of a generator."""

    hints: Hints
    stats: dict
    took: float
    memory: np.ndarray  # (seconds of Unix time, bytes)

    def of(self, kind):
        """The hints of one kind alone."""
        return self._replace(hints=Hints(*(each[self.hints.kinds == kind] for each in self.hints)))


class Child:
    """A program beside this file that works until its input is closed, and saves its records. `with` ends it in any case."""

    def __init__(self, program, folder, **said):
        self._out = folder / f"{program}-{time.monotonic_ns()}.npz"
        said["out"] = str(self._out)
        imports = os.pathsep.join((str(ROOT), str(ROOT / "client"), str(SUPPORT.parent)))
        self._process = subprocess.Popen(
            dying_with_us([sys.executable, str(SUPPORT / program), json.dumps(said)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **QUICK_START, "PYTHONPATH": imports},  # noqa: TID251  a child inherits it
        )

    def __enter__(self):
        assert self._process.stdout.readline() == b"emitting\n"
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def saved(self, within=90.0):
        """Stops it if it still runs. Returns the arrays that it saved."""
        self._process.stdin.close()
        assert self._process.wait(within) == 0
        with np.load(self._out) as saved:
            return {**saved, "said": json.loads(str(saved["said"]))}


class Generator(Child):
    """See `group.generator`."""

    def end(self):
        """Stops it. Returns the hints that it emitted."""
        saved = self.saved()
        hints = Hints(saved["keys"].astype(np.int64), saved["kinds"], saved["times"])
        return Emitted(hints, saved["said"]["stats"], saved["said"]["took"], saved["memory"])


class Group:
    """Some updaters of one group, on a queue and a table of this test's own."""

    def __init__(self, folder, updaters, *, queue, rows, redis_url):
        self.folder = folder
        self.queue, self.rows, self.redis_url = queue, rows, redis_url
        self.emit = queue.emit
        self.members = []
        self._updaters = updaters

    def settings(self, *, session=SESSION_S, budget="6000/s", instance=None, **namespace):
        """The configuration of a member."""
        source = {"url": self.rows.url, "budget": budget, "statement_timeout": "1.8s", "pool_size": 5}
        items = {
            "key": group_rows.PATTERN,
            "load": {"source": "main", "sql": group_rows.SQL},
            "value": group_rows.VALUE,
            "max_backlog": KEYS,
            "ttl": "1h",
        }
        base = config(
            self.redis_url, {"main": source}, {"item": items | namespace}, every=f"{HOLD_S}s", partitions=1
        )
        return base | {"listen": None, "queue": {"url": self.queue.url(session, instance)}}

    def start(self, count, *, program=None, environment=None, **settings):
        """Starts some more members, at once. An `instance` gets a number."""
        new = []
        for _ in range(count):
            number = len(self.members)
            own = dict(settings)
            if "instance" in own:
                own["instance"] = f"{own['instance']}-{number}"
            given = {**QUICK_START, **(environment or {})}
            member = self._updaters.make(self.settings(**own), program=program, environment=given)
            self.members.append(member)
            new.append(member)
        for each in new:
            each.launch()
        for each in new:
            each.wait_ready()
        return new

    def freeze(self, member):
        """Not in the middle of a write to a file of SQLite: that would hold up all others."""
        for _ in range(FREEZES):
            member.pause()
            if self.queue.is_free():
                return
            member.resume()
            time.sleep(THAWED_S)
        raise AssertionError(f"{FREEZES} times, the member was frozen in the middle of a write to the queue")

    def generator(self, **said):
        """A generator that emits for at most `seconds`, at a `rate` per second."""
        return Generator("generator.py", self.folder, emit=self.emit, pg=self.rows.url, **said)

    def application(self, **said):
        """An application that reads for at most `seconds`."""
        return Child("application.py", self.folder, **{"emit": self.emit, "redis": self.redis_url} | said)

    def metric(self, name, **labels):
        """The sum over all members that run."""
        return sum(each.metric(name, **labels) for each in self.members if each.running)

    @property
    def logs(self):
        """The log of each member, over all its runs."""
        return [each.log for each in self.members]

    @property
    def behind(self):
        return self.queue.behind

    def takeovers(self, kills):
        """Seconds until each partition of a killed member was another's. `kills`: when each was, and of which partitions."""
        claims, took = self.queue.claims(), []
        for killed, partitions in kills:
            for partition in partitions:
                later = [
                    at / SECOND - killed
                    for owned, at in claims
                    if owned == partition and at > killed * SECOND
                ]
                took.append(min(later))
        return took

    def rest(self, within=REST_S):
        """Waits until everything is committed, and nothing is under way."""
        deadline = time.monotonic() + within
        while (left := (self.behind, self.metric("pending"))) != (0, 0):
            assert time.monotonic() < deadline, f"after {within:g} s records behind and keys pending: {left}"
            time.sleep(0.3)

    def verdict(self, emitted, *, sent_once=True):
        """The verdict, at rest. If a broker went away or was slow, a record may have been sent twice: K1 is unknown then."""
        hints, loads, held = emitted.hints, self.rows.loads(), group_rows.values(self.redis_url)
        records, commits = self.queue.records(), self.queue.commits()
        repeated = ledger.repeated(hints, records)
        early = (
            ledger.early(hints, records, commits, loads=loads, slack=SLACK)
            if sent_once and not repeated
            else np.zeros(1)
        )
        return Verdict(
            lost=int(ledger.lost(hints, loads, SLACK).sum()),
            unserved=int(ledger.unserved(hints, held, SLACK).sum()),
            astray=ledger.astray(hints, records),
            early=int(early.sum()),
            moved_back=ledger.moved_back(commits),
            stale=int(ledger.stale(held, self.rows.versions()).sum()),
            repeated=repeated,
            hints=len(hints.keys),
            loads=loads.count,
            commits=len(commits.offsets),
            values=len(held.keys),
            rate=len(hints.keys) / emitted.took,
        )
