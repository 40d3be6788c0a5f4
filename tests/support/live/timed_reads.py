"""An application that reads from Redis at a steady pace and times its reads: ours, and by turns stock's and an idle loop's.

`gunicorn live.timed_reads:app` answers each request after `seconds` of such reads, and `python -m live.timed_reads` does the same
in one event loop. TIMED_READS holds the settings as JSON. Both say what became of the hints, and the microseconds of each read. The idle loop
does nothing for about as long as a read takes, so its times show what the machine itself adds.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

import redis
import redis.asyncio

import cacheupdater_client as ours
from cacheupdater_client import asyncio as ours_in_a_loop

PATIENCE_S = 30.0
SPINS = 2_000  # of the idle loop
SHARE = 4  # of so many reads, one is compared with stock's and with the idle loop's
KEYS = 50
SAID = json.loads(os.environ["TIMED_READS"])  # noqa: TID251  how the test tells its child


def answer(*_, **__):
    return b"stubbed"


async def answer_later(*_, **__):
    return b"stubbed"


if SAID["stubbed"]:  # the network is, so that only Python is timed
    redis.Redis.execute_command, redis.asyncio.Redis.execute_command = answer, answer_later
client = ours.Redis.from_url(SAID["redis"], emit=SAID["emit"])
plain = redis.Redis.from_url(SAID["redis"])
client.get("p:0")  # before a fork, so the sender of the parent runs


class Pace:
    """Which read is due, and how long each has taken."""

    def __init__(self):
        self.took = {"ours": [], "stock": [], "idle": [], "alone": []}
        self.keys = [f"p:{number}" for number in range(KEYS)] + [f"p:{os.getpid()}"]
        self._reads, self._began = 0, time.perf_counter()

    @property
    def over(self):
        return time.perf_counter() > self._began + SAID["seconds"]

    def due(self):
        """The key of the next read; None if it is too early."""
        if self._reads > (time.perf_counter() - self._began) * SAID["rate"]:
            return None
        self._reads += 1
        return self.keys[self._reads % len(self.keys)]

    @property
    def compares(self):
        return self._reads % SHARE == 0

    @property
    def readers(self):
        """Who reads this key, one after the other. Reads of ours that are not compared are `alone`.

        A busy machine wakes the process late, and the first reader pays for the delay. So ours and stock take turns in being first.
        """
        if not self.compares:
            return ("alone",)
        return ("ours", "stock") if self._reads % (2 * SHARE) else ("stock", "ours")

    def note(self, name, began):
        self.took[name].append((time.perf_counter_ns() - began) // 1000)

    def idle(self):
        began = time.perf_counter_ns()
        for _ in range(SPINS):
            pass
        self.note("idle", began)


def reads():
    pace, clients = Pace(), {"ours": client, "alone": client, "stock": plain}
    while not pace.over:
        key = pace.due()
        if key is None:
            time.sleep(0.001)
            continue
        for name in pace.readers:
            began = time.perf_counter_ns()
            clients[name].get(key)
            pace.note(name, began)
        if pace.compares:
            pace.idle()
    return pace.took


async def reads_in_a_loop():
    pace = Pace()
    async with (
        ours_in_a_loop.Redis.from_url(SAID["redis"], emit=SAID["emit"]) as cache,
        redis.asyncio.Redis.from_url(SAID["redis"]) as stock,
    ):
        clients = {"ours": cache, "alone": cache, "stock": stock}
        while not pace.over:
            key = pace.due()
            if key is None:
                await asyncio.sleep(0.001)
                continue
            for name in pace.readers:
                began = time.perf_counter_ns()
                await clients[name].get(key)
                pace.note(name, began)
            if pace.compares:
                pace.idle()
    return pace.took


def result(took):
    """What became of this process' hints, once none waits."""
    ends = time.monotonic() + PATIENCE_S
    while ours.stats()["waiting"] and time.monotonic() < ends:
        time.sleep(0.01)
    stats = ours.stats()
    said = {name: stats[name] for name in ("emitted", "delivered", "dropped")}
    return json.dumps({"pid": os.getpid(), "took": took, **said})


def app(environ, start_response):
    """For gunicorn. A worker that reads answers nobody else, so as many requests as workers reach them all."""
    body = result(reads()).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


if __name__ == "__main__":
    print(result(asyncio.run(reads_in_a_loop())))
