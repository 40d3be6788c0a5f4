"""A pytest plugin for redis-py's suite: client classes of redis-py are replaced by ours, before the suite imports them.

`run` loads it on our side only. So the suite tests our classes under redis-py's names. Their hints go to a mailbox in the same
process, so the clients observe, buffer and send as in an application; a thread empties the mailbox. After each test the plugin
writes the counts of hints to a file, so that a pytest that is killed has told them too: `run` refuses a run that has left none.

Names inside redis-py's modules are replaced too, where redis-py itself makes a client for the caller (`redis.from_url`). What
a cluster client makes for its own nodes stays redis-py's, as in an application.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.protocol.mailbox import mailbox
from cacheupdater_client.protocol.wire import Hello

NAME = "compat"
URL = f"memory://{NAME}"
EMPTIED_EVERY_S = 0.05  # a full mailbox would only make hints wait
PARTITIONS = 3  # any number; more than one, so that packs are cut

SYNC, ASYNC = cacheupdater_client, cacheupdater_client.asyncio
REPLACED = {
    "single": (
        (SYNC.Redis, ("Redis", "StrictRedis"), (redis, redis.client)),
        (SYNC.Sentinel, ("Sentinel",), (redis, redis.sentinel)),
        (ASYNC.Redis, ("Redis", "StrictRedis"), (redis.asyncio, redis.asyncio.client)),
        (ASYNC.Sentinel, ("Sentinel",), (redis.asyncio, redis.asyncio.sentinel)),
    ),
    "cluster": (
        (SYNC.RedisCluster, ("RedisCluster",), (redis, redis.cluster)),
        (ASYNC.RedisCluster, ("RedisCluster",), (redis.asyncio, redis.asyncio.cluster)),
    ),
}


def pytest_addoption(parser):
    parser.addoption("--replaces", choices=REPLACED, help="which clients are replaced")
    parser.addoption("--hints", type=Path, help="the file to which the counts of hints are written")


def pytest_configure(config):
    os.environ["CACHEUPDATER_EMIT"] = URL  # noqa: TID251  as an application is told
    for ours, names, modules in REPLACED[config.option.replaces]:
        for module in modules:
            for name in names:
                setattr(module, name, ours)
    config.pluginmanager.register(Updater(config.option.hints), "compat-updater")


class Updater:
    """The other end of the mailbox."""

    def __init__(self, path):
        self._path = path
        self._over = threading.Event()
        self._box = mailbox(NAME)
        self._box.open(Hello(PARTITIONS, []))
        self._thread = threading.Thread(target=self._empty, daemon=True)
        self._thread.start()

    def _empty(self):
        while not self._over.wait(EMPTIED_EVERY_S):
            self._box.take()

    def pytest_runtest_logfinish(self):
        self._tell()

    def pytest_sessionfinish(self):
        cacheupdater_client.close()
        self._over.set()
        self._tell()

    def _tell(self):
        counts = cacheupdater_client.stats()
        new = self._path.with_suffix(".new")  # a reader never sees half of it
        new.write_text(json.dumps({name: counts[name] for name in ("emitted", "delivered", "faults")}))
        new.replace(self._path)
