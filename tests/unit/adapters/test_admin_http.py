"""The answers of the admin address to probes, scrapers, browsers and bad clients."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import threading

import pytest

from cacheupdater.adapters.admin_http import AdminServer, Keyed
from cacheupdater.adapters.admin_http import seats as admin_seats
from cacheupdater.adapters.admin_http import server as admin_http
from cacheupdater.errors import Misconfigured

SOON = 60.0  # s: whatever should happen has happened by then, on any machine


class Service:
    """What the service would give: a page, and conditions that a test may change."""

    def __init__(self):
        self.conditions = {"redis": True, "assigned": True}
        self.warnings = []
        self.asked = []
        self.page = b"metric 1\n"
        self.broken = False

    def metrics(self, accept):
        self.asked.append(accept)
        return self.page, "text/plain; version=0.0.4"

    def ready(self):
        return self.conditions

    async def freshness(self):
        if self.broken:
            raise ValueError("product:7")
        return {"sources": [1, None]}


@pytest.fixture
def service():
    return Service()


@pytest.fixture
async def server(service):
    server = AdminServer(
        "127.0.0.1:0",
        metrics=service.metrics,
        ready=service.ready,
        warnings=lambda: service.warnings,
        pages={"/freshness": service.freshness},
    )
    await server.start()
    yield server
    await server.close()


async def until(condition):
    """Wait for something that happens by itself."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110  what is waited for is on the other side of a socket
            await asyncio.sleep(0.001)


async def exchange(server, sent):
    """Send these bytes and read until the server hangs up."""
    async with asyncio.timeout(SOON):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(sent)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


