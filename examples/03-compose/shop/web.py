"""The shop's web page: http://127.0.0.1:8000 shows prices, their age, and four caches side by side.

python web.py        REDIS_URL, SHOP_DB and CACHEUPDATER_EMIT say where things are, ADDRESS where to listen

Standard library, asyncpg and our client; no framework, so that there is nothing to explain.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from pathlib import Path

import asyncpg
from shop import Shop

from cacheupdater_client.asyncio import Redis

PAGE = Path(__file__).with_name("page.html").read_bytes()
PATIENCE_S = 60.0  # for a database that is still starting
REQUEST_S = 5.0
HEAD = "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"


async def database(url: str) -> asyncpg.Pool:
    """A pool, as soon as there is somebody to connect to."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await asyncpg.create_pool(url, min_size=1, max_size=8)
        except (OSError, asyncpg.PostgresError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


def answer(shop: Shop, path: str) -> tuple[str, str, bytes]:
    """Status, type and body."""
    if path == "/":
        return "200 OK", "text/html; charset=utf-8", PAGE
    if path == "/state":
        return "200 OK", "application/json", json.dumps(shop.state()).encode()
    if path == "/healthz":
        return "200 OK", "text/plain", b"ok\n"
    return "404 Not Found", "text/plain", b"there is nothing here\n"


async def serve(shop: Shop, address: str) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, kind, body = answer(shop, request.split(" ")[1])
                writer.write(HEAD.format(status, kind, len(body)).encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass  # whoever asks so gets no answer
        finally:
            writer.close()

    host, _, port = address.rpartition(":")
    return await asyncio.start_server(connected, host, int(port))


async def main() -> None:
    environment = os.environ  # noqa: TID251  a program's own
    # a topic knows no prefixes; what merely expires need not travel
    cache = Redis.from_url(environment["REDIS_URL"], only=["fixed:", "price:", "told:"])
    pool = await database(environment["SHOP_DB"].replace("+asyncpg", ""))
    shop = Shop(cache, pool, random.Random(7))
    await shop.open()
    server = await serve(shop, environment.get("ADDRESS", "127.0.0.1:8000"))
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    beside = [asyncio.ensure_future(each) for each in (shop.shoppers(), shop.changes())]
    print("ready", environment.get("ADDRESS", "127.0.0.1:8000"), flush=True)
    await stop.wait()
    for each in beside:
        each.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    server.close()
    await cache.aclose()
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main())
