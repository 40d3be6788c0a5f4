"""P15: the time from a commit to the fresh value in Redis, told by the database alone, beside ordinary reads.

As P14, but nobody calls `invalidate`: the updater reads PostgreSQL's logical replication (`changes: replication`). The application
reads 500 times a second through our client, and commits a new price ten times a second. The clock starts when the commit has
returned, and stops when Redis has the new price. By turns with these probes, the bare path is measured for another key: a slot
of its own read by hand until the change comes, one SELECT, one fenced write.
"""

from __future__ import annotations

import json
import select
import tempfile
import time

import psycopg2
import psycopg2.extras
import rig
from change_latency import CONFIG, LOOK_S, LOST_S, PROBES, READS_S, Shop, percentile
from table import row

from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater_client import close, stats
from cacheupdater_client.protocol import fence

GOALS_MS = (6.0, 25.0)
SETTINGS = {"wal_level": "logical", "synchronous_commit": "on"}  # a commit is told once its WAL is written
INSTALLED = (
    "CREATE PUBLICATION cacheupdater FOR TABLE items",
    "SELECT pg_create_logical_replication_slot('cacheupdater', 'pgoutput')",
    "SELECT pg_create_logical_replication_slot('by_hand', 'pgoutput')",
)


class Unannounced(Shop):
    """The application of P14, without a call of `invalidate`."""

    def __init__(self, postgres, cache, address):
        super().__init__(postgres, cache, address)
        dsn = postgres.replace("+asyncpg", "")
        self.replication = psycopg2.connect(
            dsn, connection_factory=psycopg2.extras.LogicalReplicationConnection
        )
        self.stream = self.replication.cursor()
        options = {"proto_version": "1", "publication_names": "cacheupdater"}
        self.stream.start_replication(slot_name="by_hand", decode=False, options=options)

    def heard(self):
        """Reads the slot by hand until a commit comes."""
        while True:
            message = self.stream.read_message()
            if message is None:
                select.select([self.stream], [], [], LOST_S)
            else:
                self.stream.send_feedback(flush_lsn=message.data_start)
                if message.payload[:1] == b"C":
                    return

    def probe(self):
        """Seconds from the commit to the fresh value; infinite if it never comes."""
        number, price = self.change()
        began, key = time.perf_counter(), f"item:{number}"
        while (took := time.perf_counter() - began) < LOST_S:
            value = self.plain.get(key)
            if value is not None and json.loads(value)["price"] == price:
                self.heard()
                return took
            self.read()
            time.sleep(LOOK_S)
        return float("inf")

    def bare(self):
        """The same by hand, with no updater in between."""
        number, _ = self.change()
        key, began = b"item:%d" % number, time.perf_counter()
        self.heard()
        token = fence.token_of(*self.plain.time())
        found = self.runner.run(
            self.database.fetchrow("SELECT id, name, price FROM items WHERE id = $1", number)
        )
        entries = [(key, json.dumps(dict(found)).encode(), 300_000)]
        self.plain.evalsha(fence.COMMIT.sha, *fence.commit_args(token, entries))
        return time.perf_counter() - began

    def close(self):
        self.replication.close()
        super().close()


def fed(config, kind, watched):
    """The configuration of P14 with a feed of this kind, which watches this table."""
    return f"{config.replace('pool_size: 4', f'pool_size: 4, changes: {kind}')}    changes: [{watched}]\n"


def measure(servers, folder):
    postgres, cache = servers
    address = f"unix://{folder}/hints.sock"
    config = CONFIG.format(listen=address, cache=cache, postgres=postgres)
    with rig.updater(fed(config, "replication", "{table: items}"), folder):
        shop = Unannounced(postgres, cache, address)
        try:
            return shop.measure()
        finally:
            shop.close()
            assert stats()["delivered"] > 0, stats()


def run():
    """The rows for `build/bench.json`."""
    postgres = PostgresServer(settings=SETTINGS)
    with rig.servers(postgres, INSTALLED) as servers, tempfile.TemporaryDirectory() as folder:
        probed, bare = measure(servers, folder)
    close()
    method = (
        f"ms from a commit that nobody announces to the fresh value, {PROBES} changes beside {1 / READS_S:.0f} reads/s,"
        f" budget 500/s; the slowest {max(probed) * 1000:.1f}"
    )
    rows = []
    for name, share, goal in zip(("p50", "p99"), (0.5, 0.99), GOALS_MS, strict=True):
        rows.append(row(f"P15-{name}", percentile(probed, share), goal, method=method))
        how = "ms of the slot, SELECT and fenced write by hand, by turns with the probes"
        rows.append(row(f"P15-bare-{name}", percentile(bare, share), None, method=how))
    return rows


if __name__ == "__main__":
    for each in run():
        print(each)
