"""What `helm test` runs: leaves a hint for one key, as an application would, and waits until Redis holds its value.

Reads the release's own configuration. The value that is there is removed first, fenced, so that what is seen is new.
"""

import os
import subprocess
import sys
import time

from cacheupdater.config import load_config
from cacheupdater.config.queues import producer_url
from cacheupdater_client import Redis, RedisCluster

CONFIG, KEY, PATIENCE_S = (
    os.environ["CACHEUPDATER_CONFIG"],
    os.environ["TEST_KEY"],
    float(os.environ["TEST_TIMEOUT"]),
)


def main() -> int:
    config = load_config(CONFIG, os.environ)
    url = config.cache.reveal()
    emit = os.environ.get("TEST_EMIT") or producer_url(
        config.queue
    )  # the service of this release, or the queue
    made = RedisCluster if "+cluster://" in url else Redis
    redis = made.from_url(url.replace("+cluster", ""), emit=emit, only=[KEY])
    subprocess.run([sys.executable, "-P", "-m", "cacheupdater", "invalidate", KEY, "-c", CONFIG], check=True)
    start = time.monotonic()
    while time.monotonic() - start < PATIENCE_S:
        if redis.exists(KEY):
            print(
                f"{KEY}: a hint was left, and {redis.type(KEY).decode()} was there after {time.monotonic() - start:.1f} s"
            )
            return 0
        redis.get(KEY)  # absent: leaves a hint that it was missed
        time.sleep(0.5)
    print(
        f"{KEY}: no value within {PATIENCE_S:g} s; see `cacheupdater explain {KEY}` and the updater's log",
        file=sys.stderr,
    )
    return 1


sys.exit(main())