async def ask(server, path, *, method="GET", host="localhost", **headers):
    """Status, headers and body of one request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    head, _, body = (await exchange(server, "\r\n".join([*lines, "", ""]).encode())).partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    return int(status.split(" ")[1]), dict(line.split(": ", 1) for line in rest), body


async def test_a_page_of_the_service_is_json(server):
    status, headers, body = await ask(server, "/freshness?x=1")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"sources": [1, None]}
    assert (await ask(server, "/freshness", method="HEAD"))[2] == b""
    assert (await ask(server, "/freshness", method="POST"))[0] == 405
    assert (await ask(server, "/freshness", host="evil.example"))[0] == 403


async def test_a_page_that_fails_shows_nothing_of_why(server, service, caplog):
    service.broken = True
    status, _, body = await ask(server, "/freshness")
    assert (status, body) == (500, b"Internal Server Error\n")
    assert "product:7" not in caplog.text


async def test_metrics_passes_on_what_the_scraper_accepts(server, service):
    status, headers, body = await ask(server, "/metrics?debug=1", Accept="application/openmetrics-text")
    assert (status, body) == (200, b"metric 1\n")
    assert headers["Content-Type"] == "text/plain; version=0.0.4"
    assert headers["Content-Length"] == "9"
    assert service.asked == ["application/openmetrics-text"]


async def test_a_page_of_many_megabytes_arrives_whole(server, service):
    service.page = bytes(8_000_000)
    _, _, body = await ask(server, "/metrics")
    assert body == service.page


async def test_the_loop_goes_on_while_a_page_is_made(server, service):
    release = threading.Event()
    service.metrics = None
    server._metrics = lambda _: (release.wait(SOON), (b"late", "text/plain"))[1]
    scrapes = [asyncio.ensure_future(ask(server, "/metrics")) for _ in range(2)]
    assert (await ask(server, "/livez"))[0] == 200
    assert not any(scrape.done() for scrape in scrapes)
    release.set()
    assert [(await scrape)[2] for scrape in scrapes] == [b"late", b"late"]


async def test_readyz_names_its_conditions(server, service):
    status, headers, body = await ask(server, "/readyz")
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "ready": True,
        "conditions": {"redis": True, "assigned": True},
        "warnings": [],
    }
    service.conditions["redis"] = False
    service.warnings.append("redis_down")
    status, _, body = await ask(server, "/readyz")
    assert status == 503
    assert json.loads(body) == {
        "ready": False,
        "conditions": {"redis": False, "assigned": True},
        "warnings": ["redis_down"],
    }


async def test_livez_asks_nobody(service):
    def fail(*_):
        raise RuntimeError("a dependency was asked")

    server = AdminServer("127.0.0.1:0", metrics=fail, ready=fail)
    await server.start()
    assert (await ask(server, "/livez"))[0] == 200
    await server.close()


async def test_head_answers_without_body(server):
    status, headers, body = await ask(server, "/metrics", method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, "9", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
async def test_other_methods_are_refused(server, service, method):
    status, headers, _ = await ask(server, "/metrics", method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert service.asked == []


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../livez", "//livez", "http://127.0.0.1/metrics", "*"])
async def test_other_paths_are_not_found(server, path):
    assert (await ask(server, path))[0] == 404


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9464", "LOCALHOST:80", "[::1]:9464"])
async def test_a_loopback_name_is_answered(server, host):
    assert (await ask(server, "/livez", host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9464", "localhost.evil.example", "", "[", "10.0.0.7"]
)
async def test_a_foreign_name_is_refused_on_a_loopback_address(server, service, host):
    """A page in a browser that got its own name to resolve to 127.0.0.1 must learn nothing."""
    status, headers, body = await ask(server, "/metrics", host=host)
    assert (status, body) == (403, b"Forbidden\n")
    assert not [name for name in headers if name.startswith("Access-Control")]
    assert service.asked == []


async def test_any_name_is_answered_on_an_address_of_the_pod(service):
    server = AdminServer("0.0.0.0:0", metrics=service.metrics, ready=service.ready)
    await server.start()
    assert (await ask(server, "/livez", host="10.1.2.3:9464"))[0] == 200
    await server.close()


async def test_what_fails_inside_is_neither_shown_nor_fatal(server, service, caplog):
    service.conditions = None
    with caplog.at_level(logging.ERROR):
        status, _, body = await ask(server, "/readyz")
    assert (status, body) == (500, b"Internal Server Error\n")
    assert [record.getMessage() for record in caplog.records] == ["admin: /readyz failed: TypeError"]
    assert (await ask(server, "/livez"))[0] == 200


@pytest.fixture(params=["127.0.0.1:0", "0.0.0.0:0"], ids=["loopback", "pod"])
async def desk(request, service):
    """A server with a page of keys and a change, and what was asked of them. On the pod's address they need the token."""
    asked = []

    async def page(query):
        asked.append(dict(query))
        return None if "bad" in query else {"keys": []}

    token = None if request.param.startswith("127") else "a-token-of-some-length"
    keyed = Keyed({}, token, queried={"/list": page}, changes={"/change": page})
    made = AdminServer(request.param, metrics=service.metrics, ready=service.ready, keyed=keyed)
    made.asked, made.headers = asked, {"Authorization": f"Bearer {token}"} if token else {}
    await made.start()
    yield made
    await made.close()


async def test_what_changes_something_is_asked_for_by_post_only(desk):
    status, headers, _ = await ask(desk, "/change?key=a", **desk.headers)
    assert (status, headers["Allow"]) == (405, "POST")
    status, headers, _ = await ask(desk, "/list", method="POST", **desk.headers)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert desk.asked == []

    assert (await ask(desk, "/change?key=a%20b%ff", method="POST", **desk.headers))[0] == 200
    assert (await ask(desk, "/list?namespace=x", **desk.headers))[0] == 200
    assert desk.asked == [{"key": b"a b\xff"}, {"namespace": b"x"}]


async def test_a_change_that_a_page_in_a_browser_asks_for_is_refused(desk):
    status, _, _ = await ask(
        desk, "/change?all=1", method="POST", Origin="https://evil.example", **desk.headers
    )
    assert status == 403
    assert desk.asked == []


async def test_keys_are_neither_listed_nor_changed_without_the_token_on_an_address_of_the_pod(desk):
    wanted = 401 if desk.headers else 200
    assert (await ask(desk, "/list"))[0] == wanted
    assert (await ask(desk, "/change?key=a", method="POST"))[0] == wanted
    assert (await ask(desk, "/change?bad=1", method="POST", **desk.headers))[0] == 400


# --- nuisances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/2.0\r\n\r\n",
        b"GET  /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n Host: folded\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_a_broken_request_is_refused(server, sent):
    assert (await exchange(server, sent)).startswith(b"HTTP/1.1 400 ")
    assert (await ask(server, "/livez"))[0] == 200


