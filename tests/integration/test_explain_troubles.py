"""A value is old because something fails: each trouble is brought about in a running updater, and told of the keys it concerns.

Three places must tell it: `cacheupdater explain KEY`, the log and the gauge `troubles`. `test_explain` has the causes that lie
in the key itself, in its budget, or in a source that does not answer. One updater gets many troubles at once, so that all
tests together wait no longer than the slowest one.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import redis
from brokers import batches
from hints.peer import HintPeer
from live.explained import WITHIN_S, because, command, explained, tells, told
from live.updater_process import Updaters, config, eventually
from redis.crc import key_slot

from cacheupdater.local.kafka_topics import done
from cacheupdater.local.ports import free_port
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack

AHEAD_MS = LATE_MS = 600_000
VANISHED = [b"few:%d" % number for number in range(100, 140)]
SPARSE = [b"sparse:%d" % number for number in range(100, 400)]
STRANGERS = [b"note:nobody-%d" % number for number in range(150)]
NOTES = [f"note:{number}" for number in range(40)]
ELSEWHERE = [b"note:%d" % number for number in range(150)]
OURS = re.compile(r"partition (\d+) is ours")
SESSION_S = 30.0  # the tests wait for no end of a session; without partitions, nothing is read
PARTITIONS = 24  # members get them by lot: of two, one gets none once in eight million times
BLOCK, BLOCKS = 1024 * 1024, 100  # bytes; too many for one batch, however well they are packed
ALONE_S = 30.0 + WITHIN_S  # so long a silence is no trouble


def load(function):
    return {"python": f"live.loaders:{function}", "source": "code"}


NOTE = {"note": {"key": "note:{id:int}", "load": load("plain"), "quota": {"rate": "1000/s"}}}
NAMESPACES = {
    **NOTE,
    "wrong": {"key": "wrong:{id:int}", "load": load("nonsense")},
    "odd": {"key": "odd:{id:int}", "load": load("nonsense")},
    "unlucky": {"key": "unlucky:{id:int}", "load": load("unlucky")},
    "few": {"key": "few:{id:int}", "load": load("few")},
    "sparse": {"key": "sparse:{id:int}", "load": load("few"), "quota": {"rate": "10/s"}},
    "secret": {"key": "secret:{id:int}", "load": load("plain")},
    "fed": {
        "key": "fed:{id:int}",
        "load": {"source": "desk", "table": "desks"},
        "changes": [{"table": "desks"}],
    },
}
CODE = {"code": {"budget": "5000/s"}}


def settings(redis_url, namespaces, sources=CODE):
    """No namespace waits to see whose values Redis has."""
    said = config(redis_url, sources, namespaces)
    return said | {"defaults": said["defaults"] | {"value": {"foreign": "replace"}}}


@pytest.fixture(scope="module")
def started():
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        all_of_them = Updaters(Path(folder))
        yield all_of_them
        all_of_them.close()


@pytest.fixture(scope="module")
def server():
    with RedisServer() as made:
        yield made


# --- one updater in many troubles -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def updater(started, server):
    """Its Redis user may not touch `secret:`, and nobody listens where the database of `fed` should be.

    Some of its troubles end by themselves after half a minute. Their tests come first.
    """
    keys = [f"~{begin}{name}:*" for name in NAMESPACES if name != "secret" for begin in ("", "__crs:*")]
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "updater", "on", ">pass", "+@all", "~__crs:paused", *keys)
        admin.mset(dict.fromkeys(VANISHED, '"fine"'))
    url = server.url.replace("redis://", "redis://updater:pass@")
    desk = f"postgresql+asyncpg://127.0.0.1:{free_port()}/desk"
    sources = {**CODE, "desk": {"url": desk, "budget": "50/s", "changes": "notify"}}
    made = started.start(settings(url, NAMESPACES, sources))
    with HintPeer(made.socket) as peer:
        peer.hint(CHANGE, b"secret:1")
        peer.hint(MISS, b"wrong:13", b"odd:16", b"unlucky:1", *SPARSE)
        for touched in (VANISHED, STRANGERS, ELSEWHERE):
            peer.hint(TOUCH, *touched)
        for partition in range(peer.hello.partitions):
            for off in (AHEAD_MS, -LATE_MS):
                peer.pack(encode_pack(TOUCH, time.time_ns() // 1_000_000 + off, [b"note:1"]), partition)
        peer.pack(b"no pack of hints", 0)
        peer.wait()
    return made


@pytest.mark.parametrize(
    "event",
    [
        pytest.param("rejected", id="a_pack_cannot_be_read"),
        pytest.param("nobodys", id="hints_are_of_no_namespace"),
        pytest.param("elsewhere", id="readers_use_another_redis"),
        pytest.param("clock_off", id="a_senders_clock_is_wrong"),
        pytest.param("late", id="reads_are_reported_more_than_a_minute_late"),
    ],
)
def test_a_trouble_with_the_senders_is_told_of_any_key(updater, event):
    told(updater, "note:7", event)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        pytest.param("absent", "sparse", id="a_flood_of_keys_that_do_not_exist"),
        pytest.param("load_refused", "wrong", id="a_loader_answers_nonsense"),
        pytest.param("write_failed", "odd", id="a_value_cannot_be_encoded"),
        pytest.param("unexpected", "unlucky", id="the_code_of_a_value_fails"),
        pytest.param("braked", "few", id="all_rows_vanish_at_once"),
        pytest.param("feed_down", "fed", id="the_database_of_a_feed_does_not_answer"),
        pytest.param("removal_refused", "secret", id="redis_refuses_to_remove"),
    ],
)
def test_a_trouble_of_a_namespace_is_told_of_each_of_its_keys_and_of_no_other(updater, event, name):
    told(updater, f"{name}:1", event)
    assert f": {event}: " not in because(updater, "note:7")


# --- more changes than may wait -------------------------------------------------------------------------


FLOOD = 24_000  # changes, in two partitions: from 8,000 in one of them on, their sender is not read
FLOODED = {
    "key": "flooded:{id:int}",
    "load": load("plain"),
    "quota": {"rate": "10/s"},
    "max_backlog": 100,
}


def test_a_partition_with_too_many_open_keys_is_told_until_it_is_read_again(updaters, server):
    """Changes beyond the backlog are removals, at the rate of the quota. A larger quota lets them go."""
    updater = updaters.start(settings(server.url, {"flooded": FLOODED}))
    with HintPeer(updater.socket) as peer:
        keys = [b"flooded:%d" % number for number in range(FLOOD)]
        for some in range(0, len(keys), 1_000):
            peer.hint(CHANGE, *keys[some : some + 1_000])
        told(updater, "flooded:1", "full")
        assert re.search(r"WARNING.*full \d.*no hint of 1 sender", command(updater, "freshness")[1])
        assert any(each.startswith("full ") for each in updater.troubles)
        said = json.loads(updater.file.read_text())
        said["namespaces"]["flooded"]["quota"]["rate"] = "5000/s"
        updater.file.write_text(json.dumps(said))
        assert command(updater, "reload")[0] == 0
        eventually(lambda: ": full: " not in because(updater, "flooded:1"))
        assert re.search(r"full \d: over after [\d.]+ s", updater.log)


# --- an updater without its Redis -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def dark(started):
    return started.start(settings(f"redis://127.0.0.1:{free_port()}/0", NOTE) | {"fleet": "shop"})


@pytest.mark.parametrize("event", ["redis_down", "fleet_down", "pauses_unread"])
def test_a_redis_that_does_not_answer_is_told_of_any_key(dark, event):
    told(dark, "note:7", event)


def purses(updater):
    """The subjects of a fleet that cannot be asked, as they are told of a key."""
    troubles = explained(updater, "note:7")["updater"]["troubles"]
    return {each["subject"] for each in troubles if each["event"] == "fleet_down"}


def test_a_fleet_that_cannot_be_asked_is_told_for_the_budget_and_for_the_quota_until_there_is_none(dark):
    eventually(lambda: purses(dark) == {"code", "quota:note"})
    said = json.loads(dark.file.read_text())
    del said["namespaces"]["note"]["quota"]
    dark.file.write_text(json.dumps(said))
    assert command(dark, "reload")[0] == 0
    eventually(lambda: purses(dark) == {"code"})


# --- a queue that updaters share ------------------------------------------------------------------------


def sharing(server, queue):
    return settings(server.url, NOTE) | {
        "queue": {"url": f"{queue}&session_timeout={SESSION_S:g}s"},
        "listen": None,
    }


@pytest.fixture(scope="module")
def streams():
    with RedisServer() as made:
        yield made


def owned(updater):
    """Those that are in partitions of this updater."""
    return {key for key in NOTES if json.loads(updater.page(f"/explain?key={key}")[1])["ours"]}


@pytest.fixture(scope="module")
def pair(started, server, streams):
    """They share the partitions of a queue."""
    made = [
        started.make(sharing(server, f"{streams.url}?stream=hints&partitions={PARTITIONS}")) for _ in range(2)
    ]
    for each in made:
        each.launch()
    for each in made:
        each.wait_ready()
    return made


@pytest.fixture
def both(pair):
    """Each of them has partitions: at first, and again after a test has taken the queue from them."""
    eventually(lambda: all(map(owned, pair)), WITHIN_S)
    return pair


def test_an_updater_that_does_not_own_the_key_names_the_one_that_does(both):
    def names(updater, other):
        said = explained(updater, min(owned(other)))
        owner = said["updater"]["owner"]
        told = " ".join(said["because"])
        assert said["updater"]["session"] == SESSION_S
        named = (
            f"belongs to another updater, {owner}: ask that one. If it does not answer, others take over"
            in told
        )
        return named and f"-{other.pid}-" in owner

    eventually(lambda: names(*both) and names(*reversed(both)))


def test_a_queue_that_takes_no_commit(both, server, streams):
    """The Redis user of the updaters lacks a command that a commit needs, and a miss does not."""
    key = min(owned(both[0]))
    with redis.Redis.from_url(server.url) as plain, redis.Redis.from_url(streams.url) as admin:
        plain.delete(key)
        admin.execute_command("ACL", "SETUSER", "default", "-xtrim")
        emit = f"{streams.url}?stream=hints&partitions={PARTITIONS}"
        with Redis.from_url(server.url, emit=emit) as client:
            assert client.get(key) is None
            told(both[0], key, "commit_failed")
        assert plain.get(key) is not None, "the key was loaded all the same"
        admin.execute_command("ACL", "SETUSER", "default", "+xtrim")
        eventually(lambda: ": commit_failed: " not in because(both[0], key))


def test_a_queue_that_goes_away_and_comes_back_empty(both, streams):
    streams.kill()
    eventually(
        lambda: all(tells(both[0], "note:7", each) for each in ("queue_missing", "fetch_failed")), WITHIN_S
    )
    streams.start()
    for each in both:
        told(each, "note:7", "depot_lost")


def test_a_queue_that_is_not_there_when_the_updater_starts(updaters, server):
    """Redis is there: `/readyz` misses the queue, and nothing else."""
    updater = updaters.make(sharing(server, "kafka://127.0.0.1:1/hints?group=hints"))
    updater.launch()

    def conditions():
        return json.loads(updater.page("/readyz")[1])["conditions"]

    eventually(lambda: because(updater, "note:7").startswith("The updater accepts no hints now"), WITHIN_S)
    eventually(lambda: conditions() == {"queue": False, "cache": True, "accepting": True}, WITHIN_S)
    told(updater, "note:7", "queue_missing")
    assert "the key's partition is not known" in command(updater, "explain", "note:7")[1]


@pytest.mark.prove
def test_a_worker_that_ends_again_and_again(updaters, server, tmp_path):
    """Nobody gets the partitions of a killed worker before its session ends. Until then, their keys have no owner."""
    queue = f"sqlite:///{tmp_path}/hints.db?partitions={PARTITIONS}"
    parent = updaters.start(sharing(server, queue), arguments=("--workers", "2"))

    def owners():
        records = map(json.loads, parent.log.splitlines())
        return {found[1]: each["worker"] for each in records if (found := OURS.match(each["message"]))}

    def without_one():
        for child in psutil.Process(parent.pid).children():
            if any(each.startswith("0:") for each in child.cmdline()):
                child.kill()
        return any(tells(parent, key, "worker_down") for key in NOTES)

    eventually(lambda: set(owners().values()) == {0, 1})
    eventually(without_one, within=WITHIN_S)


@pytest.mark.prove
def test_a_batch_of_the_topic_that_is_too_large(updaters, server, kafka, new_topic, needs_apache):
    topic = new_topic(partitions=1)
    url = f"kafka://{kafka.bootstrap}/{topic}?group={topic}&session_timeout=6s"
    updater = updaters.start(settings(server.url, NOTE) | {"queue": {"url": url}, "listen": None})
    blocks = [batches.record(number, bytes(BLOCK)) for number in range(BLOCKS)]
    done(batches.produce(kafka.bootstrap, topic, [batches.of(blocks, "gzip")]))
    told(updater, "note:7", "batch_skipped")


# --- a Redis of many nodes ------------------------------------------------------------------------------


@pytest.mark.prove
def test_a_slot_that_stays_half_moved(updaters, redis_cluster):
    """The node with the value has no floor of the key, and answers TRYAGAIN."""
    key = "note:7"
    source = redis_cluster.owner(key)
    other = next(node for node in redis_cluster.primaries() if node is not source)
    redis_cluster.tell(source, "SET", key, "old")
    move = redis_cluster.migration(key_slot(key.encode()), other)
    move.begin()
    updater = updaters.start(settings(redis_cluster.url, NOTE))
    with HintPeer(updater.socket) as peer:
        peer.hint(CHANGE, key.encode())
        told(updater, key, "write_delayed")
        move.undo()
        eventually(lambda: redis_cluster.tell(source, "GET", key) != b"old")
    eventually(lambda: ": write_delayed: " not in because(updater, key))


# --- nobody sends hints ---------------------------------------------------------------------------------


@pytest.mark.prove
def test_an_updater_without_a_client(updaters, server):
    told(updaters.start(settings(server.url, NOTE)), "note:7", "no_client", within=ALONE_S)


@pytest.mark.prove
def test_a_client_that_never_sends_a_hint(updaters, server):
    updater = updaters.start(settings(server.url, NOTE))
    with HintPeer(updater.socket):
        told(updater, "note:7", "no_hint", within=ALONE_S)
