"""A team moves to another queue: what lies on the old one is carried to the new one by real drains, which are killed meanwhile."""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import subprocess
import sys
import time

import pytest
from brokers.records import records_of
from depots.carried import Sender, left_in, make, packs_in
from live.collector_process import DrainProcess
from live.updater_process import ROOT, config, eventually
from redis import Redis

from cacheupdater.cli import exits
from cacheupdater.collector.drain import Drain, DrainSettings
from cacheupdater.core import depot_url
from cacheupdater.core.draining import HELD_KEYS
from cacheupdater.errors import Misconfigured
from cacheupdater.local.children import dying_with_us
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, decode_pack, partition_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("patient"),
]

PAGE = ROOT / "docs/how-to/move.md"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
HEAVY = {"numpy", "sqlalchemy", "pydantic_core", "aiosqlite", "prometheus_client"}
CHANGES, TOUCHES, MISSES, LATE = 6_000, 6_000, 500, 200  # changes: before each kill
SENT = 300  # keys that leave together; each time a second younger, so each is a wave of its own
KILLS = 3  # 20 in the full form
KILLS_MAX = 20  # where the drain was always faster than the kill
MIB = 1024 * 1024
CARRIED = 300_000  # five times what a drain holds
PAUSE_MS = 120_000  # of the new queue; longer than the test needs
DRAIN_MIB = 58  # measured: 51 to 53, and 60 if it reads everything
SESSION = "session_timeout=1s"


@pytest.fixture
def drains(sockets):
    """Starts drains; all of them end with the test, their logs are shown where it failed."""
    made = []

    def make_one(old, new, **options):
        made.append(DrainProcess(sockets / f"d{len(made)}", old, new, **options))
        return made[-1]

    yield make_one
    for number, each in enumerate(made):
        each.kill()
        print(f"--- log of drain {number} ---\n{each.log[-8000:]}")


@pytest.fixture
def streams_url():
    """Streams of a Redis that keeps what it has answered for. 6 partitions."""
    with RedisServer(options=DURABLE) as server:
        yield f"{server.url}?stream=hints&partitions=6&length=100000"


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path}/queue.db?partitions=4&length=100000"


@pytest.fixture
def postgres_url(pg_url):
    return f"{pg_url}{'&' if '?' in pg_url else '?'}partitions=9&length=100000"


def named(word, number):
    return [b"%s:%d" % (word, each) for each in range(number)]


class Hints:
    """What old clients have sent, and when."""

    def __init__(self, url, now_ms):
        self._sender = Sender(url)
        self._ms = now_ms
        self.wanted = {kind: set() for kind in (TOUCH, MISS, CHANGE)}
        self.ages = {}

    def send(self, kind, keys, at_once=SENT):
        for at in range(0, len(keys), at_once):
            some = keys[at : at + at_once]
            self._ms += 1000
            self._sender.send(kind, some, self._ms)
            self.wanted[kind] |= {*some}
            self.ages |= dict.fromkeys(some, self._ms)

    def close(self):
        self._sender.close()


def keys_by_kind(url):
    found = {kind: set() for kind in (TOUCH, MISS, CHANGE)}
    for _, pack in packs_in(url):
        found[pack.kind] |= {*pack.keys}
    return found


def kill_in_the_middle(drain, hints, new, kills):
    """Kills this many drains, and goes on until one was killed before it had carried everything. Returns how many were."""
    cut_short, draw = 0, random.Random(17)
    for number in range(KILLS_MAX):
        if number >= kills and cut_short:
            break
        some = named(b"c%d" % number, CHANGES)
        hints.send(CHANGE, some)
        enough = draw.random() * CHANGES
        drain.start()
        eventually(
            lambda n=enough: drain.metric("drained_total") > n or keys_by_kind(new) == hints.wanted,
            every=0.001,
        )
        drain.kill()
        cut_short += keys_by_kind(new) != hints.wanted
    assert cut_short, "every drain had carried everything before it was killed"
    return cut_short


