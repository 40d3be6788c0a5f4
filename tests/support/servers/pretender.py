"""A pretender: it acts as a server, records all that it receives, and gives the answers that a test chooses."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, suppress


@asynccontextmanager
async def pretending(answer, tls=None):
    """Yields its port, and the bytes received so far. It hangs up if `answer` gives no answer."""
    heard, hearing = [], []

    async def hear(reader, writer):
        hearing.append(asyncio.current_task())
        with closing(writer), suppress(ConnectionError):
            while data := await reader.read(4096):
                heard.append(data)
                if (said := answer(data)) is None:
                    break
                writer.write(said)

    async with await asyncio.start_server(hear, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1], heard
        await asyncio.gather(*hearing)
