"""One process of a crowd that asks for one missing key: threads with a sync cache, and tasks with an asyncio one.

python crowd.py REDIS_URL THREADS TASKS TIMEOUT LOAD_S

It prints `ready` and waits for a key on its standard input. Then THREADS and TASKS ask, and it prints what each got and how long
it waited, as one JSON line. A load is noted in Redis (`loads`: the process' id) and lasts LOAD_S seconds.
Run by tests/integration/test_stampede.py, which kills it in the middle of a load.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

import redis
import redis.asyncio

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.cache.errors import LoadTimeout


def main(url, threads, tasks, timeout, load_s):
    load_s = float(load_s)
    notes = redis.Redis.from_url(url)
    cache = cacheupdater_client.Cache(cacheupdater_client.Redis.from_url(url, emit="none"))

    @cache.value("crowd:{id:int}", ttl="60s", timeout=timeout)
    def value(id: int) -> dict:
        notes.rpush("loads", os.getpid())
        time.sleep(load_s)
        return {"id": id}

    got, lock = [], threading.Lock()

    def note(said, began):
        with lock:
            got.append([said, time.monotonic() - began])

    def ask(key):
        began = time.monotonic()
        try:
            said = value(key)["id"]
        except LoadTimeout:
            said = "timeout"
        note(said, began)

    async def ask_all(key):
        client = cacheupdater_client.asyncio.Redis.from_url(url, emit="none")
        later = cacheupdater_client.asyncio.Cache(client)

        @later.value("crowd:{id:int}", ttl="60s", timeout=timeout)
        async def awaited(id: int) -> dict:
            await asyncio.to_thread(notes.rpush, "loads", os.getpid())
            await asyncio.sleep(load_s)
            return {"id": id}

        async def one():
            began = time.monotonic()
            try:
                said = (await awaited(key))["id"]
            except LoadTimeout:
                said = "timeout"
            note(said, began)

        await asyncio.gather(*(one() for _ in range(int(tasks))))
        await client.aclose()

    print("ready", flush=True)
    for line in sys.stdin:
        key = int(line)
        asking = [threading.Thread(target=ask, args=(key,), daemon=True) for _ in range(int(threads))]
        for thread in asking:
            thread.start()
        asyncio.run(ask_all(key))
        for thread in asking:
            thread.join()
        print(json.dumps(got), flush=True)
        got.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
