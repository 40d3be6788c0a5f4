"""Observing code never raises: each call of a function of ours is made to fail in turn, and the application never notices.

`tests/integration/test_guard_cluster.py` does so with the clients of a cluster.
"""

from __future__ import annotations

import abc
import asyncio
import sys
import types
from types import ModuleType
from typing import Generic, Protocol, TypeVar
from unittest import mock

import pytest
import redis
import redis.asyncio
from stories.guarded import all_that_fell, play, play_later

import cacheupdater_client
from cacheupdater_client import Redis, wrap
from cacheupdater_client.asyncio import Redis as AsyncRedis
from cacheupdater_client.buffer import Buffer
from cacheupdater_client.guard import faults
from cacheupdater_client.observe import Emitting
from cacheupdater_client.sender import Sender

REPLIES = {
    "GET": b"v", "HGETALL": {}, "MGET": [b"v", None], "SET": True, "EXISTS": 0, "LRANGE": [],
    "EVALSHA": [0, 0], "STRLEN": 3,
}  # fmt: skip


def answer(_, *words, **__):
    return REPLIES[words[0]]


async def answer_later(_, *words, **__):
    return REPLIES[words[0]]


def executed(pipe, *_, **__):
    return [REPLIES[words[0]] for words, _ in pipe.command_stack]


async def executed_later(pipe, *_, **__):
    return [REPLIES[words[0]] for words, _ in pipe.command_stack]


PROGRAM = [
    ("get", "k"), ("get", b"bytes"), ("get", "x" * 300), ("hgetall", "h"), ("mget", ["a", "b"]), ("set", "k", 1),
    ("exists", "k"), ("lrange", "l", 0, 1), ("invalidate", "a", "b"), ("mget", ["x" * 300, "y"]), ("strlen", "k"),
]  # fmt: skip


QUEUED = [each for each in PROGRAM[:8] if each[0] != "invalidate"], True


def played(kind, sender):
    """The program with a client whose hints are the first of their process. redis-py's own are instrumented."""
    client = kind(emit="none") if issubclass(kind, Emitting) else kind()
    if isinstance(client, Emitting):
        client.emit_to(sender.target("memory://nobody", ()).buffer(client.get_encoder()))
    if isinstance(client, redis.Redis):
        return lambda: play(client, PROGRAM, QUEUED)
    loop = asyncio.new_event_loop()

    def run():
        try:
            return loop.run_until_complete(play_later(client, PROGRAM, QUEUED))
        finally:
            loop.close()

    return run


@pytest.fixture
def stubbed():
    with (
        mock.patch.object(redis.Redis, "execute_command", answer),
        mock.patch.object(redis.client.Pipeline, "execute", executed),
        mock.patch.object(redis.asyncio.Redis, "execute_command", answer_later),
        mock.patch.object(redis.asyncio.client.Pipeline, "execute", executed_later),
    ):
        yield


@pytest.mark.parametrize("kind", [Redis, AsyncRedis, redis.Redis, redis.asyncio.Redis])
def test_no_fault_of_ours_reaches_the_application_whichever_function_has_it(kind, stubbed):
    fell = all_that_fell(lambda sender: played(kind, sender), ours=issubclass(kind, Emitting))
    assert {"miss", "add", "add_all", "attend", "hurry", "hints_of", "rule_of", "renew"} <= fell


def test_faults_are_counted_in_stats(stubbed):
    client = Redis(emit="memory://nobody")
    before = cacheupdater_client.stats()["faults"]
    with mock.patch.object(type(client._hints), "add", side_effect=MemoryError):
        assert client.get(b"k") == b"v"
    assert cacheupdater_client.stats()["faults"] == before + 1


def test_first_hint_bears_a_multiprocessing_that_another_thread_is_importing(stubbed, monkeypatch):
    monkeypatch.setitem(sys.modules, "multiprocessing.util", ModuleType("multiprocessing.util"))
    sender, before = Sender(), faults.count
    assert sender.target("memory://nobody", ()).buffer(redis.Redis().get_encoder()).touch("k") is None
    assert (sender._running, faults.count) == (True, before)
    sender.close(1)


