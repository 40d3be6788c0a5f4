"""Several processes share the streams of a real Redis, while a client sends: some are killed, and so is Redis."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from itertools import count

import pytest
import redis
from depots.processes import PARTITIONS, Member, all_done, all_owned, eventually, keeps_its_owners

from cacheupdater_client.protocol.wire import CHANGE
from cacheupdater_client.sender import Sender

ENCODER = redis.Redis().get_encoder()


@pytest.fixture
def start(redis_server, tmp_path):
    members = []

    def start(session):
        url = f"{redis_server.url}?stream=hints&partitions={PARTITIONS}"
        members.append(Member(url, session, tmp_path / f"member-{len(members)}"))
        return members[-1]

    yield start
    for each in members:
        with contextlib.suppress(ProcessLookupError):
            each.end(signal.SIGKILL)


@contextlib.contextmanager
def load(url):
    """A client that changes ever new keys; gives the list of those that it has changed so far."""
    sender, ended, sent = Sender(), threading.Event(), []
    buffer = sender.target(f"{url}?stream=hints&partitions={PARTITIONS}", ()).buffer(ENCODER)

    def run():
        for number in count():
            if ended.wait(0.005):
                return
            buffer.add(CHANGE, f"k:{number}")
            sent.append(f"k:{number}")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()
        sender.close(30)
        assert sender.stats()["dropped"] == {}


@pytest.mark.prove
def test_partitions_of_a_killed_owner_are_taken_over_within_a_session_and_a_second_and_no_change_is_lost(
    redis_server, start, record_property
):
    session = 5.0
    with load(redis_server.url) as sent:
        first = start(session)
        assert eventually(lambda: all_owned(first))
        others = [start(session) for _ in range(2)]
        assert eventually(lambda: all(each.gained and each.done for each in others))
        shared = set().union(*(each.gained for each in others))

        killed = time.monotonic()
        first.end(signal.SIGKILL)
        theirs = set(range(PARTITIONS)) - shared
        assert theirs
        assert eventually(lambda: all_owned(*others))
        took = max(each.gained[p] for each in others for p in theirs & each.gained.keys()) - killed
        record_property("figure: streams, takeover after kill -9 (session 5 s), s", took)

        left = time.monotonic()
        leaver, heir = others
        handed = leaver.gained.keys() - heir.gained.keys()
        leaver.end(signal.SIGTERM)
        assert eventually(lambda: all_owned(heir))
        at_once = max(heir.gained[p] for p in handed) - left
        record_property("figure: streams, takeover after a graceful end, s", at_once)
    members = [first, *others]
    assert eventually(all_done(sent, members))
    done = [key for each in members for key in each.done]
    record_property(
        "figure: streams, keys done more than once after a kill and a leave", len(done) - len(set(done))
    )
    assert took <= session + 1
    assert at_once <= session / 2


@pytest.mark.prove
def test_an_owner_that_was_stopped_for_longer_than_its_session_loses_all_and_comes_back_as_a_member(
    redis_server, start
):
    with load(redis_server.url) as sent:
        stopped = start(2.0)
        assert eventually(lambda: all_owned(stopped))
        heir = start(2.0)
        assert eventually(lambda: heir.gained and heir.done)
        stopped.process.send_signal(signal.SIGSTOP)
        assert eventually(lambda: all_owned(heir))
        woken = time.monotonic()
        stopped.process.send_signal(signal.SIGCONT)
        assert eventually(lambda: any(when > woken for when in stopped.gained.values()))
        both = [stopped, heir]
        assert eventually(lambda: keeps_its_owners(sent, both))
        before = len(sent)
        assert eventually(lambda: len(sent) > before + 200)
    assert eventually(all_done(sent, both))
    late = Counter(key for each in both for key in each.done if key in set(sent[before:]))
    assert set(late.values()) == {1}, "each partition has one owner again"


def test_owners_go_on_with_a_redis_that_has_come_back_empty_and_tell_so(redis_server, start):
    with load(redis_server.url) as sent:
        members = [start(2.0), start(2.0)]
        assert eventually(lambda: all(each.gained and each.done for each in members))
        redis_server.kill()
        before = len(sent)
        redis_server.start()
        assert eventually(lambda: len(sent) > before + 200)
    assert eventually(all_done(sent[before:], members))
    assert eventually(lambda: any(each.said("lost", "redis") for each in members))
    assert any(each.said("trouble", "depot_lost") for each in members)