async def test_headers_without_end_are_refused(server):
    endless = b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 10_000
    assert (await exchange(server, endless))[:13] in {b"HTTP/1.1 431 ", b""}  # or hung up while it still sent
    assert (await exchange(server, b"GET /" + b"a" * 9000)).startswith(b"HTTP/1.1 431 ")


async def test_random_bytes_harm_nobody(server):
    rng = random.Random(5)
    for _ in range(300):
        answer = await exchange(server, rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n")
        assert answer[:13] in {b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"HTTP/1.1 405 "}
    assert (await ask(server, "/livez"))[0] == 200


async def test_whoever_never_finishes_a_request_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(admin_http, "REQUEST_S", 0.05)
    assert await exchange(server, b"GET /livez HTTP/1.1\r\n") == b""


LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_whoever_asks_is_answered_beside_forty_connections_that_say_nothing(server):
    """The kubelet of a pod with `hostNetwork`, or anything behind the same proxy, shares its address with whoever is there."""
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(40)]
    try:
        for _ in range(50):
            silent.append(await asyncio.open_connection("127.0.0.1", server.port))
            assert (await exchange(server, LIVEZ)).startswith(b"HTTP/1.1 200 ")
        await until(lambda: len(server._busy) <= admin_seats.PER_ADDRESS_MAX)
        assert await silent[0][0].read() == b""  # the oldest went
    finally:
        for _, writer in silent:
            writer.transport.abort()


async def test_whoever_asks_is_answered_beside_many_that_do_not_read_their_answers(server, service):
    service.page = bytes(30_000_000)  # more than the system keeps for them
    deaf = [
        await asyncio.open_connection("127.0.0.1", server.port) for _ in range(admin_seats.PER_ADDRESS_MAX)
    ]
    try:
        for _, writer in deaf:
            writer.write(LIVEZ.replace(b"/livez", b"/metrics"))
        sending = admin_seats.Stage.SENDING
        await until(lambda: sum(each.stage is sending for each in server._seats._taken) == len(deaf))
        for _ in range(3):
            assert (await exchange(server, LIVEZ)).startswith(b"HTTP/1.1 200 ")
    finally:
        for _, writer in deaf:
            writer.transport.abort()


async def test_whoever_had_to_go_is_told_of_once(server, caplog):
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(30)]
    await until(lambda: len(server._seats._taken) == admin_seats.PER_ADDRESS_MAX)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("admin: 127.0.0.1 holds too many connections")
    for _, writer in silent:
        writer.transport.abort()


# --- who goes where there are too many ------------------------------------------------------------------


class Task:
    def __init__(self):
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def seats():
    return admin_seats.Seats()


@pytest.fixture
def sit(seats):
    """Takes seats for an address."""

    def sit(address, count=1, stage=admin_seats.Stage.SILENT):
        taken = [admin_seats.Seat(Task(), address, stage) for _ in range(count)]
        for each in taken:
            seats.take(each)
        return taken

    return sit


def gone(taken):
    return [at for at, each in enumerate(taken) if each.task.cancelled]


async def settled(seats):
    await until(lambda: not seats._settling)


async def test_a_stranger_takes_room_from_itself_and_never_from_another(seats, sit):
    probe = sit("10.0.0.1")
    strangers = [each for n in range(2, 9) for each in sit(f"10.0.0.{n}", admin_seats.PER_ADDRESS_MAX)]
    await settled(seats)
    assert gone(probe) == []
    assert len(strangers) - len(gone(strangers)) == admin_seats.CONNECTIONS_MAX - 1


async def test_the_oldest_that_has_asked_nothing_goes_first(seats, sit):
    asked = sit("10.0.0.1", 2, admin_seats.Stage.SENDING)
    silent = sit("10.0.0.1", admin_seats.PER_ADDRESS_MAX)
    await settled(seats)
    assert (gone(asked), gone(silent)) == ([], [0, 1])


async def test_of_those_that_were_heard_the_longest_deaf_goes_before_any_whose_answer_is_made(seats, sit):
    made = sit("10.0.0.1", 2, admin_seats.Stage.MAKING)
    deaf = sit("10.0.0.1", 2, admin_seats.Stage.SENDING)
    more = sit("10.0.0.1", admin_seats.PER_ADDRESS_MAX, admin_seats.Stage.MAKING)
    await settled(seats)
    assert (gone(made), gone(deaf)) == ([], [0, 1])
    assert gone(more) == [6, 7]  # what has waited longest is nearest to its answer


