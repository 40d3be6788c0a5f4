"""An application that only leaves hints: reads some keys again and again, and announces a change now and then.

Run as `python -m hints.reader EMIT NAME KEYS ROUNDS PAUSE`. It says `begun` when it begins, and at its end prints what became of its hints, as JSON.
Every change is of a key of its own, so a test can say which change is missing. An exception of the client would end it.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from cacheupdater_client.protocol.wire import CHANGE
from cacheupdater_client.sender import sender

PATIENCE_S = 30.0


class Plain:
    """redis-py's encoder, without redis-py."""

    encoding, encoding_errors = "utf-8", "strict"

    def encode(self, value):
        return value.encode()


def main(emit, name, keys, rounds, pause):
    buffer = sender.target(emit, ()).buffer(Plain())
    names = [f"p:{number}" for number in range(int(keys))]
    print("begun", flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = []
    for turn in range(int(rounds)):
        for key in names:
            began = time.perf_counter_ns()
            buffer.touch(key)
            took.append(time.perf_counter_ns() - began)
        if turn % 10 == 0:
            buffer.add(CHANGE, f"p:change:{name}:{turn}")
        time.sleep(float(pause))
    ends = time.monotonic() + PATIENCE_S
    while sender.stats()["waiting"] and time.monotonic() < ends:
        time.sleep(0.01)
    took.sort()
    stats = sender.stats()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    stats = {**stats, "targets": None, "p99_ns": took[len(took) * 99 // 100], "grown_kib": grown}
    print(json.dumps(stats))


if __name__ == "__main__":
    main(*sys.argv[1:])
