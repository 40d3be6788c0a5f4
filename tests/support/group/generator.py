"""The load of the group's stories, as a process of its own: hints straight into a client's buffer, and a ledger of them.

    python generator.py '{"emit": "kafka://...", "pg": "postgresql+asyncpg://...", "out": "ledger.npz", ...}'

It uses no Redis: reading would take all its time, and the buffer does not care where its hints come from. Keys follow Zipf's
law. Some rows change: their versions rise in PostgreSQL, and after the commit a change is hinted. It prints `emitting` when it
has begun, and ends after its seconds or when its input is closed. It waits until the client has delivered everything, and only
then writes each hint with its time, the client's counts, and its own memory. A time is taken before the hints that it belongs
to, and after the commit of the rows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from live.database import Database

import cacheupdater_client
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH
from group.rows import KEYS

TICK_S = 0.005
CHANGES_S = 0.1  # between two statements that change rows
RATE = 20_000
MISSES, CHANGES = 0.01, 0.02  # of all hints
ZIPF = 1.0
SETTLE_S = 30.0  # for the last hints to arrive; a second is usual
MEMORY_S = 0.2
UPDATE = "UPDATE items SET version = version + 1 WHERE id = ANY($1::bigint[])"


def draws(count, seed):
    """Draws keys. The popular ones are scattered over all numbers."""
    popular = 1.0 / np.arange(1, KEYS + 1) ** ZIPF
    draw = np.random.default_rng(seed)
    ranks = np.searchsorted(np.cumsum(popular / popular.sum()), draw.random(count))
    return draw.permutation(KEYS)[np.minimum(ranks, KEYS - 1)]


class Generator:
    """Makes its arrays beforehand, so that the memory it measures is the client's."""

    def __init__(self, *, emit, pg, seconds, rate=RATE, seed=1):
        self._seconds, self._rate = seconds, rate
        self._client = cacheupdater_client.Redis(emit=emit)
        self._buffer = self._client._hints
        self._database = Database(pg)
        self._names = [f"item:{number}" for number in range(KEYS)]
        self._draws = draws(int(rate * (seconds + 60)), seed)
        room = int((seconds + 60) / TICK_S) * 3
        self._parts = np.ones((room, 4), dtype=np.int64)  # first, last, kind, microseconds
        self._count = self._at = self._reads = 0
        self.memory = np.ones((int((seconds + 120) / MEMORY_S), 2))
        self._measured = 0
        self.stop = threading.Event()

    def run(self):
        """Emits at the rate, and catches up when it falls behind."""
        began = time.monotonic()
        changed = measured = 0.0
        print("emitting", flush=True)
        while not self.stop.is_set() and (passed := time.monotonic() - began) < self._seconds:
            self._emit(int(passed * self._rate * (1 - CHANGES)) - self._reads)
            if passed - changed >= CHANGES_S:
                self._change(round((passed - changed) * self._rate * CHANGES))
                changed = passed
            if passed - measured >= MEMORY_S:
                self.measure()
                measured = passed
            time.sleep(TICK_S)
        return time.monotonic() - began

    def _emit(self, due):
        """Emits touches, and misses among them."""
        share = MISSES / (1 - CHANGES)
        misses = int((self._reads + due) * share) - int(self._reads * share)
        now = time.time_ns() // 1000
        for name in self._part(MISS, misses, now):
            self._buffer.miss(name)
        for name in self._part(TOUCH, due - misses, now):
            self._buffer.touch(name)
        self._reads += due

    def _change(self, due):
        keys = np.unique(self._draws[self._at : self._at + due])
        self._database.execute(UPDATE, keys.tolist())
        self._draws[self._at : self._at + len(keys)] = keys  # each once
        for name in self._part(CHANGE, len(keys), time.time_ns() // 1000):
            self._buffer.add(CHANGE, name)

    def _part(self, kind, size, now):
        """The next names, which are noted in the ledger."""
        begin, end = self._at, self._at + size
        self._parts[self._count] = begin, end, kind, now
        self._count += 1
        self._at = end
        return map(self._names.__getitem__, self._draws[begin:end].tolist())

    def measure(self):
        if self._measured < len(self.memory):
            now = time.time()  # noqa: TID251  compared with the times of other processes
            self.memory[self._measured] = now, psutil.Process().memory_info().rss
            self._measured += 1

    def settle(self):
        """Waits until everything has arrived, or until SETTLE_S are over."""
        deadline = time.monotonic() + SETTLE_S
        while cacheupdater_client.stats()["waiting"] and time.monotonic() < deadline:
            time.sleep(0.02)
        return cacheupdater_client.stats()

    def save(self, path, said):
        parts = self._parts[: self._count]
        sizes = parts[:, 1] - parts[:, 0]
        draft = Path(f"{path}.draft.npz")
        np.savez(
            draft,
            keys=self._draws[: self._at],
            kinds=np.repeat(parts[:, 2], sizes),
            times=np.repeat(parts[:, 3], sizes),
            memory=self.memory[: self._measured],
            said=json.dumps(said),
        )
        draft.rename(path)


def main():
    said = json.loads(sys.argv[1])
    path = said.pop("out")
    generator = Generator(**said)

    def until_closed():
        os.read(0, 1)
        generator.stop.set()

    threading.Thread(target=until_closed, daemon=True).start()
    took = generator.run()
    stats = generator.settle()
    generator.measure()
    generator.save(path, {"stats": stats, "took": took})
    cacheupdater_client.close()


if __name__ == "__main__":
    main()
