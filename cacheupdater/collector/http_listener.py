"""`http://127.0.0.1:port`: programs in any language hand in hints by `POST /v1/hints`, as JSON lines.

The collector makes one for its `http://` addresses, beside the stream listener. A connection is one request. The answer says
what was taken: 202 when touches are in memory, and when the queue has all changes and misses; 503 if there is no room, or if
the queue has not taken them in time, so that the sender tries again; 400 with the first bad line, and then nothing is taken.

Only loopback addresses, for there is no login. A page in a browser of this machine may not send hints: its request names
another host, or its origin. Size, time and number of requests are limited. If there are too many connections, the oldest that
has sent no whole request is closed.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from cacheupdater.adapters.admin_http.request import (
    HEAD_BYTES_MAX,
    LOOPBACK_NAMES,
    Request,
    host_name,
    is_loopback,
    parsed,
)
from cacheupdater.collector.lines import BadLine, packs_of
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.collector.gathered import Gathered
    from cacheupdater.core.receipts import Receipt
    from cacheupdater_client.protocol.wire import Pack

PATH = "/v1/hints"
BODY_BYTES_MAX = 1024 * 1024  # some 20,000 hints, which take the loop 20 ms
REQUEST_S = 5.0  # for a whole request to arrive; its sender is on this machine
FORWARD_S = 2.0  # for changes and misses to reach the queue; then the sender shall try again
SEND_S = 5.0  # for the answer to be read
RETRY_AFTER_S = 1
CONNECTIONS_MAX = 128  # each may hold a body: 128 MiB at the very worst, and mostly none
CLOSE_S = 1.0  # for requests that are under way at the close
_ORIGIN = "http"  # all peers here are programs of this machine, and cannot be told apart


class _Answer(NamedTuple):
    status: HTTPStatus
    said: dict[str, object]


class HttpListener:
    """The listener on all `http://` addresses."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered
        self._servers: list[asyncio.Server] = []
        self._silent: dict[asyncio.Task[None], None] = {}  # have sent no whole request; the oldest first
        self._busy: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self.addresses: list[str] = []  # as bound: with the chosen port where the address says 0

    async def start(self, addresses: Sequence[str]) -> None:
        """Listen on all addresses, or raise Misconfigured."""
        for address in addresses:
            parts = urlsplit(address)
            host = parts.hostname or ""
            if not is_loopback(host):
                raise Misconfigured(
                    f"listen: {address}: hints by HTTP need a loopback address, such as 127.0.0.1"
                )
            try:
                server = await asyncio.start_server(self._connected, host, parts.port, limit=HEAD_BYTES_MAX)
            except OSError as e:
                raise Misconfigured(f"listen: cannot listen on {address}: {e}") from e
            self._servers.append(server)
            name = f"[{host}]" if ":" in host else host
            self.addresses.append(f"http://{name}:{server.sockets[0].getsockname()[1]}")

    async def close(self) -> None:
        """Stop listening. Requests under way may end within `CLOSE_S`."""
        for server in self._servers:
            server.close()
        if self._busy:
            _, late = await asyncio.wait(self._busy, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def acknowledge(self) -> None:
        """The queue has taken more hints."""
        self._settled.set()
        self._settled = asyncio.Event()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # start_server makes one for each connection
        self._busy.add(task)
        self._silent[task] = None
        try:
            if len(self._busy) > CONNECTIONS_MAX:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                oldest.cancel()
            await self._serve(reader, writer, task)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the sender has gone or is too slow to get an answer
        except asyncio.CancelledError:
            pass  # only `close` and too many connections cancel this task, which nothing awaits
        finally:
            self._silent.pop(task, None)
            self._busy.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        answer, body = None, b""
        async with asyncio.timeout(REQUEST_S):
            try:
                request = parsed(await reader.readuntil(b"\r\n\r\n"))
                answer = _refused(request)
                if answer is None:
                    if request.headers.get("expect", "").lower() == "100-continue":
                        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    body = await reader.readexactly(int(request.headers["content-length"]))
            except (ValueError, asyncio.LimitOverrunError):
                answer = _Answer(HTTPStatus.BAD_REQUEST, {"error": "this is no HTTP request"})
        self._silent.pop(task, None)
        answer = answer or await self._take(body)
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all is sent
        writer.write(_encoded(answer))
        async with asyncio.timeout(SEND_S):
            await writer.drain()

    async def _take(self, body: bytes) -> _Answer:
        try:
            lines, packs = packs_of(body)
        except BadLine as e:
            return _Answer(HTTPStatus.BAD_REQUEST, {"error": str(e), "taken": 0})
        peer = self._gathered.newcomer(_ORIGIN)
        try:
            receipts = self._put(packs, peer)
        finally:
            self._gathered.gone(peer, _ORIGIN)
        if receipts is None:
            return _later("there is no room for these hints")
        with suppress(TimeoutError):
            async with asyncio.timeout(FORWARD_S):
                while not all(each.done for each in receipts):
                    await self._settled.wait()
        if all(each.done for each in receipts):
            return _Answer(HTTPStatus.ACCEPTED, {"taken": lines})
        return _later("the queue has not taken these hints in time")

    def _put(self, packs: list[Pack], peer: int) -> list[Receipt] | None:
        """The receipts of all packs; None if there was no room for one of them."""
        receipts = []
        for pack in packs:
            receipt = self._gathered.take(pack, peer)
            if receipt is None:
                return None
            receipts.append(receipt)
        return receipts


def _refused(request: Request) -> _Answer | None:
    """Why this request is not read any further, if so."""
    headers = request.headers
    if host_name(headers.get("host", "")) not in LOOPBACK_NAMES or "origin" in headers:
        return _Answer(HTTPStatus.FORBIDDEN, {"error": "this address is for programs of this machine"})
    if request.path != PATH:
        return _Answer(HTTPStatus.NOT_FOUND, {"error": f"hints go to {PATH}"})
    if request.method != "POST":
        return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use POST"})
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        return _Answer(HTTPStatus.LENGTH_REQUIRED, {"error": "say Content-Length"})
    if len(length) > len(str(BODY_BYTES_MAX)) or int(length) > BODY_BYTES_MAX:
        return _Answer(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"a body may have {BODY_BYTES_MAX} bytes"}
        )
    return None


def _later(why: str) -> _Answer:
    return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"{why}; send them again"})


def _encoded(answer: _Answer) -> bytes:
    body = json.dumps(answer.said).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: POST")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
