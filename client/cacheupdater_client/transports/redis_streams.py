"""redis://host/0?stream=hints: packs straight into the streams of a Redis, without an updater in between.

A turn sends all that the window has room for in one script call (in a cluster, one for each partition), and waits for the
answer: half a second at most, in the sender's thread. A frame is acknowledged when Redis has answered that the pack is in its
stream. The number of partitions is what stands in Redis; before an updater has opened the streams, what the URL says.

Small packs cost client, Redis and updater several times as much per hint, so touches linger.

A fault costs the connection, never a frame: the outbox keeps what is not acknowledged, and sends it again, so a pack whose
answer was lost arrives twice. A Redis that is full, or a stream of changes that is full, is such a fault. Then all hints wait,
within the outbox's bounds.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Protocol

from redis.exceptions import NoPermissionError

from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import Hello
from cacheupdater_client.transports.linger import Linger
from cacheupdater_client.transports.redis_nodes import Nodes, check
from cacheupdater_client.transports.stream import BACKOFF_FIRST_S, BACKOFF_MAX_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater_client.outbox import Frame, Outbox

LOOK_S = 30.0  # within this time another number of partitions is noticed
SAID_MAX = 200  # characters of trouble
_FORBIDDEN = re.compile(r"no permission|user executing the script can't")  # in scripts: Redis 7 and 6.2


class Exchanging(Protocol):
    """Nodes, as the link sees them."""

    def exchange(self, calls: Sequence[tuple[str, tuple[bytes | str | int, ...]]]) -> list[object]: ...

    def run(
        self, text: str, sha: str, calls: Sequence[tuple[str, tuple[bytes | str | int, ...]]]
    ) -> list[object]: ...

    def close(self) -> None: ...


def streams_to(url: str) -> Callable[[], RedisStreamsLink]:
    """A function that makes a link to these streams. ValueError says what is wrong with the URL."""
    address = streams.parse(url)
    check(address)
    return lambda: RedisStreamsLink(address)


class RedisStreamsLink:
    """One connection at a time to the streams of one address."""

    def __init__(
        self, address: streams.Address, make: Callable[[streams.Address], Exchanging] = Nodes
    ) -> None:
        self._address = address
        self._make = make
        self._nodes: Exchanging | None = None
        self._hello: Hello | None = None
        self._settled = 0  # frames of this connection, as the outbox counts them
        self._linger = Linger()
        self._more = False  # the window was full, and more hints waited
        self._look_at = 0.0
        self._retry_at = 0.0
        self._backoff = BACKOFF_FIRST_S
        self.connected = False
        self.trouble = ""

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """Connects and sends. True if more hints wait than fit into the window."""
        try:
            return self._turn(outbox, now, now_ms)
        except Exception as e:  # noqa: BLE001  sockets, TLS, redis-py, replies of others: each of their faults costs the connection
            self.close()
            self.trouble = _said(e)
            # between half and whole, so that many processes do not come back in step
            self._retry_at = now + self._backoff * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, guards nothing
            self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
            return False

    def _turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        wanted = outbox.calls if self._hello is None else bool(outbox)
        if not wanted or now < self._retry_at:
            return False
        if self._nodes is None:
            self._nodes = self._make(self._address)
        if self._hello is None or now >= self._look_at:
            self._greet(self._nodes, outbox)
            self._look_at = now + LOOK_S
            if not outbox:  # of a collector, which needs the hello alone; hints would show more
                self.trouble, self._backoff = "", BACKOFF_FIRST_S
        assert self._hello is not None
        weakest = self._linger.weakest(outbox, now, self._hello.partitions, hurried=self._more)
        frames = []
        while frame := outbox.next_frame(now_ms, weakest=weakest):
            frames.append(frame)
        self._more = outbox.blocked
        if frames:
            self._send(self._nodes, frames, outbox)
            self.trouble, self._backoff = "", BACKOFF_FIRST_S
        return self._more

    def _greet(self, nodes: Exchanging, outbox: Outbox) -> None:
        """Passes on the number of partitions. No frame is under way now."""
        roster = streams.roster_key(self._address.stream)
        [said] = nodes.exchange([(roster, ("HGET", roster, "partitions"))])
        if isinstance(said, Exception):
            raise said
        partitions = int(said) if isinstance(said, bytes) else self._address.partitions
        if not partitions:
            raise LookupError(
                f"no updater has opened the streams {self._address.stream} yet, and the URL names no partitions"
            )
        hello = Hello(partitions, [])
        if hello != self._hello:
            self._hello, self._settled = hello, 0
            outbox.greet(hello)
        self.connected = True

    def _send(self, nodes: Exchanging, frames: Sequence[Frame], outbox: Outbox) -> None:
        shares = self._shares(frames)
        replies = nodes.run(streams.PUT, streams.PUT_SHA, [self._call(frames, share) for share in shares])
        failed = [
            at for share, reply in zip(shares, replies, strict=True) if type(reply) is not int for at in share
        ]
        taken = min(failed, default=len(frames))
        if taken:
            self._settled += taken
            outbox.acknowledge(self._settled)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if failed:
            raise ValueError("what Redis answered is no answer of our script")

    def _shares(self, frames: Sequence[Frame]) -> list[list[int]]:
        """Which frames go in one call: in a cluster, those of one partition."""
        if not streams.is_cluster(self._address):
            return [list(range(len(frames)))]
        shares: dict[int, list[int]] = {}
        for at, frame in enumerate(frames):
            shares.setdefault(frame.partition, []).append(at)
        return list(shares.values())

    def _call(
        self, frames: Sequence[Frame], share: Sequence[int]
    ) -> tuple[str, tuple[bytes | str | int, ...]]:
        packs = [(frames[at].partition, frames[at].pack) for at in share]
        key = streams.keys_of(self._address.stream, packs[0][0])[0]
        return key, tuple(streams.put_args(self._address, packs))

    def close(self) -> None:
        """Leaves the connection; the next turn opens a new one."""
        nodes, self._nodes = self._nodes, None
        self._hello = None
        self._settled = 0
        self.connected = self._more = False
        if nodes is not None:
            nodes.close()


def _said(error: Exception) -> str:
    """The error in words that name no user."""
    if isinstance(error, NoPermissionError) or _FORBIDDEN.search(str(error)):
        return "this Redis user may not add to the streams"
    return str(error)[:SAID_MAX] or type(error).__name__
