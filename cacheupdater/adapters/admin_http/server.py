"""The HTTP pages for operators and Kubernetes: `/metrics`, `/livez`, `/readyz`, and pages of JSON such as `/freshness`.

What changes something is a POST, and like all that names keys it needs the token, or a request from this machine.

The service starts one `AdminServer` if `admin:` is configured. The server lives until the shutdown is complete, so that a
draining process still answers. It knows nothing of its pages: it is given functions for metrics and readiness. `/livez` checks nothing else: an answer proves that the event loop runs, and a loop that hangs fails the probe by
the probe's time limit. A liveness probe that depends on a database would turn one outage into two.

The server is our own, for the task is a few small GETs, and a general server fits it badly. uvicorn 0.54 takes over the
signal handlers in `serve`, exits the process when the port is taken, has no limit on the time or number of connections that
have not yet sent a request, and closes in steps of 0.1 s. Here a connection is one request, within fixed limits of size, time
and number.

Every connection is accepted. If there are too many, the address that holds the most loses connections (`Seats`). So a
client that opens connections and sends no requests takes the room from itself. It never takes room from the kubelet, whose
probe would otherwise fail, so that a healthy updater would be killed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from cacheupdater.adapters.admin_http.request import (
    HEAD_BYTES_MAX,
    LOOPBACK_NAMES,
    Request,
    host_name,
    is_loopback,
    parsed,
)
from cacheupdater.adapters.admin_http.seats import Seat, Seats, Stage, network_of
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Metrics: TypeAlias = Callable[[str], tuple[bytes, str]]  # Accept header -> page and content type
    Conditions: TypeAlias = Callable[[], Mapping[str, bool]]  # named conditions; ready when all are true
    Warnings: TypeAlias = Callable[[], Sequence[object]]  # troubles that do not affect readiness, for JSON
    Pages: TypeAlias = Mapping[
        str, Callable[[], Awaitable[Mapping[str, object]]]
    ]  # path -> the page, for JSON
    KeyPage: TypeAlias = Callable[[bytes], Awaitable[Mapping[str, object]]]  # the page of the key in ?key=
    Query: TypeAlias = Mapping[str, bytes]  # what stands behind the question mark, unquoted
    QueryPage: TypeAlias = Callable[[Query], Awaitable[Mapping[str, object] | None]]  # None: a bad query

REQUEST_S = 5.0  # for the head to arrive; probes give up sooner
ANSWER_S = 30.0  # to make and send a page: thousands of namespaces over a slow link
BACKLOG = (
    512  # connections that the system holds while the loop is busy: a flood is accepted first, then closed
)
CLOSE_S = 1.0  # for requests that are under way at the close

UNIX = "unix://"
_JSON = "application/json"
_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    allow: str = "GET, HEAD"  # the methods of this path


class Keyed(NamedTuple):
    """Pages about keys, and those that only an operator may ask for. Keys are data: a request needs the token; if none is
    configured, it must come from this machine."""

    pages: Mapping[str, KeyPage]
    token: str | None = None
    queried: Mapping[str, QueryPage] = MappingProxyType({})
    changes: Mapping[str, QueryPage] = MappingProxyType({})
    """These change something, so they are asked for by POST. No page of a browser may ask for them."""


class AdminServer:
    """All pages on one address."""

    def __init__(
        self,
        listen: str,
        *,
        metrics: Metrics,
        ready: Conditions,
        warnings: Warnings = tuple,
        pages: Pages | None = None,
        keyed: Keyed | None = None,
    ) -> None:
        """`listen` is host:port, or unix:///path for a worker whose pages its parent collects.

        For port 0 the system chooses a port: see `port` after `start`.
        """
        self._path = listen.removeprefix(UNIX) if listen.startswith(UNIX) else None
        self.host, self.port = ("localhost", 0) if self._path else _host_and_port(listen)
        self._metrics = metrics
        self._ready = ready
        self._warnings = warnings
        self._pages = pages or {}
        self._keyed = keyed or Keyed({})
        # On a loopback address, a foreign name in Host means that a browser was tricked into the request (DNS
        # rebinding). On other addresses the names by which clients know the pod cannot be known here.
        self._names = {*LOOPBACK_NAMES, self.host} if is_loopback(self.host) else None
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()
        self._seats = Seats()
        self._rendering = asyncio.Lock()  # one page of metrics at a time: each may be megabytes

    async def start(self) -> None:
        """Listen, or raise Misconfigured."""
        if self._path:
            with suppress(FileNotFoundError):  # a worker that was killed has left its socket
                os.unlink(self._path)  # noqa: PTH108  pathlib's is refused in coroutines, and this takes no time
            try:
                self._server = await asyncio.start_unix_server(
                    self._connected, self._path, limit=HEAD_BYTES_MAX
                )
            except OSError as e:
                raise Misconfigured(f"admin: cannot listen on {self._path}: {e}") from e
            return
        try:
            self._server = await asyncio.start_server(
                self._connected, self.host, self.port, limit=HEAD_BYTES_MAX, backlog=BACKLOG
            )
        except OSError as e:
            raise Misconfigured(f"admin: cannot listen on {self.host}:{self.port}: {e}") from e
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening. Requests under way may end within `CLOSE_S`."""
        if self._server is None:
            return
        self._server.close()
        if self._busy:
            _, late = await asyncio.wait(self._busy, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # start_server makes one for each connection
        seat = Seat(task, network_of(writer.get_extra_info("peername")))
        self._busy.add(task)
        self._seats.take(seat)
        try:
            await self._serve(reader, writer, seat)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client has gone or is too slow to get an answer
        except asyncio.CancelledError:
            pass  # only `close` and `Seats` cancel this task, which nothing awaits; asyncio would log it as an error
        finally:
            self._seats.give_back(seat)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()
            self._busy.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seat: Seat) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = parsed(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            request, answer = None, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:
            request, answer = None, _plain(HTTPStatus.BAD_REQUEST)
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all is sent
        async with asyncio.timeout(ANSWER_S):
            if request is not None:
                seat.stage = Stage.MAKING
                answer = await self._answer(request)
            seat.stage = Stage.SENDING
            writer.write(_encode(answer, with_body=request is None or request.method != "HEAD"))
            await writer.drain()

    async def _answer(self, request: Request) -> _Answer:
        if self._names is not None and host_name(request.headers.get("host", "")) not in self._names:
            return _plain(HTTPStatus.FORBIDDEN)
        allow = "POST" if request.path in self._keyed.changes else "GET, HEAD"
        if request.method not in allow.split(", "):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)._replace(allow=allow)
        if request.method == "POST" and "origin" in request.headers:  # a form on some page in a browser here
            return _plain(HTTPStatus.FORBIDDEN)
        try:
            return await self._page(request)
        except Exception as e:  # noqa: BLE001  an internal error is logged by its type, never shown to the client
            _log.error("admin: %s failed: %s", request.path, type(e).__name__)  # its text may hold keys
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _page(self, request: Request) -> _Answer:
        if request.path == "/livez":
            return _plain(HTTPStatus.OK)
        if request.path == "/readyz":
            return self._readiness()
        if request.path == "/metrics":
            # in a thread: thousands of series take longer than the loop may be blocked
            async with self._rendering:
                accept = request.headers.get("accept", "")
                return _Answer(HTTPStatus.OK, *await asyncio.to_thread(self._metrics, accept))
        keyed = self._keyed
        if page := self._pages.get(request.path):
            # in the loop, whose data it reads; the page's own function keeps its time short
            return _json(await page())
        if not any(request.path in pages for pages in (keyed.pages, keyed.queried, keyed.changes)):
            return _plain(HTTPStatus.NOT_FOUND)
        return (
            await self._of_keys(request) if self._may_see_keys(request) else _plain(HTTPStatus.UNAUTHORIZED)
        )

    async def _of_keys(self, request: Request) -> _Answer:
        pages, _, queried, changes = self._keyed
        query = {name: unquote_to_bytes(value) for name, value in _query_of(request.query).items()}
        said: Mapping[str, object] | None = None
        if page := queried.get(request.path) or changes.get(request.path):
            said = await page(query)
        elif key := query.get("key"):
            said = await pages[request.path](key)
        return _plain(HTTPStatus.BAD_REQUEST) if said is None else _json(said)

    def _may_see_keys(self, request: Request) -> bool:
        if self._keyed.token is None:
            return self._path is not None or self._names is not None
        said = request.headers.get("authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(said, b"Bearer " + self._keyed.token.encode())

    def _readiness(self) -> _Answer:
        conditions = dict(self._ready())
        ready = all(conditions.values())
        said = {"ready": ready, "conditions": conditions, "warnings": list(self._warnings())}
        body = json.dumps(said).encode()
        return _Answer(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, body, _JSON)


def _host_and_port(listen: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{listen}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise Misconfigured(f"admin: listen: {listen!r} is not host:port")
    return host, port


def _query_of(query: str) -> dict[str, str]:
    """The names and values of a query, still quoted. Of a name that comes twice, the last value counts."""
    return {name: value for name, _, value in (each.partition("=") for each in query.split("&"))}


def _plain(status: HTTPStatus) -> _Answer:
    return _Answer(status, f"{status.phrase}\n".encode())


def _json(said: Mapping[str, object]) -> _Answer:
    return _Answer(HTTPStatus.OK, json.dumps(said, allow_nan=False).encode(), _JSON)


def _encode(answer: _Answer, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {answer.allow}")
    if answer.status is HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + answer.body if with_body else head
