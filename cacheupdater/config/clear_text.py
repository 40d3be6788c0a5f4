"""Warns of passwords that leave this machine in clear text, to whatever server. Each warning has its line.

`load` calls it for a configuration without mistakes. `tls: off` and `redis://` may be right (a tunnel, a mesh, a network of
their own), so they are no mistakes. But no password shall cross a network without a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.config.secrets import Url
from cacheupdater.core import cache_url, database_url
from cacheupdater.core.hosts import is_local
from cacheupdater_client.protocol.broker import parse_cluster, uses_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.config.document import Document
    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater_client.protocol.broker import Address

_OPENLY = "leaves this machine in clear text, for anybody on the way to read"
_TOKEN = f"its token {_OPENLY}: write tls=true, or ca=FILE"
_SECRETS = {"password", "sentinel_password"}


def warn_of_clear_text(
    document: Document, sources: Mapping[str, SourceSection], cache: Url, queue: QueueConfig
) -> None:
    """Adds the warnings to the document."""
    for name, source in sources.items():
        said = database_url.parts(source.url.reveal()) if source.url else None
        if said and said.has_password and not said.local and source.encryption.mode == "off":
            document.warn(
                ("sources", name, "url"),
                f"its password {_OPENLY}: only a tunnel or a network of its own makes up for tls: off",
            )
    if _openly(cache):
        document.warn(
            ("cache", "url"), f"its password {_OPENLY}: write {cache.scheme.replace('redis', 'rediss', 1)}://"
        )
    if isinstance(queue, StreamsQueueConfig) and _openly(Url(queue.address.url)):
        document.warn(("queue", "url"), f"its password {_OPENLY}: write rediss:// or rediss+...://")
    if isinstance(queue, SqlQueueConfig) and not queue.address.path and queue.address.tls == "off":
        said = database_url.parts(queue.address.url)
        if said.has_password and not said.local:
            document.warn(("queue", "url"), f"its password {_OPENLY}: write tls=verify, or leave tls=off out")
    if isinstance(queue, KafkaQueueConfig) and _token_openly(queue.address):
        document.warn(("queue", "url"), _TOKEN)
    for name, source in sources.items():
        feed = source.changes and source.changes.debezium
        if feed and _token_openly(parse_cluster(feed.url)):
            document.warn(("sources", name, "changes", "debezium", "url"), _TOKEN)


def _token_openly(address: Address) -> bool:
    """Whether a token goes over a network in clear text. SCRAM proves a password without sending it; PLAIN needs TLS."""
    local = all(is_local(each.rpartition(":")[0]) for each in address.servers)
    return "token_file" in address.options and not uses_tls(address.options) and not local


def _openly(url: Url) -> bool:
    """Whether a password of Redis or its sentinels goes over a network in clear text."""
    if not url.scheme.startswith("redis") or url.scheme.startswith("rediss"):
        return False
    address, _, query = url.reveal().partition("://")[2].rpartition("@")[2].partition("?")
    user = url.reveal().partition("://")[2].rpartition("@")[0]
    secret = ":" in user or any(name in _SECRETS for name, _ in parse_qsl(query))
    found = cache_url.parse(url.reveal())
    if isinstance(found, cache_url.One):
        host = address.partition("/")[0]
        named = dict(parse_qsl(query)).get("host", "")  # where redis-py looks if the address names no host
        hosts = [host.partition("]")[0] if host.startswith("[") else host.partition(":")[0] or named]
    else:
        hosts = [host for host, _ in found.seeds]
    return secret and not all(
        is_local(each or "localhost") for each in hosts
    )  # no host is redis-py's localhost