def kept_by(client):
    """A buffer of this client's hints that no sender's thread drains."""
    attendant = types.SimpleNamespace(attend=lambda _: True, hurry=lambda: None)
    buffer = Buffer(client.get_encoder(), attendant)
    client.emit_to(buffer)
    return buffer


def test_pipeline_of_a_users_class_that_keeps_its_replies_announces_what_it_may_have_written(stubbed):
    class Silent(redis.client.Pipeline):
        def execute(self, raise_on_error=True):
            super().execute(raise_on_error)

    class Quiet(redis.Redis):
        def pipeline(self, transaction=True, shard_hint=None):
            return Silent(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    client = wrap(Quiet(), emit="none")
    buffer = kept_by(client)
    pipe = client.pipeline()
    pipe.get("r")
    pipe.set("w", 1)
    assert pipe.execute() is None
    assert [dict(counts) for _, counts in buffer.drain()] == [{b"w": 1}]


@pytest.mark.parametrize("kind", [Redis, AsyncRedis])
async def test_pipeline_that_is_reset_keeps_no_arguments(kind):
    pipe = kind(emit="memory://nobody").pipeline()
    for number in range(100):
        pipe.set(f"k:{number}", bytes(1000))
    done = pipe.reset()
    if kind is AsyncRedis:
        await done
    assert pipe._queued == {}


@pytest.mark.parametrize("name", ["get", "hgetall"])
@pytest.mark.parametrize("kind", [Redis, AsyncRedis])
async def test_patch_of_execute_command_on_an_object_sees_every_command(kind, name, stubbed):
    client, seen = kind(emit="none"), []
    buffer = kept_by(client)
    plain = client.execute_command

    def traced(*words, **options):
        seen.append(words[0])
        return plain(*words, **options)

    client.execute_command = traced
    reply = getattr(client, name)("k")
    assert (await reply if kind is AsyncRedis else reply) == REPLIES[name.upper()]
    assert seen == [name.upper()]
    assert sum(sum(counts.values()) for _, counts in buffer.drain()) == 1


@pytest.mark.parametrize("name", ["get", "hgetall"])
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("kind", [Redis, AsyncRedis])
async def test_patch_of_execute_command_on_a_class_sees_every_command(
    kind, derived, name, stubbed, monkeypatch
):
    for short in ("get", "hgetall"):  # put back afterwards
        monkeypatch.setattr(kind, short, vars(kind)[short])
    cls = type("Named", (kind,), {}) if derived else kind
    client, seen = cls(emit="none"), []
    buffer = kept_by(client)
    plain = cls.execute_command

    def traced(self, *words, **options):
        seen.append(words[0])
        return plain(self, *words, **options)

    monkeypatch.setattr(cls, "execute_command", traced)
    reply = getattr(client, name)("k")
    assert (await reply if kind is AsyncRedis else reply) == REPLIES[name.upper()]
    assert seen == [name.upper()]
    assert sum(sum(counts.values()) for _, counts in buffer.drain()) == 1


def test_classes_mix_with_all_that_redis_pys_mix_with():
    class Named(Protocol):
        name: str

    for mixed in (abc.ABC, Named, Generic[TypeVar("T")]):
        for kind in (Redis, AsyncRedis):
            assert issubclass(types.new_class("Mixed", (kind, mixed)), kind)


def test_patch_of_a_mock_on_an_object_is_asked_and_can_be_taken_off(stubbed):
    client = Redis(emit="memory://nobody")
    with mock.patch.object(client, "execute_command", return_value=b"mocked"):
        assert client.get("k") == b"mocked"
    assert client.get("k") == b"v"
    with mock.patch.object(client, "get", return_value=b"mocked"):
        assert client.get("k") == b"mocked"
    assert client.get("k") == b"v"


def test_patch_that_was_there_before_the_client_was_wrapped_sees_every_command(stubbed):
    client = redis.Redis()
    client.execute_command = mock.Mock(return_value=b"mocked")
    wrap(client, emit="none")
    assert client.get("k") == b"mocked"
