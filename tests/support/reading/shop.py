"""A shop whose products are read through a cache: rows that a test changes, loaders that a test holds up, caches of either kind.

`Caches` gives a sync and an asyncio cache the same interface, so that one story tests both. Sync calls run in threads.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent import futures
from functools import partial
from typing import get_type_hints

import cacheupdater_client
import cacheupdater_client.asyncio

PATIENCE_S = 60.0
THREADS = 64
ENDS_S = 1.0  # for loads that the end of a test has let go


class Shop:
    """The database. `began` counts loads that have read their rows; while `gate` is closed, loads do not return."""

    def __init__(self, rows=()):
        self.rows = dict(rows)
        self.loads = []
        self.error = None
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def product(self, id: int) -> dict | None:
        """The loader of one key."""
        return self.products([id]).get(id)

    def products(self, ids: list[int]) -> dict[int, dict]:
        """The loader of many."""
        self.loads.append(list(ids))
        found, error = {each: self.rows[each] for each in ids if each in self.rows}, self.error
        self.began.release()
        assert self.gate.wait(PATIENCE_S)
        if error is not None:
            raise error
        return found

    async def has_begun(self):
        """Waits until one more load has read its rows."""
        assert await asyncio.to_thread(self.began.acquire, timeout=PATIENCE_S)


class Value:
    """A declared value whose calls are awaited."""

    def __init__(self, run, value):
        """`run` calls it in a thread; None: its calls are awaited already."""
        self._run, self.value = run, value

    async def __call__(self, *args, **named):
        return await self._said(self.value, *args, **named)

    async def get_many(self, items):
        return await self._said(self.value.get_many, items)

    async def invalidate(self, *args, **named):
        return await self._said(self.value.invalidate, *args, **named)

    async def _said(self, call, *args, **named):
        return await (self._run(partial(call, *args, **named)) if self._run else call(*args, **named))


class Caches:
    """Makes caches of one kind, each with a client of its own, as processes have them."""

    def __init__(self, kind, url, **options):
        self.kind, self._url, self._options = kind, url, options
        self._pool = futures.ThreadPoolExecutor(THREADS)
        self._calls = set()  # in threads
        self._clients, self._caches = [], []

    def cache(self, *, fill="loader", wait=None, **options):
        """One more cache."""
        module = cacheupdater_client if self.kind == "sync" else cacheupdater_client.asyncio
        client = module.Redis.from_url(self._url, **{"emit": "none", **self._options, **options})
        self._clients.append(client)
        self._caches.append(module.Cache(client, fill=fill, wait=wait))
        return self._caches[-1]

    def value(self, loader, pattern="product:{id:int}", *, cache=None, **settings):
        """Declares a value of one key."""
        return self._declared((cache or self.cache()).value, loader, pattern, settings)

    def values(self, loader, pattern="product:{id:int}", *, cache=None, **settings):
        """Declares a value whose loader takes many keys."""
        return self._declared((cache or self.cache()).values, loader, pattern, settings)

    def _declared(self, declare, loader, pattern, settings):
        if self.kind != "sync":
            loader = self._awaited(loader)
        run = self._in_thread if self.kind == "sync" else None
        return Value(run, declare(pattern, **{"ttl": "60s", **settings})(loader))

    def _awaited(self, loader):
        async def awaited(*args):
            return await self._in_thread(partial(loader, *args))

        awaited.__annotations__ = get_type_hints(loader)
        awaited.__signature__ = inspect.signature(loader)
        awaited.__qualname__ = loader.__qualname__
        return awaited

    def _in_thread(self, call):
        running = self._pool.submit(call)
        self._calls.add(running)
        running.add_done_callback(self._calls.discard)
        return asyncio.wrap_future(running)

    async def end(self, cache, **bound):
        """Closes one cache."""
        if self.kind == "sync":
            await asyncio.to_thread(cache.close, **bound)
        else:
            await cache.aclose(**bound)

    async def close(self):
        """Waits for loads that still run, as far as they end: what they fill would come into the Redis of the next test."""
        for cache in self._caches:
            await self.end(cache, timeout=ENDS_S)
        await asyncio.to_thread(futures.wait, set(self._calls), ENDS_S)
        for client in self._clients:
            if self.kind == "sync":
                client.close()
            else:
                await client.aclose()
        self._pool.shutdown(wait=False)
