"""Several processes share a depot in a real Redis or database, while changes come: some are killed, some stopped, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from itertools import count

import pytest
import redis
from depots.files import freeze
from depots.processes import PARTITIONS, Member, all_done, all_owned, eventually, keeps_its_owners
from suite.pace import Metronome

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater_client.protocol.wire import CHANGE, encode_pack, partition_of
from cacheupdater_client.sender import Sender

SESSION_S = 5.0  # the default
ENCODER = redis.Redis().get_encoder()


def streams_of(redis_url):
    return f"{redis_url}?stream=hints&partitions={PARTITIONS}"


@pytest.fixture(params=["streams", "sqlite", "postgresql"])
def kind(request):
    return request.param


@pytest.fixture
def url(kind, request, tmp_path):
    if kind == "streams":
        return streams_of(request.getfixturevalue("redis_server").url)
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/hints.db?partitions={PARTITIONS}"
    base = request.getfixturevalue("pg_url")
    return f"{base}{'&' if '?' in base else '?'}partitions={PARTITIONS}"


@pytest.fixture
def start(url, tmp_path):
    members = []

    def start(session):
        members.append(Member(url, session, tmp_path / f"member-{len(members)}"))
        return members[-1]

    yield start
    for each in members:
        with contextlib.suppress(ProcessLookupError):
            each.end(signal.SIGKILL)


def load(url):
    """Changes ever new keys; gives the list of those that are in the queue, or that a client keeps until they are."""
    return sent_by_a_client(url) if "stream=" in url else put_by_a_depot(url)


@contextlib.contextmanager
def sent_by_a_client(url):
    sender, ended, sent = Sender(), threading.Event(), []
    buffer = sender.target(url, ()).buffer(ENCODER)

    def run():
        for number in count():
            if ended.wait(0.005):
                return
            buffer.add(CHANGE, f"k:{number}")
            sent.append(f"k:{number}")

    with beside(run, ended):
        yield sent
    sender.close(30)
    assert sender.stats()["dropped"] == {}


@contextlib.contextmanager
def put_by_a_depot(url):
    ended, sent = threading.Event(), []

    async def put():
        depot = depot_at(depot_url.parse(url))
        await depot.open()
        for number in count():
            if ended.is_set():
                break
            key = f"k:{number}"
            pack = encode_pack(CHANGE, 1, [key.encode()])
            await depot.put([(partition_of(key.encode(), PARTITIONS), pack)])
            sent.append(key)
            await asyncio.sleep(0.01)
        await depot.close()

    with beside(lambda: asyncio.run(put()), ended):
        yield sent


@contextlib.contextmanager
def beside(run, ended):
    """Runs in a thread until the block is left."""
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.prove
def test_partitions_of_a_killed_owner_are_taken_over_within_a_session_and_a_second_and_no_change_is_lost(
    kind, url, start, record_property
):
    with load(url) as sent, Metronome() as control:
        first = start(SESSION_S)
        assert eventually(lambda: all_owned(first))
        others = [start(SESSION_S) for _ in range(2)]
        assert eventually(lambda: all(each.gained and each.done for each in others))
        shared = set().union(*(each.gained for each in others))

        killed = time.monotonic()
        first.end(signal.SIGKILL)
        theirs = set(range(PARTITIONS)) - shared
        assert theirs
        assert eventually(lambda: all_owned(*others))
        took = max(each.gained[p] for each in others for p in theirs & each.gained.keys()) - killed
        record_property(f"figure: {kind}, takeover after kill -9 (session 5 s), s", took)

        left = time.monotonic()
        leaver, heir = others
        handed = leaver.gained.keys() - heir.gained.keys()
        leaver.end(signal.SIGTERM)
        assert eventually(lambda: all_owned(heir))
        at_once = max(heir.gained[p] for p in handed) - left
        record_property(f"figure: {kind}, takeover after a graceful end, s", at_once)
    members = [first, *others]
    assert eventually(all_done(sent, members))
    done = [key for each in members for key in each.done]
    record_property(f"figure: {kind}, keys done more than once", len(done) - len(set(done)))
    assert took <= SESSION_S + 1 + control.latest
    assert at_once <= SESSION_S / 2 + control.latest


@pytest.mark.prove
def test_an_owner_that_was_stopped_for_longer_than_its_session_loses_all_and_comes_back_as_a_member(
    url, start
):
    with load(url) as sent:
        stopped = start(SESSION_S)
        assert eventually(lambda: all_owned(stopped))
        heir = start(SESSION_S)
        assert eventually(lambda: heir.gained and heir.done)
        freeze(url, stopped.pause, stopped.resume)
        assert eventually(lambda: all_owned(heir))
        woken = time.monotonic()
        stopped.resume()
        assert eventually(lambda: any(when > woken for when in stopped.gained.values()))
        both = [stopped, heir]
        assert eventually(lambda: keeps_its_owners(sent, both))
        before = len(sent)
        assert eventually(lambda: len(sent) > before + 200)
    assert eventually(all_done(sent, both))
    late = Counter(key for each in both for key in each.done if key in set(sent[before:]))
    assert set(late.values()) == {1}, "each partition has one owner again"


@pytest.mark.parametrize("kind", ["streams"], indirect=True)
def test_owners_go_on_with_a_redis_that_has_come_back_empty_and_tell_so(redis_server, url, start):
    with load(url) as sent:
        members = [start(2.0), start(2.0)]
        assert eventually(lambda: all(each.gained and each.done for each in members))
        redis_server.kill()
        before = len(sent)
        redis_server.start()
        assert eventually(lambda: len(sent) > before + 200)
    assert eventually(all_done(sent[before:], members))
    assert eventually(lambda: any(each.said("lost", "redis") for each in members))
    assert eventually(lambda: any(each.said("trouble", "depot_lost") for each in members))
