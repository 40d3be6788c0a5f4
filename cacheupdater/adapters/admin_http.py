"""The HTTP pages for operators and Kubernetes: `/metrics`, `/livez`, `/readyz`, and pages of JSON such as `/freshness`.

The service starts one `AdminServer` if `admin:` is configured. The server lives until the shutdown is complete, so that a
draining process still answers. It only reads, and knows nothing of its pages: it is given functions for metrics and
readiness. `/livez` checks nothing else: an answer proves that the event loop runs, and a loop that hangs fails the probe by
the probe's time limit. A liveness probe that depends on a database would turn one outage into two.

The server is our own, for the task is a few small GETs, and a general server fits it badly. uvicorn 0.54 takes over the
signal handlers in `serve`, exits the process when the port is taken, has no limit on the time or number of connections that
have not yet sent a request, and closes in steps of 0.1 s. Here a connection is one request, within fixed limits of size, time
and number.

Every connection is accepted. If there are too many, the address that holds the most loses connections (`_Seats`). So a
client that opens connections and sends no requests takes the room from itself. It never takes room from the kubelet, whose
probe would otherwise fail, so that a healthy updater would be killed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

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

HEAD_BYTES_MAX = 8 * 1024  # request line and headers; scrapers and probes send under 1 KiB
REQUEST_S = 5.0  # for the head to arrive; probes give up sooner
ANSWER_S = 30.0  # to make and send a page: thousands of namespaces over a slow link
CONNECTIONS_MAX = 32  # a scraper, probes and a few people
PER_ADDRESS_MAX = 8  # of these connections: probes, a scraper and a browser behind one address
AT_ONCE_MAX = 128  # during the SETTLE_S of new connections
SETTLE_S = 0.02  # time for a new connection to send its request; a probe needs a millisecond
SETTLE_TURNS = (
    3  # turns of the loop in which it reads what has arrived: to notice data, to read it, to wake the reader
)
NETWORK_BITS = 64  # of an IPv6 address: one host may choose any address in such a network
TOLD_EVERY_S = 600.0  # between two lines of the log about closed connections
BACKLOG = (
    512  # connections that the system holds while the loop is busy: a flood is accepted first, then closed
)
CLOSE_S = 1.0  # for requests that are under way at the close

UNIX = "unix://"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_JSON = "application/json"
_log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class _Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    query: str = ""  # behind the question mark, as sent


class Keyed(NamedTuple):
    """Pages about one key. Keys are data: a request needs the token; if none is configured, it must come from this machine."""

    pages: Mapping[str, KeyPage]
    token: str | None = None


class _Stage(IntEnum):
    """How far a connection has come. Connections of the lowest stage are closed first."""

    SILENT = 0  # it has not sent a whole request
    SENDING = 1  # its answer waits for the client to read
    MAKING = 2  # its answer is being made, which has cost time and will be over soon


@dataclass(eq=False, slots=True)
class _Seat:
    """The seat of one connection."""

    task: asyncio.Task[None]
    address: str
    stage: _Stage = _Stage.SILENT


class _Seats:
    """Room for a number of connections, of which no address has more than its share.

    A new connection always gets a seat, and has `SETTLE_S` to send its request. Then, if there are too many connections, the
    address that holds the most loses some: the oldest that have sent no request, else the oldest that do not read their
    answer, else those that have waited the least for it. So no address can shut out an address that holds fewer.
    """

    def __init__(self) -> None:
        self._taken: dict[_Seat, None] = {}  # the oldest first
        self._settling = False
        self._told = -TOLD_EVERY_S

    def take(self, seat: _Seat) -> None:
        """Take a seat for a new connection. Another connection may lose its seat for it."""
        self._taken[seat] = None
        if len(self._taken) > AT_ONCE_MAX:
            self._part_with(self._greatest())
        if not self._settling and self._crowds():
            self._settling = True
            asyncio.get_running_loop().call_later(SETTLE_S, self._settle, SETTLE_TURNS)

    def give_back(self, seat: _Seat) -> None:
        """The seat's connection is over."""
        self._taken.pop(seat, None)

    def _settle(self, turns: int) -> None:
        """Close connections until there is room. First the loop turns, to read requests that came while it was busy."""
        if turns:
            asyncio.get_running_loop().call_soon(self._settle, turns - 1)
            return
        self._settling = False
        while crowds := self._crowds():
            self._part_with(crowds)

    def _crowds(self) -> set[str]:
        """The addresses one of whose connections must be closed; empty if there is room."""
        held = Counter(each.address for each in self._taken)
        if above := {address for address, count in held.items() if count > PER_ADDRESS_MAX}:
            return above
        return self._greatest() if len(self._taken) > CONNECTIONS_MAX else set()

    def _greatest(self) -> set[str]:
        held = Counter(each.address for each in self._taken)
        return {address for address, count in held.items() if count == max(held.values())}

    def _part_with(self, crowds: set[str]) -> None:
        """Close one connection of these addresses."""
        crowd = [each for each in self._taken if each.address in crowds]
        stage = min(each.stage for each in crowd)
        leaving = [each for each in crowd if each.stage == stage][-1 if stage is _Stage.MAKING else 0]
        self.give_back(leaving)
        leaving.task.cancel()
        now = asyncio.get_running_loop().time()
        if now - self._told >= TOLD_EVERY_S:
            self._told = now
            text = "admin: %s holds too many connections; some that send no request are closed (logged once in %g s)"
            _log.warning(text, leaving.address or "the socket", TOLD_EVERY_S)


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
        self._key_pages, self._token = keyed or Keyed({})
        # On a loopback address, a foreign name in Host means that a browser was tricked into the request (DNS
        # rebinding). On other addresses the names by which clients know the pod cannot be known here.
        self._names = {*_LOOPBACK_NAMES, self.host} if _is_loopback(self.host) else None
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()
        self._seats = _Seats()
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
        seat = _Seat(task, _network_of(writer.get_extra_info("peername")))
        self._busy.add(task)
        self._seats.take(seat)
        try:
            await self._serve(reader, writer, seat)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the client has gone or is too slow to get an answer
        except asyncio.CancelledError:
            pass  # only `close` and `_Seats` cancel this task, which nothing awaits; asyncio would log it as an error
        finally:
            self._seats.give_back(seat)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()
            self._busy.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seat: _Seat) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = _parse(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            request, answer = None, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:
            request, answer = None, _plain(HTTPStatus.BAD_REQUEST)
        writer.transport.set_write_buffer_limits(high=0)  # so that `drain` waits until all is sent
        async with asyncio.timeout(ANSWER_S):
            if request is not None:
                seat.stage = _Stage.MAKING
                answer = await self._answer(request)
            seat.stage = _Stage.SENDING
            writer.write(_encode(answer, with_body=request is None or request.method != "HEAD"))
            await writer.drain()

    async def _answer(self, request: _Request) -> _Answer:
        if self._names is not None and _host_name(request.headers.get("host", "")) not in self._names:
            return _plain(HTTPStatus.FORBIDDEN)
        if request.method not in {"GET", "HEAD"}:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await self._page(request)
        except Exception as e:  # noqa: BLE001  an internal error is logged by its type, never shown to the client
            _log.error("admin: %s failed: %s", request.path, type(e).__name__)  # its text may hold keys
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _page(self, request: _Request) -> _Answer:
        if request.path == "/livez":
            return _plain(HTTPStatus.OK)
        if request.path == "/readyz":
            return self._readiness()
        if request.path == "/metrics":
            # in a thread: thousands of series take longer than the loop may be blocked
            async with self._rendering:
                accept = request.headers.get("accept", "")
                return _Answer(HTTPStatus.OK, *await asyncio.to_thread(self._metrics, accept))
        if page := self._pages.get(request.path):
            # in the loop, whose data it reads; the page's own function keeps its time short
            return _json(await page())
        if keyed := self._key_pages.get(request.path):
            return await self._of_a_key(keyed, request)
        return _plain(HTTPStatus.NOT_FOUND)

    async def _of_a_key(self, page: KeyPage, request: _Request) -> _Answer:
        if not self._may_see_keys(request):
            return _plain(HTTPStatus.UNAUTHORIZED)
        key = unquote_to_bytes(_parsed(request.query).get("key", ""))
        return _json(await page(key)) if key else _plain(HTTPStatus.BAD_REQUEST)

    def _may_see_keys(self, request: _Request) -> bool:
        if self._token is None:
            return self._path is not None or self._names is not None
        said = request.headers.get("authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(said, b"Bearer " + self._token.encode())

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


def _parse(head: bytes) -> _Request:
    """The request whose head this is. Raises ValueError."""
    request_line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = request_line.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or (name.lower() == "host" and "host" in headers):
            raise ValueError(line)
        headers[name.lower()] = value.strip()
    path, _, query = target.partition("?")
    return _Request(method, path, headers, query)


def _parsed(query: str) -> dict[str, str]:
    """The names and values of a query, still quoted. Of a name that comes twice, the last value counts."""
    return {name: value for name, _, value in (each.partition("=") for each in query.split("&"))}


def _host_name(host: str) -> str | None:
    """The name in a Host header, without the port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _network_of(peer: object) -> str:
    """The address for which a connection counts: an IPv4 address, or the network in which an IPv6 host chooses its own."""
    if not isinstance(peer, tuple):
        return ""  # a unix socket: all its clients count as one
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except ValueError:
        return str(peer[0])
    bits = NETWORK_BITS if address.version == 6 else address.max_prefixlen
    return str(ipaddress.ip_network((address, bits), strict=False).network_address)


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
        lines.append("Allow: GET, HEAD")
    if answer.status is HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + answer.body if with_body else head
