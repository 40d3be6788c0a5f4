"""What is asked of an old queue before it is drained: whether its URL names one, and another one than the new queue; whether it exists.

`cli.collect` calls `old_queue` while it reads its arguments. `drain` calls `refuse_the_same` when it is made, and awaits
`refuse_missing` at its start. Members of a queue make what they do not find: a file, tables, streams. A drain must not, or a mistyped URL would leave an
empty queue behind and look like a drained one. Nothing is changed here.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cacheupdater.config.queues import (
    OPTIONS,
    KafkaQueueConfig,
    MemoryQueueConfig,
    SqlQueueConfig,
    queue_of,
    queue_url,
)
from cacheupdater.core import depot_url
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol import broker, streams

if TYPE_CHECKING:
    from cacheupdater.collector.shared_queue import SharedConfig

_ASK = "return redis.call('HGET', KEYS[1], 'partitions')"  # a script, for the user of streams may run scripts


def old_queue(url: str) -> SharedConfig:
    """The queue that this URL names, written as for updaters. ValueError says what is wrong.

    Not as the `instance` of the URL: that is an updater, which may still run, and Kafka takes its partitions away from the elder.
    """
    config = queue_of(queue_url(url), None)
    if isinstance(config, MemoryQueueConfig):
        raise ValueError(  # noqa: TRY004  the URL is wrong, not a type
            "is within one process and ends with it, so nothing can be drained from there: stop that updater, and it finishes its hints"
        )
    return replace(config, instance=None) if isinstance(config, KafkaQueueConfig) else config


def refuse_the_same(old: str, new: str) -> None:
    """Raises Misconfigured if both URLs name one queue: its packs would go round without end. Nothing is looked up."""
    if _places(old) & _places(new):
        raise Misconfigured("the queue to drain and the new queue are the same: name two queues")


def _places(url: str) -> set[tuple[str, ...]]:
    """What two URLs of one queue have in common. An updater at a socket is no such queue."""
    scheme = url.partition(":")[0].lower()
    if scheme == "kafka":
        address = broker.parse(url, options=(*OPTIONS, "acks", "compression"))
        return {("kafka", _here(server), address.topic) for server in address.servers}
    if scheme in streams.SCHEMES:
        return _streams(_without_session(url))
    if scheme not in depot_url.SCHEMES:
        return set()
    place = depot_url.parse(_without_session(url))
    if place.path:
        return {("sqlite", os.path.realpath(place.path))}
    parts = urlsplit(place.url)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    named = [each for each in parts.query.split("&") if each.startswith(("host=", "port="))]
    return {
        ("postgresql", _here(each.removesuffix(":5432")), parts.path, *named, place.table) for each in hosts
    }


def _streams(url: str) -> set[tuple[str, ...]]:
    address = streams.parse(url)
    parts = urlsplit(address.url)
    database = parts.path.strip("/") or "0"
    return {
        ("redis", _here(host), str(port), database, address.stream) for host, port in streams.nodes(address)
    }


def _without_session(url: str) -> str:
    where, _, query = url.partition("?")
    kept = [each for each in query.split("&") if each and not each.startswith("session_timeout=")]
    return f"{where}?{'&'.join(kept)}" if kept else where


def _here(host: str) -> str:
    """One name for this machine."""
    name, colon, port = host.partition(":")
    return ("127.0.0.1" if name.lower() == "localhost" else name.lower()) + colon + port


async def refuse_missing(config: SharedConfig) -> None:
    """Raises Misconfigured if there is no such queue, and Unavailable if nobody can tell now."""
    if isinstance(config, KafkaQueueConfig):
        missing = await _no_topic(config)
    elif isinstance(config, SqlQueueConfig):
        missing = _no_file(config) if config.address.path else await _no_tables(config)
    else:
        missing = await _no_streams(config.address)
    if missing:
        raise Misconfigured(f"there is no queue to drain: {missing}; correct the URL of --drain")


async def _no_topic(config: KafkaQueueConfig) -> str:
    from cacheupdater.adapters.topic_kafka import inspect  # noqa: PLC0415  aiokafka is an extra

    try:
        await inspect(config.address, config.group)
    except Misconfigured as e:  # no such topic, or a login that cannot work
        return str(e)
    return ""


def _no_file(config: SqlQueueConfig) -> str:
    path = Path(config.address.path)
    if not path.is_file():
        return f"the file {path} does not exist, or this user may not see it"
    return "" if path.stat().st_size else f"the file {path} is empty"


async def _no_tables(config: SqlQueueConfig) -> str:
    from cacheupdater.adapters.depot_sql.postgres_server import Server  # noqa: PLC0415  asyncpg is an extra
    from cacheupdater.adapters.depot_sql.postgres_statements import Statements  # noqa: PLC0415  as above

    server = Server(config.address)
    try:
        async with server.connection() as connection:
            found = await connection.fetchval(
                "SELECT to_regclass($1)", Statements(config.address.table).about
            )
    finally:
        await server.close()
    return "" if found is not None else f"this database has no tables {config.address.table}_…"


async def _no_streams(address: streams.Address) -> str:
    from cacheupdater.adapters.depot_redis.scripts import Script  # noqa: PLC0415  not for other queues
    from cacheupdater.adapters.depot_redis.servers import Servers  # noqa: PLC0415  as above

    script = Script(_ASK, hashlib.sha1(_ASK.encode(), usedforsecurity=False).hexdigest())
    servers = Servers(address)
    try:
        found = await servers.run(script, 1, streams.roster_key(address.stream))
    finally:
        await servers.close()
    return "" if found else f"this Redis has no streams {address.stream} that an updater has opened"
