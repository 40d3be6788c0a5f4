"""The store that holds the queue fails under load: what is lost, what waits, and what goes on by itself, by the ledger.

Redis with the streams comes back empty, is replaced by a replica that had not received everything, and has no memory left.
PostgreSQL with the packs is restarted, is away for a minute, and has no room on its disk. The cache and the rows are in other
servers, which are well. A change that is lost leaves an old value only where nobody has called `invalidate`: that removes the
value before its hint leaves.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
import redis
from group import ledger
from group.ledger import SECOND
from group.rows import values
from group.story import HOLD_S, SLACK
from group.streams import Overheard, StreamsQueue
from live.updater_process import eventually
from suite.pace import Metronome

from cacheupdater.local.redis_sentinel import FAILOVER_TIMEOUT_MS
from cacheupdater_client import Redis
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

pytestmark = pytest.mark.timeout(300)

RATE = 2_000
PARTITIONS = 12
CALM_S = 1.5  # under load, before and after the harm
IN_FLIGHT_S = 1.0  # and the machine's lateness: of what Redis did before its death, nobody may have heard
MINUTE_S = 60.0
MINUTES_REST_S = 180.0  # for the hints of that minute, on a slow machine
UNCORRECTED_MS = 60_000  # longer than the replica is kept behind
RESTARTS = 3
OWN = range(50)  # the keys that an application of this test changes, and invalidates
HINTED = range(50, 100)  # of these it only sends the hint


def now():
    return time.time()  # noqa: TID251  compared with the times of other processes


def strict(group, emitted):
    """The faults of changes and misses. Touches grow old while a queue is away, and the next read repeats them."""
    return [group.verdict(emitted.of(kind), sent_once=False).faults for kind in (CHANGE, MISS)]


def of_changes(group, emitted):
    """All changes, and which of them no load has served."""
    hints = emitted.of(CHANGE).hints
    return hints, ledger.lost(hints, group.rows.loads(), SLACK)


def stale_keys(group):
    held = values(group.redis_url)
    return set(held.keys[ledger.stale(held, group.rows.versions())].tolist())


def on_it(records, commits, died):
    """The keys of all hints that lay in the streams when that Redis died, or were on their way."""
    added = records.offsets <= died * SECOND
    finished = ledger.passed(records, commits) < died * SECOND
    return set(records.keys[added & ~finished].tolist())


def emitted_between(hints, start, end):
    return (hints.times > start * SECOND) & (hints.times < end * SECOND)


def said(members, event):
    return all(event in each.log for each in members)


# --- Redis ----------------------------------------------------------------------------------------------


def names(numbers):
    return [f"item:{n}" for n in numbers]


def change(database, application):
    """New versions of these rows. Those of OWN are announced as an application does it."""
    database.execute("UPDATE items SET version = version + 1 WHERE id < $1", HINTED.stop)
    application.invalidate(*names(OWN))
    for name in names(HINTED):
        application._hints.add(CHANGE, name)


def all_there(application, numbers):
    """Whether all have a value. If not, this read is a miss."""
    return None not in application.mget(names(numbers))


@pytest.mark.prove
def test_what_lay_on_a_redis_that_comes_back_empty_is_lost_and_told_and_nothing_else(
    streams_queue, group_on, redis_server, database, plain, record_property
):
    group = group_on("streams")
    group.start(2)
    with (
        Metronome() as metronome,
        Redis.from_url(group.redis_url, emit=group.emit) as application,
        group.generator(seconds=200, rate=RATE) as generator,
    ):
        eventually(lambda: all_there(application, range(HINTED.stop)), every=0.2)
        for each in group.members:
            each.pause()  # what comes now waits in the streams
        change(database, application)
        time.sleep(2 * CALM_S)
        redis_server.kill()
        died = now()
        redis_server.start()
        back = now()
        time.sleep(CALM_S)  # hints come before their readers
        for each in group.members:
            each.resume()
        time.sleep(2 * CALM_S)
        emitted = generator.end()
        group.rest()

        own = plain.mget(names(OWN))
        eventually(lambda: all_there(application, OWN), every=0.2)
    in_flight = IN_FLIGHT_S + metronome.latest
    hints, lost = of_changes(group, emitted)
    records, commits = group.queue.records(), group.queue.commits()
    waited = on_it(records, commits, died)
    told = group.metric("lost_packs_total", reason="redis")
    stale = stale_keys(group)
    print(
        f"{lost.sum()} of {len(lost)} changes lost, {len(stale)} values stale, {told:g} losses told; {emitted.stats}"
    )

    assert lost.sum() > 0
    assert set(hints.keys[lost & ~emitted_between(hints, died - in_flight, back)].tolist()) <= waited
    assert not (lost & (hints.times > back * SECOND)).any()
    assert stale <= {*hints.keys[lost].tolist(), *HINTED}
    assert stale & set(HINTED)
    assert own.count(None) > 0, "their hints were not lost, so this shows nothing of invalidate"
    assert told > 0
    assert any("depot_lost" in each for each in group.logs)
    assert emitted.stats["dropped"] == {}
    record_property("figure: streams came back empty, changes that were lost", int(lost.sum()))
    record_property("figure: streams came back empty, old values until they are read again", len(stale))

    with Redis.from_url(group.redis_url, emit=group.emit) as reader:
        eventually(lambda: [reader.mget(names(stale)), stale_keys(group)][1] == set(), HOLD_S + 20, every=0.5)


def correct_after(sentinels, milliseconds):
    """How long the sentinels bear a replica of another primary. They measure it by the timeout of a failover."""
    for each in sentinels.sentinels:
        sentinels.tell(each, "SENTINEL", "SET", sentinels.name, "failover-timeout", milliseconds)


@pytest.mark.prove
def test_what_a_replica_had_not_received_is_lost_when_it_becomes_the_primary_and_nothing_else(
    redis_sentinels, tmp_path, group_of, record_property
):
    first, second = redis_sentinels.primary(), redis_sentinels.replicas()[0]
    queue = StreamsQueue(redis_sentinels.url, port=first.port, partitions=PARTITIONS, folder=tmp_path)
    heir = Overheard(second.port, tmp_path / "heir.txt")
    group = group_of(queue)
    group.start(2)
    with Metronome() as metronome, group.generator(seconds=200, rate=RATE) as generator:
        eventually(lambda: group.metric("refreshes_total") > 1000)
        correct_after(redis_sentinels, UNCORRECTED_MS)
        cut = now()
        redis_sentinels.tell(second, "REPLICAOF", "127.0.0.1", 1)  # it falls behind
        for each in group.members:
            each.pause()  # what comes now waits in the streams
        time.sleep(2 * CALM_S)
        assert b"master_port:1\r" in redis_sentinels.tell(second, "INFO", "replication")
        correct_after(redis_sentinels, FAILOVER_TIMEOUT_MS)
        first.kill()
        died = now()
        for each in group.members:
            each.resume()
        eventually(lambda: redis_sentinels.primary() is second)
        eventually(lambda: redis_sentinels.tell(second, "ROLE")[0] == b"master")
        back = now()
        time.sleep(2 * CALM_S)
        emitted = generator.end()
        before = queue.records()
        queue.port = second.port
        group.rest()
    since = cut - IN_FLIGHT_S - metronome.latest
    hints, lost = of_changes(group, emitted)
    waited = set(before.keys[before.offsets > since * SECOND].tolist())
    stale = stale_keys(group)
    queue.close()
    heir.close()
    print(
        f"{lost.sum()} of {len(lost)} changes lost, {len(stale)} values stale; away for {back - died:.1f} s"
    )

    assert lost.sum() > 0
    assert set(hints.keys[lost].tolist()) <= waited
    assert not (lost & ~emitted_between(hints, since, died)).any()
    assert stale <= set(hints.keys[lost].tolist())
    assert emitted.stats["dropped"] == {}
    record_property("figure: streams failed over, changes that were lost", int(lost.sum()))


@pytest.mark.prove
def test_a_redis_without_memory_refuses_hints_which_wait_and_readers_notice_nothing(
    streams_queue, group_on, redis_server, record_property
):
    group = group_on("streams")
    group.start(2)
    with (
        redis.Redis(port=redis_server.port) as plain,
        group.generator(seconds=100, rate=RATE) as generator,
        group.application(seconds=100) as application,
        group.application(seconds=100, emit="none") as control,
    ):
        time.sleep(2 * CALM_S)
        plain.config_set("maxmemory", 1)
        full = now()
        time.sleep(6 * CALM_S)
        eventually(lambda: group.behind == 0)  # updaters go on, which makes room
        room = now()
        plain.config_set("maxmemory", 0)
        time.sleep(2 * CALM_S)
        reads, others = application.saved()["reads"], control.saved()["reads"]
        emitted = generator.end()
    group.rest()
    records = group.queue.records()
    came = int(((records.offsets > (full + 0.1) * SECOND) & (records.offsets < room * SECOND)).sum())
    p99, p99_control = calmest(reads, others, full, room)
    waited = int(emitted_between(emitted.hints, full, room).sum())
    verdict = group.verdict(emitted, sent_once=False)
    print(
        f"{waited} hints waited; {verdict}; p99 of a read {p99 * 1e3:.2f} ms, without hints {p99_control * 1e3:.2f} ms"
    )

    assert came == 0, "this Redis has taken hints"
    assert verdict.faults == {}
    assert emitted.stats["dropped"] == {}
    assert emitted.stats["delivered"] == emitted.stats["emitted"]
    assert p99 < max(RATIO_MOST * p99_control, p99_control + NOTHING_S)
    record_property("figure: streams without memory, hints that waited", waited)


RATIO_MOST = 3.0  # as in test_group_outage
NOTHING_S = 0.005
WINDOWS = 6  # of at least a second and a half


def calmest(reads, others, start, end):
    """The p99 of both readers' reads, in the window where they differ least: other processes add to some, a fault to each."""
    windows = [
        [_during(each, *window) for each in (reads, others)]
        for window in pairwise(np.linspace(start, end, WINDOWS + 1))
    ]
    p99 = [[np.percentile(each, 99) for each in both] for both in windows if all(map(len, both))]
    return min(p99, key=lambda both: both[0] - both[1])


