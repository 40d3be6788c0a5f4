"""How frames leave the process: one link for each kind of target.

`link_to` picks one by URL when a client is made, so that a bad target raises there and not in the background. The sender's
thread then calls `turn` again and again. A link never waits, never raises, and reconnects by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from cacheupdater_client.shown import shown
from cacheupdater_client.transports.memory import MemoryLink
from cacheupdater_client.transports.stream import StreamLink, TcpAddress, UnixAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater_client.outbox import Outbox

_TARGETS = (
    "unix:///path/to/socket, tcp://host:port, kafka://host:port/topic, redis://host:port/0?stream=name,"
    " memory://name, none or auto"
)


class Link(Protocol):
    """One connection to one updater, or to the queue that updaters read."""

    connected: bool
    trouble: str  # why hints wait, in words; empty while all is well

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """One exchange, without waiting. True if the next one is worth taking in 10 ms."""

    def close(self) -> None:
        """Leaves the connection; the next turn opens a new one."""


def link_to(url: str) -> Callable[[], Link]:
    """A function that makes a link to this target. ValueError says which targets there are."""
    if url.lower().startswith("kafka:"):
        return _kafka_to(url)
    if url.lower().startswith("redis"):
        return _streams_to(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # its text quotes the URL
        parts = urlsplit("")
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return lambda: StreamLink(UnixAddress(parts.path))
    if parts.scheme == "tcp" and parts.hostname and _port_of(url):
        return lambda: StreamLink(TcpAddress(parts.hostname or "", _port_of(url)))
    if parts.scheme == "memory":
        return lambda: MemoryLink(parts.netloc or "main")
    raise ValueError(f"emit={shown(url)!r} is no target; use {_TARGETS}")


def _kafka_to(url: str) -> Callable[[], Link]:
    from cacheupdater_client.transports.kafka import kafka_to  # noqa: PLC0415  only clients that name Kafka pay for it

    try:
        return kafka_to(url)
    except ValueError as e:
        raise ValueError(f"emit={shown(url)!r}: {e}") from e


def _streams_to(url: str) -> Callable[[], Link]:
    from cacheupdater_client.transports.redis_streams import streams_to  # noqa: PLC0415  as above

    try:
        return streams_to(url)
    except ValueError as e:
        raise ValueError(f"emit={shown(url)!r}: {e}") from e


def _port_of(url: str) -> int:
    try:
        return urlsplit(url).port or 0
    except ValueError:  # not a number, or beyond 65535
        return 0
