"""What `helm test` runs in a pod, run here: the hint goes where an application of the release would send it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from live.updater_process import ROOT, config

from cacheupdater.local.ports import free_port

pytestmark = pytest.mark.untimed

KEY = "note:7"
SEE = ROOT / "charts" / "cacheupdater" / "files" / "see.py"
WITHIN_S = 60.0
NOTES = {"note": {"key": "note:{id:int}", "load": {"python": "live.loaders:plain", "source": "code"}}}


def settings(redis_url, more):
    said = config(redis_url, {"code": {"budget": "500/s"}}, NOTES) | more
    return said | {"defaults": said["defaults"] | {"value": {"foreign": "replace"}}}


def see(updater, **environment):
    """Its exit code and what it says."""
    given = {"CACHEUPDATER_CONFIG": str(updater.file), "TEST_KEY": KEY, "TEST_TIMEOUT": "30", **environment}
    imports = os.pathsep.join(map(str, (ROOT, ROOT / "client", ROOT / "tests" / "support")))
    done = subprocess.run(
        [sys.executable, str(SEE)],
        env={**os.environ, "PYTHONPATH": imports, **given},  # noqa: TID251  a child inherits it
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_sees_a_value_arrive_by_streams_of_a_redis(updaters, redis_url):
    """It ended with an error: it took the queue's name in the log for its address."""
    queue = {"url": f"{redis_url}?stream=hints&partitions=2"}
    updater = updaters.start(settings(redis_url, {"queue": queue, "listen": None}))
    code, said = see(updater)
    assert (code, f"{KEY}: a hint was left, and string was there after" in said) == (0, True), said


def test_it_sees_a_value_arrive_by_the_service_of_the_release(updaters, redis_url):
    address = f"tcp://127.0.0.1:{free_port()}"
    updater = updaters.start(settings(redis_url, {"listen": [address]}))
    code, said = see(updater, TEST_EMIT=address)
    assert code == 0, said


def test_it_fails_where_no_updater_loads_the_key(updaters, redis_url):
    queue = {"url": f"{redis_url}?stream=hints&partitions=2"}
    updater = updaters.make(settings(redis_url, {"queue": queue, "listen": None, "admin": None}))
    code, said = see(updater, TEST_TIMEOUT="1")
    assert code == 1
    assert f"see `cacheupdater explain {KEY}`" in said
