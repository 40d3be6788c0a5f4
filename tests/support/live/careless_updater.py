"""The control of the live stories: an updater without the fence, in which a failed write counts as written. It must fail them.

Run as `python careless_updater.py run -c FILE`, in the place of `python -m cacheupdater`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from hashlib import sha1

from cacheupdater.adapters.writer_redis import ClusterWriter, RedisWriter
from cacheupdater.cli import main
from cacheupdater.core.answers import WRITTEN
from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol import fence
from live.naive_updater import PLAIN_SET


def careless(writer):
    """Makes a class of writers answer with success, whatever happens."""
    token_of, write_to = writer.token, writer.write

    async def token(self, keys=()):
        try:
            return await token_of(self, keys)
        except Unavailable:
            return 0

    async def write(self, token, entries, **options):
        with suppress(Unavailable):
            await write_to(self, token, entries)
        return [WRITTEN] * len(entries)

    writer.token, writer.write = token, write


if __name__ == "__main__":
    fence.COMMIT = fence.Script(PLAIN_SET, sha1(PLAIN_SET.encode(), usedforsecurity=False).hexdigest())
    careless(ClusterWriter)
    careless(RedisWriter)
    sys.exit(main())
