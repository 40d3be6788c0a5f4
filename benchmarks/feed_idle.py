"""P18: the CPU that a feed without changes costs an updater which refreshes what is read.

Two real updaters run side by side on one core, on databases of one Redis: one with a feed, one without. An application reads the
same keys in both through our client, 500 times a second, and nobody changes a row. The CPU time of both processes is compared, so
it does not matter how busy the machine is. Each kind of feed in PostgreSQL has a turn.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import rig
from change_latency import CONFIG
from feed_latency import fed
from table import row

from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater_client import Redis, close

# the kind of feed, and what its namespace names
KINDS = {
    "replication": "{table: items}",
    "notify": "{table: items}",
    "poll": "{table: items, column: updated_at}",
}
MADE = (
    "ALTER TABLE items ADD updated_at timestamptz NOT NULL DEFAULT now()",
    "CREATE INDEX ON items (updated_at, id)",
)
KEYS = 100
READ_EVERY_S = 0.002
WARM_S, MEASURED_S = 5.0, 20.0


def config(folder, servers, kind=None):
    """With a feed of this kind, or without one. Each has a database of Redis."""
    postgres, cache = servers
    cache = f"{cache.removesuffix('/0')}/{1 if kind else 2}"
    plain = CONFIG.format(listen=f"unix://{folder}/hints.sock", cache=cache, postgres=postgres)
    return cache, fed(plain, kind, KINDS[kind]) if kind else plain


def changes(word, text, folder):
    """What the feed needs is made or removed in the database."""
    file = Path(folder, "changes.yaml")
    file.write_text(text)
    command = [sys.executable, "-m", "cacheupdater", "changes", word, "-c", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_all(caches, seconds):
    """Reads the same random keys in all of them."""
    rng, due, until = random.Random(18), time.perf_counter(), time.perf_counter() + seconds
    while due < until:
        key = f"item:{rng.randrange(1, KEYS + 1)}"
        for cache in caches:
            cache.get(key)
        due += READ_EVERY_S
        time.sleep(max(0.0, due - time.perf_counter()))


def cpu(process):
    used = psutil.Process(process.pid).cpu_times()
    return used.user + used.system


def compared(kind, servers):
    """The shares of a core that the updater with the feed takes, and the one without."""
    with ExitStack() as stack:
        processes, caches = [], []
        for each in (kind, None):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            cache, text = config(folder, servers, each)
            if each:
                changes("install", text, folder)
                stack.callback(changes, "remove", text, folder)
            rig.pin(-1)
            processes.append(stack.enter_context(rig.updater(text, folder)))
            caches.append(Redis.from_url(cache, emit=f"unix://{folder}/hints.sock"))
            stack.callback(caches[-1].close)
        read_all(caches, WARM_S)
        before = [cpu(each) for each in processes]
        read_all(caches, MEASURED_S)
        return [100 * (cpu(each) - used) / MEASURED_S for each, used in zip(processes, before, strict=True)]


def run():
    """The rows for `build/bench.json`."""
    postgres = PostgresServer(settings={"wal_level": "logical"})
    rows = []
    with rig.servers(postgres, MADE) as servers:
        for kind in KINDS:
            with_feed, plain = compared(kind, servers)
            how = f"% of a core that an idle feed takes beside 500 reads/s; the updater without a feed takes {plain:.1f}"
            rows.append(row(f"P18-{kind}", with_feed - plain, None, method=how))
    close()
    return rows


if __name__ == "__main__":
    for each in run():
        print(each)
