"""The cluster clients' observing code never raises: each call of a function of ours fails in turn, beside a real cluster.

`tests/unit/client/test_guard.py` does so with the clients of one Redis.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import redis
import redis.asyncio
from stories.guarded import DOORS, DOORS_OF_CLUSTERS, all_that_fell, play, play_later

from cacheupdater_client import wrap
from cacheupdater_client.observe import Emitting

# Each time it is played, its end is as its beginning, so it gets the same replies again.
PROGRAM = [
    ("get", "k"), ("get", "x" * 300), ("hgetall", "h"), ("mget_nonatomic", ["k", "y", "z"]), ("mset_nonatomic", {"k": "v", "y": "w"}),
    ("exists", "k", "z"), ("lrange", "l", 0, 1), ("invalidate", "a", "b", "c"), ("delete", "y", "z"),
]  # fmt: skip
COMMANDS = [
    ("get", "k"),
    ("set", "p", 1),
    ("exists", "k"),
    ("unlink", "p"),
    ("hgetall", "h"),
    ("delete", "p"),
]
QUEUED = COMMANDS, False
LATER = [*COMMANDS, ("mset_nonatomic", {"k": "v"})], False
TOGETHER = [("get", "{t}a"), ("set", "{t}b", 1), ("delete", "{t}b")], True


@pytest.fixture
def start(redis_cluster):
    """Where a client begins to look for the cluster."""
    return {"host": "127.0.0.1", "port": redis_cluster.nodes[0].port}


def emitting(client, sender):
    """Its hints are the first of a process."""
    if isinstance(client, Emitting):
        client.emit_to(sender.target("memory://nobody", ()).buffer(client.get_encoder()))
    return client


# a wrapped client is of our own class; redis-py's own are instrumented
KINDS = {"wrapped": lambda client: wrap(client, emit="none"), "instrumented": lambda client: client}
SEEN = {"add_all", "attend", "hurry", "hints_of", "rule_of", "renew"}


@pytest.mark.parametrize("kind", ["wrapped", pytest.param("instrumented", marks=pytest.mark.prove)])
def test_no_fault_of_ours_reaches_an_application_with_a_cluster(kind, start):
    with redis.RedisCluster(**start) as plain:
        plain.set("k", "v")
        client = KINDS[kind](plain)
        fell = all_that_fell(
            lambda sender: partial(play, emitting(client, sender), PROGRAM, QUEUED, TOGETHER),
            ours=isinstance(client, Emitting),
            doors=DOORS | DOORS_OF_CLUSTERS,
        )
    assert fell >= SEEN, fell


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["wrapped", "instrumented"])
def test_no_fault_of_ours_reaches_an_asyncio_application_with_a_cluster(kind, start):
    with asyncio.Runner() as runner:
        client = KINDS[kind](runner.run(made(start)))

        def ready(sender):
            emitting(client, sender)
            return lambda: runner.run(play_later(client, PROGRAM, LATER, TOGETHER))

        try:
            fell = all_that_fell(ready, ours=isinstance(client, Emitting), doors=DOORS | DOORS_OF_CLUSTERS)
        finally:
            runner.run(client.aclose())
    assert fell >= SEEN, fell


async def made(start):
    """An asyncio client that belongs to the loop."""
    client = redis.asyncio.RedisCluster(**start)
    await client.set("k", "v")
    return client
