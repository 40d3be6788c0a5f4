"""The application of the group's stories, as a process of its own: it reads through our client and times each read.

    python application.py '{"redis": "redis://...", "emit": "kafka://...", "seconds": 60, "out": "reads.npz"}'

It prints `emitting` when it has begun, and ends after its seconds or when its input is closed. Then it writes the start and
the duration of each read, and its own memory over time. A read that raises ends it with the error.
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

import cacheupdater_client
from group.generator import MEMORY_S, draws

RATE = 1000  # a second
AT_ONCE = 10  # reads between two rests


def main():
    said = json.loads(sys.argv[1])
    seconds = said["seconds"]
    room = int((seconds + 10) * RATE)
    keys = [f"item:{number}" for number in draws(room, seed=3).tolist()]
    reads = np.ones((room, 2))  # touched now, so that the measured memory is the client's
    memory = np.ones((int((seconds + 10) / MEMORY_S), 2))
    done = measured = 0
    stop = threading.Event()
    threading.Thread(target=lambda: (os.read(0, 1), stop.set()), daemon=True).start()
    clock, own = time.perf_counter, psutil.Process()
    now = time.time  # noqa: TID251  compared with the times of other processes
    with cacheupdater_client.Redis.from_url(said["redis"], emit=said["emit"]) as client:
        client.get(keys[0])
        print("emitting", flush=True)
        began = clock()
        while not stop.is_set() and (passed := clock() - began) < seconds:
            for key in keys[done : done + AT_ONCE]:
                start = clock()
                client.get(key)
                reads[done] = now(), clock() - start
                done += 1
            if passed >= measured * MEMORY_S:
                memory[measured] = now(), own.memory_info().rss
                measured += 1
            # a late reader does not hurry: a read that waits for its turn is not slow
            time.sleep(AT_ONCE / RATE)
        stats = cacheupdater_client.stats()
    draft = Path(f"{said['out']}.draft.npz")
    np.savez(draft, reads=reads[:done], memory=memory[:measured], said=json.dumps(stats))
    draft.rename(said["out"])
    cacheupdater_client.close()


if __name__ == "__main__":
    main()