def _during(reads, start, end):
    began, took = reads.T
    return took[(began > start) & (began < end)]


# --- PostgreSQL -----------------------------------------------------------------------------------------


def early_kinds(group, emitted):
    """The kinds of hints that were committed before their loads. Reads that are older than a minute are dropped instead."""
    records, commits = group.queue.records(), group.queue.commits()
    early = ledger.early(emitted.hints, records, commits, loads=group.rows.loads(), slack=SLACK)
    return set(records.kinds[early].tolist())


def keys_lost(group, emitted):
    """The keys with a hint that no load has served."""
    return set(emitted.hints.keys[ledger.lost(emitted.hints, group.rows.loads(), SLACK)].tolist())


def judged(group, emitted, pids, *, late=frozenset()):
    """What must hold after a database has come back: all hints are served but those `late`, and nobody was restarted.

    Reads of these kinds may have been older than a minute when they arrived. Changes never are too late.
    """
    verdict = group.verdict(emitted)  # of K1 too, if nothing was sent twice
    print(f"{verdict}; {verdict.repeated} sent twice; {emitted.stats}")
    assert [each.pid for each in group.members if each.running] == pids
    changes, misses = strict(group, emitted)
    assert changes == {}
    assert MISS in late or misses == {}
    assert (verdict.stale, verdict.moved_back) == (0, 0)
    if verdict.early:
        assert early_kinds(group, emitted) <= late
    assert emitted.stats["dropped"] == {}
    assert group.queue.collector.metric("dropped_total") == 0
    return verdict


