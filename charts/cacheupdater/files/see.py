"""What `helm test` runs: leaves a hint for one key, as an application would, and waits until Redis holds its value.

Reads the release's own configuration. The value that is there is removed first, fenced, so that what is seen is new.
"""

import os
import subprocess
import sys
import time
from urllib.parse import parse_qsl, urlencode, urlsplit

from cacheupdater.config import load_config
from cacheupdater_client import Redis, RedisCluster

CONFIG, KEY, PATIENCE_S = (
    os.environ["CACHEUPDATER_CONFIG"],
    os.environ["TEST_KEY"],
    float(os.environ["TEST_TIMEOUT"]),
)
OURS = {"group", "session_timeout", "instance"}  # options of the updater, which a client does not know


def target(queue: str) -> str:
    """The topic, or the service of this release."""
    if "TEST_EMIT" in os.environ:
        return os.environ["TEST_EMIT"]
    parts = urlsplit(queue)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in OURS]
    return parts._replace(query=urlencode(options, safe="/")).geturl()


def main() -> int:
    config = load_config(CONFIG, os.environ)
    url = config.cache.reveal()
    address = getattr(config.queue, "address", None)
    options = getattr(address, "options", {})
    emit = target(f"{address}?{urlencode(dict(options), safe='/')}" if address else "")
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
