"""All updaters of a group are restarted under load, one after another, as in a deployment: each drains and exits with 0.

Ordinary members leave the group, so each restart means two rebalances of all. Members with an instance of their own keep their
partitions while they are away, and no other member notices.
"""

from __future__ import annotations

import time

import pytest
from group import packs
from group.rows import KEYS, Rows
from group.story import PARTITIONS, Group
from group.topic import Topic

MEMBERS = 3
RATE = 5_000


@pytest.fixture
def group(tmp_path, needs_apache, kafka, new_topic, pg_url, redis_url, updaters):
    topic = new_topic(partitions=PARTITIONS)
    return Group(
        tmp_path, updaters, queue=Topic(kafka.bootstrap, topic), rows=Rows(pg_url), redis_url=redis_url
    )


def restart(members):
    """Seconds of each one's drain."""
    drains = []
    for each in members:
        asked = time.monotonic()
        each.terminate()
        assert each.wait() == 0
        drains.append(time.monotonic() - asked)
        each.start()
    return drains


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_rolling_restart_drains_everybody_in_time_and_loses_nothing(group, static, record_property):
    # a member with a name is waited for, for a session
    settings = {"instance": "pod", "session": 60} if static else {"session": 10}
    group.start(MEMBERS, **settings)
    before, logs = group.queue.generations(), group.logs
    with group.generator(seconds=200, rate=RATE) as generator:
        time.sleep(3)
        began = time.time()  # noqa: TID251  compared with the database's clock
        drains = restart(group.members)
        time.sleep(3)
        ended = time.time()  # noqa: TID251  as above
        emitted = generator.end()
    group.rest()
    verdict = group.verdict(emitted)
    rounds = len(group.queue.generations()) - len(before)
    pauses = group.rows.loads().widest_gaps(packs.owners(KEYS, PARTITIONS), began, ended)
    print(f"{rounds} rebalances; drained in {[round(each, 1) for each in drains]} s; {verdict}")
    print(f"longest pause by partition: {pauses.round(1).tolist()} s")

    assert not any("aborted" in each for each in group.logs)  # by the deadline of the drain
    assert verdict.faults == {}
    assert emitted.stats["dropped"] == {}
    kind = "static" if static else "dynamic"
    record_property(f"figure: rolling restart, {kind}: longest drain, s", max(drains))
    record_property(f"figure: rolling restart, {kind}: longest pause of a partition, s", float(pauses.max()))
    record_property(f"figure: rolling restart, {kind}: mean pause of a partition, s", float(pauses.mean()))
    record_property(f"figure: rolling restart, {kind}: rebalances", rounds)
    if static:
        assert rounds == 0
        gained = [
            new.count("is ours") - old.count("is ours") for new, old in zip(group.logs, logs, strict=True)
        ]
        assert gained == [PARTITIONS // MEMBERS] * MEMBERS  # each its own, once
    else:
        assert rounds > 0
