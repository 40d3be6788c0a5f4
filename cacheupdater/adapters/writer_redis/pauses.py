"""The port of pauses over Redis: one hash beside the floors, whose fields are the names of paused namespaces.

The composition root makes one per process from its writer, whose connections it uses, so a pause costs no connection of its
own and follows a cluster and sentinels as writes do. The name of the hash begins as the floors' names do. So the rights that
a writer needs anyway are enough. The hash has no ttl. It is lost if Redis loses its data, and then nothing is paused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from collections.abc import Mapping

PAUSED = b"__crs:paused"  # no floor has this name: a floor's goes on with a brace


class Commanding(Protocol):
    """What a writer offers for this."""

    async def command(self, key: bytes, *command: bytes) -> Any:
        """The reply to one command about this key, which may run twice. Raises Unavailable, or Faulty if Redis refuses it."""
        ...


class RedisPauses:
    """`ports.Pauses`."""

    def __init__(self, writer: Commanding) -> None:
        self._writer = writer

    async def entries(self) -> Mapping[bytes, bytes]:
        """The entry of each paused namespace."""
        said = await self._writer.command(PAUSED, b"HGETALL", PAUSED)
        if not isinstance(said, list) or len(said) % 2:
            raise Faulty(f"what Redis has at {PAUSED.decode()} is no hash of ours")
        return dict(zip(said[::2], said[1::2], strict=True))

    async def pause(self, namespace: bytes, entry: bytes) -> None:
        """Pause this namespace, or replace its entry."""
        await self._writer.command(PAUSED, b"HSET", PAUSED, namespace, entry)

    async def resume(self, namespace: bytes) -> None:
        """Pause it no more."""
        await self._writer.command(PAUSED, b"HDEL", PAUSED, namespace)
