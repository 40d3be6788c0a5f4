"""An updater's listener that drops what it takes. P1 (`client_reads`) starts this file as a process of its own.

    python benchmarks/sink.py unix:///run/hints.sock

The process says "ready" once it listens, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from dedup import Silent

from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.core.peers import Peering
from cacheupdater_client.protocol import wire


class Sink(Peering):
    """Packs are taken, and nothing becomes of them."""

    def owed(self, *_):
        return 0

    def offer(self, *_):
        return True

    async def put(self, *_):
        """As `offer`."""


async def main(address: str) -> None:
    """Listens there."""
    listener = StreamListener(Sink(), wire.Hello(12, [b"product:"]), observer=Silent())
    await listener.start([address])
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await listener.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
