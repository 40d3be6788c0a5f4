"""P17: the CPU that one change of a feed costs an updater: to decode, to make its key, to queue it, and to remove its value.

100,000 rows are changed by one statement in a real PostgreSQL, and its messages are read from a slot once. Then each part runs
over them in this process, in batches as the feed makes them, without I/O: the messages of `pgoutput`, the keys by the rules of the
configuration, the packs, and the engine, which removes what nobody reads. Each is the median of nine rounds.
"""

from __future__ import annotations

import random
import statistics
import time

import psycopg2
import psycopg2.extras
import rig
from dedup import Silent
from table import row

from cacheupdater.adapters.feed_replication.batching import EVENTS_MAX
from cacheupdater.adapters.feed_replication.decode import Decoder, Table
from cacheupdater.core.answers import WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.policy import Fixed
from cacheupdater.feed_ports import Changed
from cacheupdater.feeds.row_keys import Direct, RowKeys
from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater.pipeline.intake import take_in
from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.patterns import Pattern

ROUNDS = 9
NOW_S = 1.0
PATTERN = Pattern.compile(rig.PATTERN)
MADE = (
    "CREATE PUBLICATION cacheupdater FOR TABLE items",
    "SELECT pg_create_logical_replication_slot('cacheupdater', 'pgoutput')",
    "UPDATE items SET price = price + 1",
)


def messages(postgres):
    """What the server tells of the statement."""
    connection = psycopg2.connect(
        postgres.replace("+asyncpg", ""), connection_factory=psycopg2.extras.LogicalReplicationConnection
    )
    with connection.cursor() as stream:
        options = {"proto_version": "1", "publication_names": "cacheupdater"}
        stream.start_replication(slot_name="cacheupdater", decode=False, options=options)
        told = []
        while not told or told[-1][:1] != b"C":
            message = stream.read_message()
            if message is not None:
                told.append(message.payload)
    connection.close()
    return told


def decode(told):
    decoder = Decoder({("public", "items"): Table("public.items", ("id",))})
    return [event for event in map(decoder.event, told) if isinstance(event, Changed)]


def batches_of(changes):
    return [changes[at : at + EVENTS_MAX] for at in range(0, len(changes), EVENTS_MAX)]


def mapped(batches):
    keys = RowKeys([Direct("items", "item", PATTERN, ("id",))])
    return [list(keys.of(batch).keys) for batch in batches]


def queued(batches):
    return [wire.encode_pack(wire.CHANGE, 1, keys, tokens=[1] * len(keys)) for keys in batches]


def removed(packs):
    """The engine takes the packs in, and what it removes is gone at once."""
    source = Source("main", Bucket(1.0, 1.0, now=0.0), concurrency=1)
    namespace = Namespace("item", PATTERN, source, every=1.0)
    limits = Limits(pending=len(packs) * EVENTS_MAX)
    engine = Engine(
        Keyspace([(PATTERN, namespace)]), Fixed(), limits=limits, random=random.Random(1).random, offset=0
    )
    now = NOW_S
    for offset, pack in enumerate(packs):
        take_in(engine, [Message(offset, pack)], now, observer=Silent())
        now += EVENTS_MAX / 1000  # no pace holds anything back
        work = engine.step(now)
        if work.invalidation is not None:
            engine.on_invalidated(work.invalidation, [WRITTEN] * len(work.invalidation.keys), now)
    assert not engine.pending


def costs(parts):
    """Microseconds of CPU of each part for one change. Each part is given what the one before has returned."""
    took = {name: [] for name in parts}
    for _ in range(ROUNDS):
        given = None
        for name, part in parts.items():
            began = time.process_time()
            given = part(given)
            took[name].append(time.process_time() - began)
    return {name: statistics.median(each) / rig.ROWS * 1e6 for name, each in took.items()}


def run():
    """The rows for `build/bench.json`."""
    postgres = PostgresServer(settings={"wal_level": "logical"})
    with rig.servers(postgres, MADE) as (url, _):
        told = messages(url)
    took = costs(
        {
            "decode": lambda _: decode(told),
            "map": lambda changes: mapped(batches_of(changes)),
            "queue": queued,
            "remove": removed,
        }
    )
    how = f"us of CPU for one of {rig.ROWS:,} changes of one statement, median of {ROUNDS} rounds"
    rows = [row(f"P17-{name}", each, None, method=how) for name, each in took.items()]
    return [*rows, row("P17-all", sum(took.values()), None, method=f"{how}: all of these")]


if __name__ == "__main__":
    for each in run():
        print(each)
