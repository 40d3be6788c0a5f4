"""A running updater whose addresses carry a canary as user and password: nothing that it shows has it."""

from __future__ import annotations

import subprocess
import sys
from urllib.request import urlopen

import psutil
import pytest
import redis
from live.updater_process import config, eventually
from live.warm import COMMAND

from cacheupdater_client import Redis

pytestmark = pytest.mark.untimed

CANARY = "Zq7c4n4ryZq7"
USER, PASSWORD = f"{CANARY}'user", f'pa"ss/{CANARY}@:'
ENCODED = f"{CANARY}%27user:pa%22ss%2F{CANARY}%40%3A"
PAGES = ("metrics", "readyz", "livez", "freshness", "explain?key=item:1")


def test_nothing_that_a_running_updater_shows_has_a_user_or_password_of_its_addresses(
    redis_url, pg_url, updaters
):
    own = redis.Redis.from_url(redis_url)
    # enough to answer, and no right to write: Redis names the user when it refuses
    own.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "+@all", "-evalsha", "-eval")
    host = redis_url.partition("://")[2]
    where = pg_url.rpartition("@")[2]
    sources = {
        "main": {"url": f"postgresql+asyncpg://{ENCODED}@{where}", "budget": "500/s"},
        "far": {"url": f"postgresql+asyncpg://{ENCODED}@no-such-host.invalid/x", "budget": "500/s"},
    }
    namespaces = {
        name: {"key": f"{name}:{{id:int}}", "load": {"source": source, "table": "items"}}
        for name, source in (("item", "main"), ("other", "far"))
    }
    updater = updaters.start(config(f"redis://{ENCODED}@{host}", sources, namespaces), program=COMMAND)
    try:
        with Redis.from_url(redis_url, emit=updater.emit) as application:
            for key in ("item:1", "other:1"):
                application.get(key)
            eventually(lambda: all(each in updater.log for each in ("28000", "no address")))

        said = [updater.log, *psutil.Process(updater.pid).cmdline(), psutil.Process(updater.pid).name()]
        for page in PAGES:
            with urlopen(f"http://127.0.0.1:{updater.port}/{page}") as answer:
                said.append(answer.read().decode())
        for args in (
            ["check", "--connect"],
            ["explain", "item:1", "--connect"],
            ["invalidate", "item:1"],
            ["freshness"],
        ):
            command = [sys.executable, "-m", "cacheupdater", *args, "-c", str(updater.file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said += [done.stdout, done.stderr]

        assert [each for each in said if CANARY in each] == []
        assert "this user has no permissions" in "".join(said)
        assert "does not let this user in from here" in "".join(said)
    finally:
        own.execute_command("ACL", "DELUSER", USER)
        own.close()
