"""The client straight to a real Kafka: every hint arrives in its partition, and no fault of a broker reaches the application.

The tests read the topic back and decode it. Processes end within their bound and print nothing.
"""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from uuid import uuid4

import pytest
import redis
from brokers.records import records_of
from confluent_kafka import Producer as ForeignProducer
from suite.pace import PATIENCE_S, soonest

from cacheupdater.local import kafka_jars, kafka_topics
from cacheupdater.local.kafka_properties import ACLS
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater.local.ports import free_port
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, decode_pack, partition_of
from cacheupdater_client.sender import EXIT_S, Sender
from cacheupdater_client.transports import kafka_producer

ENCODER = redis.Redis().get_encoder()
ZSTD = 4  # the codec's number in a record batch
PROGRAM = """
import atexit, time
atexit.register(lambda: sys.argv[-1] == 'timed' and print(time.monotonic(), flush=True))  # the last of all
import asyncio, os, sys, threading, time
import cacheupdater_client as cu
from cacheupdater_client import Redis
from cacheupdater_client.asyncio import Redis as AsyncRedis
redis_url, emit = sys.argv[1:3]
"""
STRICT = [
    "-Werror",
    "-Wignore::ResourceWarning:redis",
    "-Wignore:This process:DeprecationWarning",  # Python 3.12 and later at any fork beside threads
]


@pytest.fixture
def sender():
    sender = Sender()
    yield sender
    sender.close(1)


@pytest.fixture
def buffer_to(sender):
    return lambda url, only=(): sender.target(url, only).buffer(ENCODER)


def eventually(condition, timeout=PATIENCE_S):
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def target_of(sender):
    (target,) = sender.stats()["targets"].values()
    return target


class Ledger:
    """What is in a topic, decoded."""

    def __init__(self, bootstrap, topic):
        self.records = kafka_topics.done(records_of(bootstrap, topic))
        self.packs = [(partition, decode_pack(value)) for partition, _, value in self.records]
        self.hints = {kind: Counter() for kind in (TOUCH, MISS, CHANGE)}
        for _, pack in self.packs:
            for key, times in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
                self.hints[pack.kind][key] += times

    def misplaced(self, partitions):
        return [
            key
            for partition, pack in self.packs
            for key in pack.keys
            if partition_of(key, partitions) != partition
        ]


