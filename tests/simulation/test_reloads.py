"""A hundred reloads under load, in virtual time: the real generations, partitions and queue, a Redis and tables in memory.

One reload in three is refused. Namespaces come and go, and the loader of the steady namespace changes with every tenth
reload. Afterwards every change was served, no load ran under a configuration that was over, and the budget held in all windows.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from types import ModuleType

from stories.shell import in_virtual_time, now
from suite.spending import worst

from cacheupdater.adapters.observer_prometheus import PrometheusObserver
from cacheupdater.config import load_config
from cacheupdater.core.hints import Kind
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.notices import Notices
from cacheupdater.service import components
from cacheupdater.service.doors import door_for
from cacheupdater.service.generation import Generation
from cacheupdater.service.reloading import Reloading, Reread
from cacheupdater.service.turnover import Turnover
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter
from cacheupdater_client.protocol import wire

RELOADS = 100
RATE = 40
KEYS = 50
PARTITIONS = 3


class Shop:
    """A file that is written again and again, and loaders that note who called them."""

    def __init__(self, folder):
        self.file = folder / "cacheupdater.yaml"
        self.turnover = None
        self.loads = []  # when, and which keys
        self.late = []  # loads by a function that the present configuration does not name
        module = sys.modules["reloaded_shop"] = ModuleType("reloaded_shop")
        for function in ("even", "odd"):
            setattr(module, function, self.loader(function))

    def loader(self, function):
        async def load(keys):
            self.loads.append((now(), list(keys)))
            if self.turnover.now.config.namespaces["item"].load.python != f"reloaded_shop:{function}":
                self.late.append((now(), function))
            await asyncio.sleep(0.02)
            return {key: {"by": function} for key in keys}

        return load

    def write(self, number):
        """The file of this reload. Every third one is refused: for a mistake, or for what needs a restart."""
        wrong = number % 3 == 2
        function = ("even", "odd")[number // 10 % 2]
        self.file.write_text(f"""\
version: 1
listen: ["memory://reloads"]
queue: {{partitions: {PARTITIONS}}}
log_keys: {"full" if wrong and number % 2 else "hash"}
cache: {{url: "redis://127.0.0.1:1/0"}}
sources: {{main: {{budget: {RATE}/s}}}}
defaults: {{refresh: {{every: {"soon" if wrong and not number % 2 else "300ms"}}}}}
namespaces:
  item: {{key: "item:{{id:int}}", load: {{source: main, python: "reloaded_shop:{function}"}}}}
  extra{number % 5}: {{key: "extra{number % 5}:{{id:int}}", load: {{source: main, python: "reloaded_shop:{function}"}}}}
""")
        return wrong

    def read(self):
        return load_config(self.file, {})


async def at_once(work, *args):
    return work(*args)


@in_virtual_time
async def reloads_under_load(shop):
    """Returns when each key was changed last."""
    drawn, observer, notices = random.Random(1), None, Notices(now)
    shop.write(0)
    config, changed = shop.read(), {}
    observer = PrometheusObserver(
        version="1", namespaces=config.namespaces, partitions=PARTITIONS, sources=config.sources
    )
    async with AsyncExitStack() as stack:
        door = door_for(config, observer=observer, notices=notices)
        first = Generation.first(config, stack, door.queue, observer=observer, notices=notices)
        shop.turnover = Turnover(first, door, stack=stack, observer=observer)
        reloading = Reloading(Reread(shop.read), observer, notices)

        async def change():
            while True:
                key = f"item:{drawn.randrange(KEYS)}".encode()
                place = wire.partition_of(key, PARTITIONS)
                if door.queue.offer(place, wire.encode_pack(Kind.CHANGE, 0, [key])):
                    changed[int(key[5:])] = now()
                await asyncio.sleep(0.01)

        running = [
            asyncio.ensure_future(each)
            for each in (shop.turnover.supervisor.run(), shop.turnover.price(), change())
        ]
        for number in range(1, RELOADS + 1):
            await asyncio.sleep(drawn.uniform(0.0, 0.6))
            wrong, before = shop.write(number), shop.turnover.now
            try:
                await reloading.reload(shop.turnover)
            except CacheUpdaterError:
                assert wrong
                assert shop.turnover.now is before
            else:
                assert not wrong
                assert shop.turnover.now is not before
        running[-1].cancel()
        await door.finish(now() + 60.0)
        await shop.turnover.supervisor.drain(1.0)
        assert not sum(map(door.queue.backlog, range(PARTITIONS)))
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return changed


def test_a_hundred_reloads_lose_no_hint_mix_no_configurations_and_grant_no_burst(tmp_path, monkeypatch):
    redis = MemoryRedis(lambda: 1000.0 + now())
    monkeypatch.setattr(components, "writer_for", lambda _: MemoryWriter(redis))
    monkeypatch.setattr(asyncio, "to_thread", at_once)  # a thread has no virtual time
    shop = Shop(tmp_path)

    changed = reloads_under_load(shop)

    last = {key: at for at, keys in shop.loads for key in keys}
    assert len(changed) == KEYS
    assert [key for key, at in changed.items() if last.get(key, -1.0) < at] == []
    assert shop.late == []
    assert worst([(at, len(keys)) for at, keys in shop.loads], RATE) <= RATE + 1e-6