@pytest.mark.prove
def test_a_postgresql_that_is_restarted_loses_nothing_and_all_go_on(
    postgresql_queue, group_on, postgres_server, record_property
):
    group = group_on("postgresql")
    group.start(2)
    pids = [each.pid for each in group.members]
    with group.generator(seconds=200, rate=RATE // 2) as generator:
        for _ in range(RESTARTS):
            time.sleep(CALM_S)
            postgres_server.stop()  # SIGINT: a fast shutdown
            postgres_server.start()
        time.sleep(CALM_S)
        emitted = generator.end()
    group.rest()
    verdict = judged(group, emitted, pids)
    assert verdict.faults == {}
    record_property("figure: PostgreSQL restarted, hints judged", verdict.hints)


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_hints_wait_for_a_postgresql_that_is_away_for_a_minute(
    postgresql_queue, group_on, postgres_server, record_property
):
    group = group_on("postgresql")
    group.start(2)
    pids = [each.pid for each in group.members]
    with group.generator(seconds=200, rate=RATE // 2) as generator:
        time.sleep(CALM_S)
        postgres_server.stop()
        time.sleep(MINUTE_S)
        postgres_server.start()
        answered = time.monotonic()
        time.sleep(2 * CALM_S)
        emitted = generator.end()
    group.rest(within=MINUTES_REST_S)
    print(f"at rest {time.monotonic() - answered:.1f} s after it came back")
    verdict = judged(group, emitted, pids, late={TOUCH, MISS})
    # reads that are older than a minute; a pack names a key once, however many hints it had
    assert len(keys_lost(group, emitted)) <= group.metric("dropped_total")
    assert said(group.members, "queue_missing")
    assert "queue_missing" in group.queue.collector.log
    record_property("figure: PostgreSQL away for a minute, hints judged", verdict.hints)


FULL_DISK = """
CREATE TABLE disk AS SELECT false AS is_full;
CREATE FUNCTION write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT is_full FROM disk) THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
    END IF;
    RETURN NULL;
END $$;
"""


# waits until each transaction has ended that wrote before
AFTER_ALL_WRITES = "DO $$ BEGIN LOCK TABLE {}_packs IN SHARE MODE; END $$"


@pytest.mark.prove
def test_hints_wait_while_the_disk_of_postgresql_is_full(
    postgresql_queue, group_on, postgres_server, record_property
):
    """A trigger raises PostgreSQL's own code for it, whenever a row would be written. (A real disk needs root to be so small.)"""
    group = group_on("postgresql")
    table = postgresql_queue.address.table
    postgres_server.execute(
        FULL_DISK,
        *(
            f"CREATE TRIGGER disk BEFORE INSERT OR UPDATE ON {table}_{each} EXECUTE FUNCTION write()"
            for each in ("packs", "partitions", "members")
        ),
    )
    group.start(2)
    pids = [each.pid for each in group.members]
    with group.generator(seconds=200, rate=RATE // 2) as generator:
        time.sleep(CALM_S)
        postgres_server.execute("UPDATE disk SET is_full = true", AFTER_ALL_WRITES.format(table))
        collector = postgresql_queue.collector
        eventually(lambda: any("its disk is full" in each for each in collector.troubles))
        [(before,)] = postgresql_queue.rows("SELECT count(*) FROM seen_packs")
        eventually(lambda: said(group.members, "its disk is full"))
        time.sleep(CALM_S)
        [(after,)] = postgresql_queue.rows("SELECT count(*) FROM seen_packs")
        postgres_server.execute("UPDATE disk SET is_full = false")
        time.sleep(CALM_S)
        emitted = generator.end()
    group.rest()
    verdict = judged(group, emitted, pids)
    assert verdict.faults == {}
    assert after == before
    record_property("figure: PostgreSQL's disk full, hints judged", verdict.hints)
