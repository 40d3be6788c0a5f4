"""Redis is flushed under 5,000 reads a second over 50,000 keys, and the database pays for 500 rows a second.

Once two updaters of a group share the load, and once one updater owns eight partitions. Their loader notes each call, with its
time and its keys, on the machine's one clock. So its log shows how many rows were asked for in any second, and by whom.
"""

from __future__ import annotations

import time
from bisect import bisect
from collections import Counter
from itertools import accumulate
from random import Random

import pytest
from live.updater_process import config, eventually
from suite.beside import Beside
from suite.pace import Metronome, busiest

from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(180)]

KEYS, READS, AT_ONCE = 50_000, 5_000, 50
BUDGET, BURST_S = 500, 1.0
PARTITIONS = 8
BEFORE_S, AFTER_S = 3.0, 15.0
LATE_S = 0.1  # a row is paid before its token is read and its loader called; a machine that holds these up adds to it


class Readers(Beside):
    """They read by Zipf's law. Reads that are late are made up for."""

    def __init__(self, redis_url, emit):
        super().__init__()
        self.found = Counter()  # by second
        self._url, self._emit = redis_url, emit

    def run(self):
        rng, weights = Random(11), list(accumulate(1 / rank for rank in range(1, KEYS + 1)))
        began, turn = time.monotonic(), 0
        with Redis.from_url(self._url, emit=self._emit) as client:
            while not self.ended.wait(max(0.0, began + turn * AT_ONCE / READS - time.monotonic())):
                turn += 1
                drawn = [bisect(weights, rng.random() * weights[-1]) for _ in range(AT_ONCE)]
                values = client.mget([f"item:{number}" for number in drawn])
                self.found[int(time.monotonic())] += sum(value is not None for value in values)


def settings(redis_url, **queue):
    namespace = {
        "key": "item:{id:int}",
        "load": {"source": "main", "python": "live.loaders:named"},
        "ttl": "3h",
    }
    source = {"budget": f"{BUDGET}/s", "burst": f"{BURST_S:g}s"}
    # nothing but a miss brings a second load
    return config(redis_url, {"main": source}, {"item": namespace}, every="1h", partitions=PARTITIONS) | queue


def story(updaters, settings, emit, *, redis_url, plain, tmp_path, count):
    """Some updaters, readers, and the flush. Returns the loads after it, by updater: (time, keys)."""
    logs = [tmp_path / f"loads-{number}" for number in range(count)]
    members = [updaters.make(settings, environment={"LOADER_LOG": str(log)}) for log in logs]
    for each in members:
        each.start()
    with plain.pipeline(transaction=False) as pipeline:
        for number in range(KEYS):
            pipeline.set(f"item:{number}", "1", ex=3600)
        pipeline.execute()
    with Readers(redis_url, emit or members[0].emit):
        eventually(lambda: all(log.exists() for log in logs))  # each has partitions, and hears readers
        time.sleep(BEFORE_S)
        plain.flushall()
        flushed = time.monotonic()
        time.sleep(AFTER_S)
    lines = [[line.split() for line in log.read_text().splitlines()] for log in logs]
    return [[(float(at), keys) for at, *keys in each if float(at) >= flushed] for each in lines]


def judge(loads, control, record_property, who):
    """The windows hold, the budget is used, and no two updaters have loaded one key."""
    times = sorted(at for each in loads for at, keys in each for _ in keys)
    for seconds in (1.0, 10.0):
        rows = busiest(times, seconds)
        record_property(f"figure: after a flush, most rows in {seconds:g} s, {who}", rows)
        assert rows <= BUDGET * (seconds + BURST_S + LATE_S + 2 * control.latest)
    asked = [Counter(key for _, keys in each for key in keys) for each in loads]
    both = set(asked[0]).intersection(*asked[1:]) if len(asked) > 1 else set()
    distinct = sum(map(len, asked)) - len(both)
    record_property(f"figure: after a flush, rows, and keys among them, {who}", f"{len(times)}, {distinct}")
    assert both == set()
    assert distinct > BUDGET * AFTER_S / 2, "hardly anything was loaded: this test proves nothing"
    return distinct / len(times)


def test_two_updaters_of_a_group_keep_one_budget_and_load_no_key_twice(
    updaters, kafka, new_topic, redis_url, plain, tmp_path, record_property
):
    topic = new_topic(partitions=PARTITIONS)
    emit = f"kafka://{kafka.bootstrap}/{topic}"
    group = settings(redis_url, queue={"url": f"{emit}?group={topic}&session_timeout=10s"}, listen=None)
    with Metronome() as control:
        loads = story(updaters, group, emit, redis_url=redis_url, plain=plain, tmp_path=tmp_path, count=2)
    assert all(loads), "one has loaded nothing: this test proves nothing"
    judge(loads, control, record_property, "two updaters of a group")


def test_one_updater_of_many_partitions_loads_no_key_twice(
    updaters, redis_url, plain, tmp_path, record_property
):
    alone = settings(redis_url)
    with Metronome() as control:
        loads = story(updaters, alone, None, redis_url=redis_url, plain=plain, tmp_path=tmp_path, count=1)
    once = judge(loads, control, record_property, f"one updater of {PARTITIONS} partitions")
    assert once > 0.9, (
        "a miss that arrives long after the value was written is the only reason for a second load"
    )
