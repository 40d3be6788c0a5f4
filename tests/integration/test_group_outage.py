"""The only broker is away for a while, under load: readers notice nothing, no process grows or ends, nothing is lost.

`outage` sets the time; `--outage 60` names any other. The buffer of a client holds 100,000 keys, each once for a kind, so the
hints of 15 s over 100,000 keys fit. Those of a minute do not quite fit: then touches are dropped and counted, and nothing else.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import numpy as np
import pytest
from group.options import FITS_S
from group.rows import Rows
from group.story import PARTITIONS, Group
from group.topic import Topic

from cacheupdater.local import kafka_topics
from cacheupdater_client.protocol.wire import CHANGE, MISS

BEFORE_S = 10.0
AFTER_S = 5.0
RATE = 10_000
MEMORY_MOST = 32 * 1024 * 1024
# of a read's p99 to that of a reader beside it who leaves no hints: where both wait for the machine, it is the scheduler's
RATIO_MOST = 3.0
NOTHING_S = 0.005  # of difference in a p99 that says nothing
TOPIC = "hints"


@pytest.fixture
def group(tmp_path, needs_apache, own_kafka, pg_url, redis_url, updaters):
    kafka_topics.done(kafka_topics.create(own_kafka.bootstrap, TOPIC, partitions=PARTITIONS))
    return Group(
        tmp_path, updaters, queue=Topic(own_kafka.bootstrap, TOPIC), rows=Rows(pg_url), redis_url=redis_url
    )


def between(reads, start, end):
    """Seconds of each read that began then."""
    began, took = reads["reads"].T
    return took[(began > start) & (began < end)]


def growth(memory, start, end):
    """Bytes, from the most before to the most until the end."""
    before = memory[memory[:, 0] < start, 1]
    return float(memory[memory[:, 0] < end, 1].max() - before.max())


@pytest.mark.prove
@pytest.mark.timeout(400)
def test_an_outage_of_the_broker_is_no_affair_of_the_application(group, own_kafka, outage, record_property):
    group.start(2, session=10)
    pids = [each.pid for each in group.members]
    with ExitStack() as stack:
        generator = stack.enter_context(group.generator(seconds=300 + outage, rate=RATE))
        application = stack.enter_context(group.application(seconds=300 + outage))
        control = stack.enter_context(group.application(seconds=300 + outage, emit="none"))
        time.sleep(BEFORE_S)
        stopped = time.time()  # noqa: TID251  compared with the times of other processes
        own_kafka.stop()
        time.sleep(outage)
        back = time.time()  # noqa: TID251  as above
        own_kafka.start()
        answered = time.monotonic()
        time.sleep(AFTER_S)
        reads, others = application.saved(), control.saved()
        emitted = generator.end()
    group.rest()
    recovered = time.monotonic() - answered

    strict = [group.verdict(emitted.of(kind), sent_once=False) for kind in (CHANGE, MISS)]
    whole = group.verdict(emitted, sent_once=False)
    before, during = between(reads, 0.0, stopped), between(reads, stopped, back)
    p99, p99_before, p99_control = (
        np.percentile(each, 99) for each in (during, before, between(others, stopped, back))
    )
    grown = [growth(each, stopped, back + AFTER_S) for each in (emitted.memory, reads["memory"])]
    print(f"away for {outage:g} s; at rest {recovered:.1f} s after it came back; {whole}; {emitted.stats}")
    print(
        f"reads: p99 {p99_before * 1e3:.2f} ms before, {p99 * 1e3:.2f} ms during, ratio {p99 / p99_before:.2f},"
        f" of one without hints {p99_control * 1e3:.2f} ms;"
    )
    print(
        f"  median {np.median(before) * 1e3:.3f} ms, {np.median(during) * 1e3:.3f} ms; longest {during.max():.3f} s"
    )
    print(f"memory grew by {[round(each / 2**20, 1) for each in grown]} MiB")
    record_property("figure: outage, p99 of a read against before", float(p99 / p99_before))
    record_property(
        "figure: outage, median of a read against before", float(np.median(during) / np.median(before))
    )
    record_property("figure: outage, growth of the emitting client, MiB", grown[0] / 2**20)

    assert p99 < max(RATIO_MOST * p99_control, p99_control + NOTHING_S)
    assert max(grown) < MEMORY_MOST
    assert [each.pid for each in group.members if each.running] == pids
    assert [each.faults for each in strict] == [{}, {}]
    dropped = emitted.stats["dropped"]
    assert set(dropped) <= {"full"}
    assert emitted.stats["emitted"] == emitted.stats["delivered"] + sum(dropped.values()) == whole.hints
    assert whole.lost <= sum(dropped.values())
    assert whole.stale == whole.moved_back == 0
    if outage <= FITS_S:
        assert dropped == {}
        assert whole.faults == {}
