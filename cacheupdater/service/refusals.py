"""Settings that `run` would refuse although the file is well formed, so that `check` can show each with its line.

`check` hands `refusals` to `load_config`, which calls it for a configuration without other mistakes. The components are built
as `run` builds them, and thrown away. No server is contacted, and no Python loader is imported: only their files are read.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.errors import Misconfigured
from cacheupdater.packages import PSYCOPG2
from cacheupdater.pipeline.untold import UNTOLD
from cacheupdater.service.components import Components
from cacheupdater.service.importable import import_problem
from cacheupdater.service.places import unusable
from cacheupdater_client.protocol import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.config.models import NamespaceSection
    from cacheupdater.config.problems import Path
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.config.settings import Config
    from cacheupdater_client.protocol.broker import Address


def refusals(config: Config) -> Iterator[tuple[Path, str]]:
    """The path of each setting that cannot work on this machine, and why."""
    components = Components(config, AsyncExitStack())  # nothing is opened, so nothing has to be closed
    problem = _queue_problem(config.queue)
    if problem:
        yield ("queue", "url"), problem
    try:
        components.writer()
    except Misconfigured as e:
        yield ("cache", "url"), str(e)
    yield from unusable(config)
    yield from _of_brokers(config)
    yield from _of_slots(config)
    broken: set[str] = set()
    for source in config.sources.values():
        try:
            if source.url:
                components.database(source)
        except Misconfigured as e:
            broken.add(source.name)
            setting, _, why = str(e).partition(": ")
            is_file = setting in {"ca", "cert"}  # else the error is about the url
            yield ("sources", source.name, setting if is_file else "url"), why if is_file else str(e)
    for namespace in config.namespaces.values():
        if namespace.name in config.declared:  # its loader has been imported
            continue
        if namespace.load.python or namespace.load.source not in broken:
            yield from _of_loader(components, namespace)


def _queue_problem(queue: QueueConfig) -> str:
    if isinstance(queue, SqlQueueConfig):
        return _depot_problem(queue)
    if isinstance(queue, StreamsQueueConfig):
        return _streams_problem(queue)
    return _kafka_problem(queue.address) if isinstance(queue, KafkaQueueConfig) else ""


def _kafka_problem(address: Address) -> str:
    if find_spec("aiokafka") is None:
        return f"needs aiokafka: pip install {broker.PACKAGES}"

    try:
        broker.connection(address)
    except (OSError, ValueError) as e:
        return f"a file that it names cannot be used: {e}"
    return ""


def _of_brokers(config: Config) -> Iterator[tuple[Path, str]]:
    """The brokers of feeds."""
    for name, source in config.sources.items():
        feed = source.changes and source.changes.debezium
        if feed and (problem := _kafka_problem(broker.parse_cluster(feed.url))):
            yield ("sources", name, "changes", "debezium", "url"), problem


def _of_slots(config: Config) -> Iterator[tuple[Path, str]]:
    """A feed `replication` that a namespace uses needs a driver of its own."""
    for name, source in config.sources.items():
        used = name in config.fed and source.changes and source.changes.replication
        if used and find_spec("psycopg2") is None:
            yield ("sources", name, "changes"), f"needs psycopg2: pip install {PSYCOPG2}"


def _depot_problem(queue: SqlQueueConfig) -> str:
    from cacheupdater.adapters.depot_sql import depot_at, refuse_unwritable  # noqa: PLC0415  not for other queues

    try:
        depot_at(queue.address)
        if queue.address.path:
            refuse_unwritable(queue.address.path)
    except Misconfigured as e:
        return str(e)
    return ""


def _streams_problem(queue: StreamsQueueConfig) -> str:
    from cacheupdater.adapters.depot_redis import RedisDepot  # noqa: PLC0415  as above

    try:
        RedisDepot(queue.address, observer=UNTOLD, notices=UNTOLD)
    except Misconfigured as e:
        return str(e)
    return ""


def _of_loader(components: Components, namespace: NamespaceSection) -> Iterator[tuple[Path, str]]:
    load, path = namespace.load, ("namespaces", namespace.name, "load")
    if load.python:
        problem = import_problem(load.python)
        if problem:
            yield (*path, "python"), problem
        return
    try:
        components.loader(namespace)
    except Misconfigured as e:
        yield path, str(e)
