"""The port `Marks` over the Redis whose values the feed keeps fresh: one small hash per feed, one script.

The composition root makes one `RedisMarks` per feed that polls. The feed takes the turn, renews it, and keeps its marks with each
confirmed batch. The owner is random, so a process that was killed and started again waits for the end of its old turn.

The marks live and die with the cache beside them. A Redis that comes back empty has no old values that a feed could have missed,
so a feed without marks begins at the present. The hash has no ttl: marks that had expired would leave a gap nobody notices.
It stays when a feed is removed: `DEL cacheupdater:feed:NAME`.

The hash is a single key, so in a cluster one node has it. Beside the writer's rights, an ACL user needs:
~cacheupdater:feed:* +evalsha +script|load +time +type +hmget +hset +hdel +hgetall
In a cluster also +command, which redis-py uses.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from cacheupdater.errors import CacheUpdaterError, Faulty, Unavailable
from cacheupdater.feed_ports import LEASE
from cacheupdater.redis_record import PREFIX, RedisRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCRIPT = Path(__file__).with_name("feed_marks.lua").read_text("utf-8")
_MARK = "mark:"


class RedisMarks:
    """The marks of the feed of this name, for one process."""

    def __init__(self, url: str, name: str) -> None:
        self._key = f"{PREFIX}feed:{name}"
        self._redis = RedisRecord(url, _SCRIPT, what=self._key)
        self._owner = token_hex(8)

    async def take(self) -> Mapping[str, str] | None:
        """As the port says."""
        ours, *fields = await self._call(LEASE)
        if not ours:
            return None
        try:
            texts = [each.decode() for each in fields]
        except UnicodeDecodeError as e:
            raise Faulty(f"another program has written to {self._key}; remove this key") from e
        pairs = zip(texts[::2], texts[1::2], strict=True)
        return {name.removeprefix(_MARK): text for name, text in pairs if name.startswith(_MARK)}

    async def keep(self, marks: Mapping[str, str]) -> None:
        """As the port says."""
        if marks:
            [ours] = await self._call(LEASE, *(text for pair in marks.items() for text in pair))
        else:
            [ours, *_] = await self._call(LEASE)
        if not ours:
            raise Unavailable("another updater reads this feed now")

    async def leave(self) -> None:
        """As the port says."""
        with suppress(CacheUpdaterError):
            await self._call(0.0)

    async def close(self) -> None:
        """As the port says."""
        await self._redis.close()

    async def _call(self, length: float, *marks: str) -> list[Any]:
        times = round(length * 1000), round(LEASE * 1000)
        found: list[Any] = await self._redis.run(self._key, self._owner, *times, *marks)
        return found