def run(program, *arguments, timeout=60):
    """Runs a program in a clean interpreter; its output. It may print nothing else."""
    source = PROGRAM + textwrap.dedent(program)
    command = [sys.executable, *STRICT, "-c", source, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def names(*groups, size=100):
    return {f"p:{group}:{number}".encode(): 1 for group in groups for number in range(size)}


def led_by_a_broker_that_knows(buffer, sender):
    """A broker can be the last to hear that it leads a new partition; acks=0 does not hear what it says to that."""
    for key in names("first"):
        buffer.add(CHANGE, key)
    sender.close(30)
    assert sender.stats()["delivered"] == 100


def test_fills_arrive_with_their_tokens(kafka, new_topic, buffer_to, sender):
    topic = new_topic(partitions=3)
    buffer = buffer_to(kafka.url(topic))
    for number, key in enumerate(names("fill")):
        buffer.fill(key, number)
    buffer.touch("p:plain")
    sender.close(30)
    packs = [pack for _, pack in Ledger(kafka.bootstrap, topic).packs]
    told = {key: token for pack in packs for key, token in zip(pack.keys, pack.tokens, strict=False)}
    assert told == dict(zip(names("fill"), range(100), strict=True))
    assert [pack.keys for pack in packs if not pack.tokens] == [[b"p:plain"]]


@pytest.mark.parametrize("options", ["?acks=0", "", "?acks=all&compression=none"])
def test_all_hints_arrive_each_in_its_partition(kafka, new_topic, buffer_to, sender, options):
    topic = new_topic(partitions=6)
    led_by_a_broker_that_knows(buffer_to(kafka.url(topic)), sender)
    buffer, emitted = buffer_to(kafka.url(topic, options)), {}
    for kind in (TOUCH, MISS, CHANGE):
        emitted[kind] = Counter()
    for number in range(30_000):
        kind, key = (MISS, CHANGE, *[TOUCH] * 8)[number % 10], f"product:{number * 7919 % 5000}"
        buffer.add(kind, key)
        emitted[kind][key.encode()] += 1
        if number % 3000 == 0:
            time.sleep(0.05)
    emitted[CHANGE] += names("first")
    sender.close(60)
    assert sender.stats()["delivered"] == 30_100
    assert eventually(lambda: Ledger(kafka.bootstrap, topic).hints == emitted)
    assert Ledger(kafka.bootstrap, topic).misplaced(6) == []


def test_records_hold_a_hundred_hints_where_the_traffic_gives_that_many(kafka, new_topic, buffer_to, sender):
    topic = new_topic(partitions=4)
    buffer = buffer_to(kafka.url(topic))
    for number in range(20_000):
        buffer.touch(f"p:{number}")
        if number % 20 == 0:
            time.sleep(0.001)
    sender.close(60)
    ledger = Ledger(kafka.bootstrap, topic)
    assert sum(ledger.hints[TOUCH].values()) == 20_000
    assert 100 <= statistics.median(len(pack.keys) for _, pack in ledger.packs) <= 1000


def test_change_reaches_the_broker_within_a_few_turns(kafka, kafka_topic, buffer_to, sender):
    buffer = buffer_to(kafka.url(kafka_topic))
    buffer.touch("p:0")
    assert eventually(lambda: target_of(sender)["delivered"] == 1)

    def change():
        buffer.add(CHANGE, "p:1")
        assert eventually(lambda: target_of(sender)["waiting"] == 0)

    soonest(change, 0.05, tries=100)


def test_only_names_the_prefixes_that_leave(kafka, kafka_topic, buffer_to, sender):
    buffer = buffer_to(kafka.url(kafka_topic), (b"p:",))
    for key in ("p:1", "secret:1"):
        buffer.touch(key)
    sender.close(60)
    assert Ledger(kafka.bootstrap, kafka_topic).hints[TOUCH] == {b"p:1": 1}
    assert sender.stats()["dropped"] == {"undeclared": 1}


def test_pack_that_is_too_large_for_the_topic_is_counted_and_keeps_no_other(
    needs_apache, kafka, new_topic, buffer_to, sender
):
    topic = new_topic(partitions=1, config={"max.message.bytes": "4000"})
    buffer = buffer_to(kafka.url(topic, "?compression=none"))
    for number in range(100):
        buffer.add(MISS, f"large:{number}" + "x" * 100)
    for number in range(50):
        buffer.add(CHANGE, f"p:{number}")
    buffer.touch("p:touched")
    sender.close(60)
    assert sender.stats()["dropped"] == {"refused": 100}
    ledger = Ledger(kafka.bootstrap, topic)
    assert (len(ledger.hints[CHANGE]), len(ledger.hints[MISS]), len(ledger.hints[TOUCH])) == (50, 0, 1)


def test_more_partitions_are_used_when_the_topic_gets_them(
    kafka, new_topic, buffer_to, sender, monkeypatch, needs_apache
):
    monkeypatch.setattr(kafka_producer, "METADATA_S", 0.5)
    topic = new_topic(partitions=2)
    buffer = buffer_to(kafka.url(topic))
    buffer.add(CHANGE, "p:0")
    assert eventually(lambda: target_of(sender)["delivered"] == 1)
    kafka_topics.done(kafka_topics.add_partitions(kafka.bootstrap, topic, total=5))
    (target,) = sender._active
    assert eventually(lambda: target._link._partitions == 5)
    for number in range(200):
        buffer.add(CHANGE, f"q:{number}")
    sender.close(60)
    ledger = Ledger(kafka.bootstrap, topic)
    assert ledger.hints[CHANGE] == {b"p:0": 1} | {b"q:%d" % number: 1 for number in range(200)}
    assert {partition for partition, _ in ledger.packs} == set(range(5))
    assert [key for key in ledger.misplaced(5) if key.startswith(b"q:")] == []


@pytest.mark.parametrize("level", [logging.NOTSET, logging.CRITICAL], ids=["heard", "silenced"])
def test_missing_topic_is_named_and_hints_arrive_when_it_is_made(
    kafka, buffer_to, sender, caplog, level, needs_apache
):
    """Also where the application has silenced aiokafka, whose warnings say it best."""
    caplog.set_level(level, "aiokafka")
    topic = f"made-later-{uuid4().hex[:8]}"  # two workers may be here at once
    buffer = buffer_to(kafka.url(topic))
    for number in range(100):
        buffer.touch(f"p:{number}")
    assert eventually(lambda: topic in target_of(sender)["trouble"])
    assert not target_of(sender)["connected"]
    assert sender.stats()["waiting"] == 100
    kafka_topics.done(kafka_topics.create(kafka.bootstrap, topic, partitions=3))
    assert eventually(lambda: sender.stats()["delivered"] == 100)
    assert target_of(sender)["trouble"] == ""
    kafka_topics.done(kafka_topics.delete(kafka.bootstrap, topic))


def test_client_without_permission_is_told_so_and_sends_once_it_has_it(
    buffer_to, sender, tmp_path, needs_apache
):
    (tmp_path / "password").write_text("secret\n")
    login = f"?sasl=SCRAM-SHA-512&username=shop&password_file={tmp_path}/password"
    with KafkaServer(protocol="SASL_PLAINTEXT", users={"shop": "secret"}, properties=ACLS) as server:
        kafka_topics.done(kafka_topics.create(server.admin, "hints"))
        buffer = buffer_to(f"kafka://{server.bootstrap}/hints{login}")
        buffer.touch("p:1")
        assert eventually(lambda: "uthoriz" in target_of(sender)["trouble"])
        server.grant("shop", "Describe", topic="hints")
        assert eventually(lambda: "TopicAuthorizationFailed" in target_of(sender)["trouble"])
        assert sender.stats()["waiting"] == 1
        server.grant("shop", "Write", topic="hints")
        assert eventually(lambda: sender.stats()["delivered"] == 1)
        (tmp_path / "password").write_text("wrong")
        sender.close(60)
        buffer.touch("p:2")
        assert eventually(lambda: "Authentication failed" in target_of(sender)["trouble"])


def latencies(client, plain, seconds):
    """Milliseconds of each read at a steady pace, and of those of redis-py that went by turns with them."""
    ours, theirs, until = [], [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        for each, took in ((client, ours), (plain, theirs)):
            began = time.perf_counter()
            each.get(f"p:{len(took) % 1000}")
            took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.0005)
    return ours, theirs


def excess(ours, theirs, slices=6):
    """Milliseconds by which a usual read takes longer than twice one of redis-py's, in the best slice of the time. Other
    work on the machine adds to our reads, whose thread has company; a read that waited for the broker would in each."""
    size = len(ours) // slices
    return min(
        statistics.median(ours[at : at + size]) - 2 * statistics.median(theirs[at : at + size])
        for at in range(0, slices * size, size)
    )


@pytest.mark.prove
def test_stopped_broker_costs_no_hint_and_no_read_any_time(
    own_kafka, redis_url, monkeypatch, record_property, needs_apache
):
    """Stopped for longer than one request may take, so that frames under way fail and go again."""
    import cacheupdater_client as cu

    monkeypatch.setattr(kafka_producer, "REQUEST_S", 2.0)
    kafka_topics.done(kafka_topics.create(own_kafka.admin, "hints", partitions=6))
    emit = f"kafka://{own_kafka.bootstrap}/hints"
    with cu.Redis.from_url(redis_url, emit=emit) as client, redis.Redis.from_url(redis_url) as plain:
        calm, _ = latencies(client, plain, 2)
        own_kafka.kill()
        stopped, control = latencies(client, plain, 6)
        middle = cu.stats()["targets"][emit]
        with ThreadPoolExecutor(1) as reader:
            later = reader.submit(latencies, client, plain, 6)
            own_kafka.start()
            again, _ = later.result()
        assert middle["trouble"]
        assert middle["waiting"] > 0
        assert eventually(lambda: cu.stats()["targets"][emit]["waiting"] == 0)
    cu.close(60)
    reads = len(calm) + len(stopped) + len(again)
    stats = cu.stats()["targets"][emit]
    assert (stats["emitted"], stats["delivered"], stats["dropped"]) == (reads, reads, {})
    ledger = Ledger(own_kafka.bootstrap, "hints")
    emitted = Counter(
        b"p:%d" % (number % 1000) for each in (calm, stopped, again) for number in range(len(each))
    )
    assert all(ledger.hints[MISS][key] >= count for key, count in emitted.items())
    assert ledger.misplaced(6) == []
    for name, of in (
        ("median", statistics.median),
        ("p99", lambda each: statistics.quantiles(each, n=100)[98]),
    ):
        record_property(
            f"figure: kafka, broker stopped, {name} of a read / redis-py's", of(stopped) / of(control)
        )
    assert excess(stopped, control) < 0.2


def test_zstd_is_what_the_broker_keeps(own_kafka, buffer_to, sender, needs_apache):
    codecs = {}
    for topic, options in (("packed", ""), ("plain", "?compression=none")):
        kafka_topics.done(kafka_topics.create(own_kafka.admin, topic, partitions=1))
        buffer = buffer_to(f"kafka://{own_kafka.bootstrap}/{topic}{options}")
        for number in range(1000):
            buffer.touch(f"product:{number}")
        sender.close(60)
        (segment,) = own_kafka._folder.glob(f"1/{topic}-0/*.log")
        codecs[topic] = segment.read_bytes()[22] & 7  # the low byte of the first batch's attributes
    assert codecs == {"packed": ZSTD, "plain": 0}


def test_close_ends_within_its_bound_at_a_broker_that_hangs(own_kafka, buffer_to, sender, needs_apache):
    kafka_topics.done(kafka_topics.create(own_kafka.admin, "hints"))
    buffer = buffer_to(f"kafka://{own_kafka.bootstrap}/hints")
    buffer.touch("p:0")
    assert eventually(lambda: sender.stats()["delivered"] == 1)
    own_kafka.pause()
    rounds = count(1)

    def close():
        """Where a link is, and then where one has never been answered."""
        next(rounds)
        for number in range(1000):
            buffer.add(CHANGE, f"p:{number}")
        assert eventually(lambda: len(buffer) == 0)  # they are on their way
        began = time.monotonic()
        sender.close(1.0)
        return time.monotonic() - began

    for _ in range(2):
        soonest(close, 1.5)
    assert sender.stats()["dropped"] == {"closed": 1000 * (next(rounds) - 1)}
    own_kafka.resume()


def test_exit_ends_within_its_bound_whatever_the_broker_does(own_kafka, redis_url, needs_apache):
    """Hung before the first hint, hung in mid-send, dead in mid-send; the last two have been connected."""
    kafka_topics.done(kafka_topics.create(own_kafka.admin, "hints"))
    program = """
        import signal
        r = Redis.from_url(redis_url, emit=emit)
        broker, how = int(sys.argv[3]), sys.argv[4]
        if how != 'hung first':
            r.get('p:0')
            while not cu.stats()['delivered']: time.sleep(0.01)
            os.kill(broker, signal.SIGSTOP if how == 'hung' else signal.SIGKILL)
        for n in range(1000): r.get(f'p:{n}')
        r.set('p:1', 1)
        time.sleep(0.1)
        print(time.monotonic())
        """

    def end(how):
        own_kafka.resume()
        own_kafka.start()
        if how == "hung first":
            own_kafka.pause()
        printed = run(program, redis_url, emit, str(own_kafka.pid), how, "timed")
        began, ended = map(float, printed.split())
        return ended - began

    emit = f"kafka://{own_kafka.bootstrap}/hints"
    for how in ("hung", "hung first", "dead"):
        soonest(lambda how=how: end(how), EXIT_S + 0.5)


def test_exit_is_quick_when_nobody_listens(redis_url):
    emit = f"kafka://127.0.0.1:{free_port()}/hints"
    program = """
        r = Redis.from_url(redis_url, emit=emit)
        for n in range(1000): r.get(f'p:{n}')
        until = time.monotonic() + 20
        while not cu.stats()['targets'][emit]['trouble'] and time.monotonic() < until: time.sleep(0.01)
        assert 'connect' in cu.stats()['targets'][emit]['trouble'].lower(), cu.stats()
        print(time.monotonic())
        """

    def end():
        began, ended = map(float, run(program, redis_url, emit, "timed").split())
        return ended - began

    soonest(end, EXIT_S)


@pytest.mark.parametrize("loops", ["asyncio.run", "uvloop.run"])
def test_event_loops_and_threads_deliver_all_at_exit_or_close(kafka, kafka_topic, redis_url, loops):
    run(
        f"""
        import {loops.removesuffix(".run")}
        from cacheupdater_client import sender
        sender.sender._exit_left = 60  # other tests bound the time of an exit
        async def main(name):
            async with AsyncRedis.from_url(redis_url, emit=emit) as r:
                await asyncio.gather(*(r.get(f'p:{{name}}:{{n}}') for n in range(100)))
                if name == 'closing': cu.close(60)
        other = threading.Thread(target=lambda: {loops}(main('thread')))
        other.start()
        {loops}(main('first'))
        {loops}(main('closing'))
        other.join()
        {loops}(main('last'))
        """,
        redis_url, kafka.url(kafka_topic),
    )  # fmt: skip
    assert Ledger(kafka.bootstrap, kafka_topic).hints[MISS] == names("thread", "first", "closing", "last")


@pytest.mark.parametrize("pause", [0, 0.05, 1])
def test_fork_delivers_parents_and_childrens_hints(kafka, kafka_topic, redis_url, pause):
    """Forked before, amid and after the first connection, whose libraries are imported in the sender's thread."""
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        for n in range(50): r.get(f'p:parent:{n}')
        time.sleep(float(sys.argv[3]))
        children = []
        for child in range(4):
            pid = os.fork()
            if not pid:
                assert cu.stats()['emitted'] == 0
                for n in range(100): r.get(f'p:child{child}:{n}')
                cu.close(60)
                assert cu.stats()['dropped'] == {}, cu.stats()
                sys.exit(0)
            children.append(pid)
        for n in range(50, 100): r.get(f'p:parent:{n}')
        for pid in children: assert os.waitpid(pid, 0)[1] == 0
        cu.close(60)
        """,
        redis_url, kafka.url(kafka_topic), str(pause),
    )  # fmt: skip
    groups = ("parent", "child0", "child1", "child2", "child3")
    assert Ledger(kafka.bootstrap, kafka_topic).hints[MISS] == names(*groups)


def test_client_imports_the_library_with_the_first_hint_and_in_its_own_thread(kafka, kafka_topic, redis_url):
    printed = run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        assert not {'aiokafka', 'cramjam'} & sys.modules.keys()
        class Importers:
            def find_spec(self, name, *_):
                if name == 'aiokafka': print(threading.current_thread().name)
        sys.meta_path.insert(0, Importers())
        r.get('p:1')
        until = time.monotonic() + 20
        while not cu.stats()['delivered'] and time.monotonic() < until: time.sleep(0.01)
        assert cu.stats()['delivered'] == 1
        """,
        redis_url, kafka.url(kafka_topic),
    )  # fmt: skip
    assert printed == "cacheupdater-sender\n"