@pytest.fixture
def clients():
    """Old clients of a queue: see `Hints`."""
    made = []

    def make_one(url, now_ms):
        made.append(Hints(url, now_ms))
        return made[-1]

    yield make_one
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("old", "new"), [("sqlite_url", "postgres_url"), ("streams_url", "sqlite_url")], ids=["sqlite", "streams"]
)
@pytest.mark.prove
def test_no_hint_is_lost_on_the_way_though_the_drain_is_killed_and_old_clients_still_write(
    request, amount, drains, clients, old, new
):
    old, new = request.getfixturevalue(old), request.getfixturevalue(new)
    make(old)
    make(new)
    hints = clients(old, time.time_ns() // 1_000_000 - 100_000)
    hints.send(TOUCH, named(b"t", TOUCHES))
    hints.send(MISS, named(b"m", MISSES))
    drain = drains(f"{old}&{SESSION}", new)
    cut_short = kill_in_the_middle(drain, hints, new, amount(KILLS, KILLS_MAX))
    drain.start()
    hints.send(CHANGE, named(b"late", LATE), 1)  # old clients still write
    eventually(lambda: keys_by_kind(new) == hints.wanted, every=0.5)
    drain.terminate()
    assert drain.wait() == exits.UNFINISHED
    assert left_in(old) == 0
    packs = packs_in(new)
    partitions = int(new.partition("partitions=")[2].partition("&")[0])
    for partition, pack in packs:
        assert {partition_of(key, partitions) for key in pack.keys} == {partition}
        assert all(pack.emitted_ms <= hints.ages[key] < pack.emitted_ms + 1000 for key in pack.keys)
    arrived = sum(len(pack.keys) for _, pack in packs)
    print(f"{cut_short} kills in the middle; {arrived:,} keys arrived for {len(hints.ages):,}, 0 lost")


@pytest.mark.prove
def test_hints_move_from_kafka_to_streams(kafka, new_topic, streams_url, drains, clients):
    make(streams_url)
    old = kafka.url(new_topic(partitions=3), "?session_timeout=6s")
    hints = clients(old, time.time_ns() // 1_000_000)
    hints.send(TOUCH, named(b"t", 1500))
    drain = drains(old, streams_url)
    kill_in_the_middle(drain, hints, streams_url, 2)
    drain.start()
    eventually(lambda: keys_by_kind(streams_url) == hints.wanted, every=0.5)
    eventually(lambda: drain.metric("lag") == 0)
    drain.terminate()
    assert drain.wait() == exits.UNFINISHED


def run_until_drained(old, new, quiet_s=5.0):
    """Runs a drain in this process to its own end. The first read of a busy machine must not take `quiet_s`."""
    said = []
    code = asyncio.run(Drain(DrainSettings(old, new, quiet_s=quiet_s)).run(said.append, asyncio.Event()))
    return code, said


def test_a_drain_ends_by_itself_once_nothing_has_come_for_a_while(sqlite_url, streams_url, clients, caplog):
    caplog.set_level("INFO")
    make(streams_url)
    clients(streams_url, time.time_ns() // 1_000_000).send(CHANGE, named(b"c", 500))
    code, said = run_until_drained(streams_url, sqlite_url)
    assert code == 0
    assert keys_by_kind(sqlite_url)[CHANGE] == {*named(b"c", 500)}
    assert left_in(streams_url) == 0
    last = "nothing is left on the old queue; drained 500 hints (500 changes, 0 misses, 0 touches)"
    assert caplog.messages[-1] == last
    assert last.partition("500")[0] in PAGE.read_text()
    assert said == [f"the streams hints of {streams_url.partition('?')[0]}  session 5s -> {sqlite_url}"]


def test_hints_move_from_postgresql_to_kafka(postgres_url, kafka, new_topic, clients):
    make(postgres_url)
    sent_ms = time.time_ns() // 1_000_000
    clients(postgres_url, sent_ms).send(CHANGE, named(b"c", 500))
    topic = new_topic(partitions=4)
    assert run_until_drained(postgres_url, kafka.url(topic))[0] == 0
    packs = [(at, decode_pack(value)) for at, _, value in asyncio.run(records_of(kafka.bootstrap, topic))]
    assert {key for _, pack in packs for key in pack.keys} == {*named(b"c", 500)}
    for at, pack in packs:
        assert {partition_of(key, 4) for key in pack.keys} == {at}
        assert sent_ms <= pack.emitted_ms <= sent_ms + 2000
    assert left_in(postgres_url) == 0


def test_the_command_of_the_page_carries_hints(sqlite_url, postgres_url, clients):
    said = re.search(r"^\$ (cacheupdater collect .*)\n(ready .*)$", PAGE.read_text(), re.MULTILINE)
    program, *arguments = shlex.split(said[1])
    old, new = (arguments[arguments.index(each) + 1] for each in ("--drain", "--queue"))
    make(sqlite_url)
    clients(sqlite_url, time.time_ns() // 1_000_000).send(CHANGE, named(b"c", 500))
    command = [{old: sqlite_url, new: postgres_url}.get(each, each) for each in arguments]
    with subprocess.Popen(
        dying_with_us([sys.executable, "-m", program, *command]), stdout=subprocess.PIPE, text=True
    ) as drain:
        wanted = said[2].replace(old.removeprefix("sqlite:///"), depot_url.parse(sqlite_url).path)
        assert drain.stdout.readline().strip().partition(" -> ")[0] == wanted.partition(" -> ")[0]
        eventually(lambda: keys_by_kind(postgres_url)[CHANGE] == {*named(b"c", 500)}, every=0.1)
        drain.terminate()
    assert drain.returncode == exits.UNFINISHED


def test_the_steps_of_the_page_move_a_team_from_a_file_to_a_server(
    sqlite_url, postgres_url, redis_url, plain, updaters, drains, clients
):
    keys = [b"item:%d" % each for each in range(200)]

    def settings_for(url):
        items = {"item": {"key": "item:{id:int}", "load": {"source": "main", "python": "live.bad_rows:rows"}}}
        said = config(redis_url, {"main": {"budget": "1000/s"}}, items)
        return said | {"queue": {"url": f"{url}&{SESSION}"}, "listen": None}

    old = updaters.start(settings_for(sqlite_url))
    client = clients(sqlite_url, time.time_ns() // 1_000_000)
    client.send(MISS, keys[:100])
    eventually(lambda: None not in plain.mget(keys[:100]))
    updaters.start(settings_for(postgres_url))
    drain = drains(f"{sqlite_url}&{SESSION}", postgres_url).start()
    old.terminate()
    assert old.wait() == 0
    client.send(MISS, keys[100:])  # nobody has told this client yet
    eventually(lambda: None not in plain.mget(keys))
    drain.terminate()
    assert drain.wait() == exits.UNFINISHED
    assert left_in(sqlite_url) == 0


def test_changes_that_a_topic_refuses_stay_on_the_old_queue(sqlite_url, kafka, new_topic, clients):
    make(sqlite_url)
    clients(sqlite_url, time.time_ns() // 1_000_000).send(
        CHANGE, [random.Random(each).randbytes(900) for each in range(40)]
    )
    small = new_topic(partitions=1, config={"max.message.bytes": "2000"})
    with pytest.raises(Misconfigured, match="stay on the old queue"):
        run_until_drained(sqlite_url, kafka.url(small))
    assert left_in(sqlite_url) > 0


@pytest.mark.parametrize("old", ["sqlite", "postgres", "streams", "kafka"])
def test_an_old_queue_that_does_not_exist_is_not_made(old, request, tmp_path, sqlite_url):
    """Whoever mistypes a URL must not find an empty queue and take it for a drained one."""
    new = f"sqlite:///{tmp_path}/new.db"
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path}/mistyped.db",
        "postgres": lambda: f"{request.getfixturevalue('postgres_url')}&table=mistyped",
        "streams": lambda: request.getfixturevalue("streams_url").replace("stream=hints", "stream=mistyped"),
        "kafka": lambda: request.getfixturevalue("kafka").url("mistyped"),
    }[old]()
    for _ in range(2):
        with pytest.raises(Misconfigured, match="there is no queue to drain"):
            run_until_drained(url, new)
    assert list(tmp_path.glob("*.db")) == []


def test_a_drain_stays_small_while_the_new_queue_takes_nothing(sqlite_url, streams_url, drains, clients):
    make(sqlite_url)
    drain = drains(sqlite_url, streams_url).start()
    with Redis.from_url(streams_url.partition("?")[0]) as server:
        server.client_pause(PAUSE_MS, all=False)
        clients(sqlite_url, time.time_ns() // 1_000_000).send(CHANGE, named(b"product", CARRIED), 1000)
        eventually(lambda: drain.metric("waiting") >= HELD_KEYS)
        time.sleep(2)  # what more would it read?
        print(f"{drain.resident / MIB:.1f} MiB, {drain.metric('waiting'):,.0f} of {CARRIED:,} changes read")
        assert drain.resident <= DRAIN_MIB * MIB
        server.client_unpause()
    eventually(lambda: drain.metric("drained_total") >= CARRIED)
    print(f"{drain.resident / MIB:.1f} MiB after all of them")
    assert drain.resident <= DRAIN_MIB * MIB


def test_a_drain_loads_nothing_heavy(sqlite_url, sockets):
    make(sqlite_url)
    command = [sys.executable, "-X", "importtime", "-m", "cacheupdater", "collect", "--drain", sqlite_url]
    with subprocess.Popen(
        dying_with_us([*command, "--queue", f"unix://{sockets}/nobody.sock"]),
        stderr=subprocess.PIPE,
        text=True,
    ) as drain:
        loaded = set()
        for line in drain.stderr:
            loaded.add(line.rpartition("|")[2].strip().partition(".")[0])
            if "does not take hints" in line:
                break
        drain.terminate()
        drain.stderr.read()
    assert drain.returncode == exits.UNFINISHED
    assert {"cacheupdater", "cacheupdater_client", "sqlite3"} <= loaded
    assert not loaded & {*HEAVY, "asyncpg", "redis", "aiokafka", "ruamel"}
