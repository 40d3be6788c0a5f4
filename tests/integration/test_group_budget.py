"""Four updaters on one topic spend one budget, by PostgreSQL's own log: in bursts, over a kill, a reload and a rebalance.

An application misses keys of two namespaces in bursts; one of these has a quota. It asks for much more than both may load, so a
minute's budget is spent. Few keys may wait, so buckets fill up in its longer pauses. Afterwards the log is compared with budget and
quota in every window of 1, 10 and 60 s.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from itertools import cycle

import numpy as np
import pytest
from group.rows import KEYS, Rows
from group.story import PARTITIONS, QUICK_START, Group
from group.topic import Topic
from live.updater_process import eventually
from suite.beside import Beside

from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(240)]

MEMBERS = 4
BUDGET, QUOTA = 200, 60  # rows a second; the burst is a second's worth
WAITING = {"item": 20, "part": 50}  # keys in each partition: of the quota four seconds, of the rest as much
BURST = 600  # keys of each namespace
QUIET_S = (2.0, 2.0, 2.0, 2.0, 2.0, 6.0)  # after each burst: the longest lets both buckets fill up
AFTER_S = 15.0  # seconds from one event to the next
WINDOWS_S = (1.0, 10.0, 60.0)
LATE_S = 0.25  # a busy machine delays one statement on its way to the database, and not the next
WANTED = 0.7  # of the bound at least, in the fullest window of each length, else it proves nothing


class Application(Beside):
    """Misses new keys of both namespaces at once, and is quiet for a while."""

    def __init__(self, redis_url, emit):
        super().__init__()
        self._url, self._emit = redis_url, emit

    def run(self):
        draw = random.Random(1)
        numbers = {"item": range(KEYS // 2), "part": range(KEYS // 2, KEYS)}
        with Redis.from_url(self._url, emit=self._emit) as client:
            for quiet in cycle(QUIET_S):
                for name in WAITING:
                    client.mget([f"{name}:{number}" for number in draw.sample(numbers[name], BURST)])
                if self.ended.wait(quiet):
                    return


def settings(group):
    """The numbers of keys tell the namespaces apart in the log."""
    made = group.settings(budget=f"{BUDGET}/s", max_backlog=WAITING["item"])
    item = made["namespaces"]["item"]
    made["namespaces"]["part"] = item | {"key": "part:{id:int}", "max_backlog": WAITING["part"]}
    made["namespaces"]["item"] = item | {"quota": {"rate": f"{QUOTA}/s", "burst": QUOTA}}
    return made


def reload(member):
    """Another ttl: all partitions go over to the next configuration."""
    said = json.loads(member.file.read_text())
    said["namespaces"]["part"]["ttl"] = "2h"
    member.file.write_text(json.dumps(said))
    os.kill(member.pid, signal.SIGHUP)
    eventually(lambda: "the configuration was read again: changed: namespaces.part" in member.log)


def fullest(times, window):
    """The most rows in any window of this length."""
    times = np.sort(times) / 1e6
    return int((np.searchsorted(times, times + window, side="right") - np.arange(len(times))).max())


def test_four_updaters_spend_one_budget_and_one_quota_in_every_window(
    tmp_path, needs_apache, kafka, new_topic, pg_url, redis_url, updaters, record_property
):
    topic = new_topic(partitions=PARTITIONS)
    group = Group(
        tmp_path, updaters, queue=Topic(kafka.bootstrap, topic), rows=Rows(pg_url), redis_url=redis_url
    )
    members = [updaters.make(settings(group), environment=QUICK_START) for _ in range(MEMBERS)]
    for each in members:
        each.launch()
    for each in members:
        each.wait_ready()
    with Application(redis_url, group.emit):
        began = time.monotonic()
        time.sleep(AFTER_S)
        members[0].kill()
        members[0].start()
        time.sleep(AFTER_S)
        reload(members[1])
        time.sleep(AFTER_S)
        members[2].terminate()  # a drain: its partitions go to the others, and come back
        members[2].wait()
        members[2].start()
        time.sleep(AFTER_S)
        assert time.monotonic() - began >= WINDOWS_S[-1]

    keys, times = group.rows.loaded()
    for name, rate, spent in (("source", BUDGET, times), ("quota", QUOTA, times[keys < KEYS // 2])):
        for window in WINDOWS_S:
            most, allowed = fullest(spent, window), rate * window + rate
            record_property(
                f"figure: four updaters, {name}, rows in {window:g} s, % of rate x window + burst",
                100 * most / allowed,
            )
            assert WANTED * allowed <= most <= allowed + rate * LATE_S, (name, window, most, allowed)