def test_plain_record_of_a_foreign_producer_carries_its_key(kafka, new_topic, tmp_path, needs_apache):
    """What the page on the wire says of producers in other languages, from their side."""
    topic = new_topic(partitions=3)
    foreign = ForeignProducer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        foreign.produce(topic, key=f"confluent:{number}")
    assert foreign.flush(10) == 0
    lines = [f"console:{number}\t" for number in range(100)]
    kafka_jars.console_produce(kafka.bootstrap, topic, lines, {"parse.key": "true", "key.separator": "\t"})
    records = kafka_topics.done(records_of(kafka.bootstrap, topic))
    assert {key for _, key, _ in records} == {
        f"{name}:{number}".encode() for name in ("confluent", "console") for number in range(100)
    }
    assert all(not value for _, _, value in records)


def test_application_keeps_its_own_logs_of_the_library(buffer_to, sender, caplog):
    """What is said of our connections is kept out: keys are in it."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(
        logging.DEBUG, logger="aiokafka"
    )  # the service's own logging, tried in this process, silences it
    buffer_to("kafka://127.0.0.1:1/hints").touch("p:secret")
    assert eventually(lambda: "127.0.0.1" in target_of(sender)["trouble"])
    logging.getLogger("aiokafka.conn").warning("the application's")
    said = [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka")]
    assert said == ["the application's"]
