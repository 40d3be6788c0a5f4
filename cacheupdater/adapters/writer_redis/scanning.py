"""The keys of one Redis server that begin in some way, page by page, by SCAN.

Both writers offer `scan` by this (`feeds.sweep`). A page costs Redis a fraction of a millisecond, and other commands run between two
pages. Beside the writer's rights an ACL user needs +scan.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

LOOKED_AT = b"1000"  # keys that Redis looks at for one page
_GLOB = re.compile(rb"([*?\[\]\\])")


async def pages(
    ask: Callable[[Sequence[bytes]], Awaitable[Any]], prefix: bytes
) -> AsyncIterator[Sequence[bytes]]:
    """`ask` answers one command; what it raises is passed on."""
    like, cursor = _GLOB.sub(rb"\\\1", prefix) + b"*", b"0"
    while True:
        reply = await ask((b"SCAN", cursor, b"MATCH", like, b"COUNT", LOOKED_AT))
        if not isinstance(reply, list) or len(reply) != 2:
            raise Faulty("what Redis answered is no answer to SCAN")
        cursor, found = reply
        if found:
            yield found
        if cursor == b"0":
            return