async def test_a_flood_finds_no_more_room_than_its_bound_even_within_one_turn(seats, sit):
    probe = sit("10.0.0.1")
    flood = sit("10.0.0.2", 1000)
    assert len(seats._taken) == admin_seats.AT_ONCE_MAX
    assert (gone(probe), flood[-1].task.cancelled) == ([], False)
    await settled(seats)


async def test_everybodys_address_counts_where_each_holds_one(seats, sit):
    crowd = [each for n in range(60) for each in sit(f"10.0.0.{n}")]
    probe = sit("10.0.1.1", stage=admin_seats.Stage.MAKING)
    await settled(seats)
    assert gone(probe) == []
    assert len(gone(crowd)) == 61 - admin_seats.CONNECTIONS_MAX


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        (("10.0.0.7", 1), "10.0.0.7"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_ipv6_host_counts_as_one_however_many_addresses_it_takes(peer, network):
    assert admin_seats.network_of(peer) == network


# --- starting and closing ---------------------------------------------------------------------------------------


async def test_close_is_bounded_and_frees_the_port(service, monkeypatch):
    monkeypatch.setattr(admin_http, "CLOSE_S", 0.05)
    server = AdminServer("127.0.0.1:0", metrics=service.metrics, ready=service.ready)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await until(lambda: server._busy)
    async with asyncio.timeout(SOON):
        await server.close()
        assert await reader.read() == b""
    writer.transport.abort()
    again = AdminServer(f"127.0.0.1:{server.port}", metrics=service.metrics, ready=service.ready)
    await again.start()
    await again.close()
    await again.close()


async def test_a_taken_port_is_a_clear_error(server, service):
    second = AdminServer(f"127.0.0.1:{server.port}", metrics=service.metrics, ready=service.ready)
    with pytest.raises(Misconfigured, match=f"admin: cannot listen on 127.0.0.1:{server.port}"):
        await second.start()
    await second.close()


@pytest.mark.parametrize(
    "listen", ["", "9464", ":9464", "localhost", "localhost:port", "localhost:99999", "[::1"]
)
def test_an_address_without_host_or_port_is_refused(service, listen):
    with pytest.raises(Misconfigured, match="is not host:port"):
        AdminServer(listen, metrics=service.metrics, ready=service.ready)


async def test_signal_handlers_stay_as_they_were(service):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = AdminServer("localhost:0", metrics=service.metrics, ready=service.ready)
    await server.start()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    await server.close()


# --- pages about a key ------------------------------------------------------------------------------------


@pytest.fixture
async def keyed(service):
    """Starts servers that tell of keys, on the address that the test names."""
    started = []

    async def start(host, token=None):
        async def page(key):
            return {"key": key.decode("latin-1")}

        server = AdminServer(
            f"{host}:0", metrics=service.metrics, ready=service.ready, keyed=Keyed({"/explain": page}, token)
        )
        await server.start()
        started.append(server)
        return server.port

    yield start
    for server in started:
        await server.close()


async def asked(port, path, token=None):
    extra = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer.rpartition("\r\n\r\n")[2]


async def test_a_key_is_told_of_on_a_loopback_address_whatever_its_bytes(keyed):
    port = await keyed("127.0.0.1")
    assert await asked(port, "/explain?key=product%3A7%FF%26x") == (200, '{"key": "product:7\\u00ff&x"}')
    assert (await asked(port, "/explain"))[0] == 400


async def test_on_another_address_nobody_hears_of_a_key_without_a_token(keyed):
    assert (await asked(await keyed("0.0.0.0"), "/explain?key=a"))[0] == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_who_has_the_token_hears_and_nobody_else(keyed, host):
    port = await keyed(host, "a-token-of-some-length")
    assert (await asked(port, "/explain?key=a", "a-token-of-some-length"))[0] == 200
    assert (await asked(port, "/explain?key=a", "a-token-of-some-lengtH"))[0] == 401
    assert (await asked(port, "/explain?key=a"))[0] == 401
