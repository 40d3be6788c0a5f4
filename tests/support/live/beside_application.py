"""An application with a sidecar: reads one key again and again, and prints what it saw. Run by tests/sidecar.

python beside_application.py REDIS_URL KEY

It prints one JSON line per 20 reads: the last value, and the longest time of a read. It knows nothing of an updater:
CACHEUPDATER_EMIT, or the conventional socket, says where hints go. An exception ends it.
"""

from __future__ import annotations

import json
import sys
import time

from cacheupdater_client import Redis

EVERY_S = 0.01
READS = 20


def main(url, key):
    cache = Redis.from_url(url)
    while True:
        longest, body = 0.0, None
        for _ in range(READS):
            began = time.perf_counter()
            body = cache.get(key)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(EVERY_S)
        print(json.dumps({"value": body and body.decode(), "longest": longest}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
