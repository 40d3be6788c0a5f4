"""An updater as in a restricted pod, without a container: it needs none of the refused rights, and it handles signals.

User 65534 without groups and capabilities, no new privileges, a read-only tree, a filter of system calls, process 1 of a
namespace of its own. For process 1 the kernel drops each signal that has no handler yet.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis
from containers import restricted
from live import warm
from live.updater_process import READY_S, Updater, config, eventually

from cacheupdater.local.children import dying_with_us
from cacheupdater_client import Redis

MISSING = restricted.missing()
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"user 65534, no capabilities, a read-only tree, seccomp and PID 1 need {', '.join(MISSING)}",
    ),
]
NAMESPACES = {
    "banner": {"key": "banner:{slot}", "load": {"source": "code", "python": "live.loaders:banners"}}
}
NOWHERE = "kafka://127.0.0.1:1/hints"  # workers wait for it, and that is enough of them here
STEPS = 6
STEP_S = 0.1  # a start takes half a second on a quiet machine


class Restricted(Updater):
    """Everything outside its folder is read-only."""

    writable = True

    def launch(self):
        folder = self.file.parent
        os.chown(folder, restricted.UID, restricted.UID)
        program = [sys.executable, "-m", "cacheupdater", "run", "-c", str(self.file), *self._arguments]
        command = restricted.command(*program, writable=[folder] if self.writable else [])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **warm.surroundings(self._environment),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "TMPDIR": str(folder),
                },
            )

    @property
    def first(self):
        """Process number 1, as it is numbered out here; None before there is one."""
        with suppress(psutil.NoSuchProcess, IndexError):
            return psutil.Process(self._process.pid).children()[0]

    def hears(self, number):
        """Whether it is the updater by now, and has a handler for this signal."""
        with suppress(psutil.NoSuchProcess, AttributeError, FileNotFoundError):
            said = Path(f"/proc/{self.first.pid}/status").read_text()
            caught = int(said.partition("SigCgt:")[2].split()[0], 16)
            return "cacheupdater" in self.first.cmdline() and bool(caught >> (number - 1) & 1)
        return False

    def tell(self, number):
        os.kill(self.first.pid, number)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def make(folder):
    """make(settings): one that is not started yet."""
    made = []

    def make(settings, **options):
        made.append(Restricted(folder / f"updater{len(made)}", settings, **options))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        print(f"--- log ---\n{each.log[-4000:]}")


@pytest.fixture
def settings(redis_url):
    return config(redis_url, {"code": {"budget": "1000/s"}}, NAMESPACES)


@pytest.fixture
def workers(redis_url):
    """Of a topic that cannot be reached."""
    return {
        **config(redis_url, {"code": {"budget": "1000/s"}}, NAMESPACES),
        "queue": {"url": NOWHERE},
        "listen": None,
    }


def rights(process):
    """What the kernel says of it."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    said = dict(line.split(":", 1) for line in lines)
    names = ("Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp", "NSpid")
    return {name: said[name].split() for name in names}


def test_it_serves_keeps_its_state_and_drains(make, settings, folder, redis_url):
    settings["state"] = str(folder / "updater0" / "learned")
    settings["defaults"]["refresh"] = {"policy": "price"}  # which learns
    updater = make(settings).start()
    none, nobody = ["0" * 16], [str(restricted.UID)] * 4
    said = rights(updater.first)
    assert said.pop("NSpid")[-1] == "1"
    assert said == {
        "Uid": nobody,
        "Gid": nobody,
        "Groups": [],
        "CapEff": none,
        "CapPrm": none,
        "CapBnd": none,
        "NoNewPrivs": ["1"],
        "Seccomp": ["2"],
    }
    with (
        redis.Redis.from_url(redis_url) as plain,
        Redis.from_url(redis_url, emit=updater.emit) as application,
    ):
        application.get("banner:top")
        eventually(lambda: plain.get("banner:top"))
    eventually(lambda: updater.page("/readyz")[0] == 200)
    updater.tell(signal.SIGTERM)
    assert updater.wait() == 0
    assert not updater.socket.exists()
    assert Path(settings["state"]).stat().st_uid == restricted.UID
    assert updater.complaints == []


def test_none_outlives_whoever_started_it(make, settings):
    updater = make(settings).start()
    inside = updater.first
    updater.kill()
    psutil.wait_procs([inside], timeout=READY_S)
    assert not inside.is_running()


def phases(updater, number):
    """Moments of a start, each with a name, from the first at which this signal can be heard."""
    eventually(lambda: updater.hears(number), READY_S, every=0.001)
    began = time.monotonic()
    for step in range(STEPS):
        eventually(lambda at=step: time.monotonic() - began >= at * STEP_S, every=0.001)
        yield f"{step * STEP_S:.1f} s after the first handler"
    updater.wait_ready()
    yield "ready"


@pytest.mark.prove
@pytest.mark.timeout(400)
def test_a_stop_at_each_moment_of_its_start_ends_it_with_0(make, settings):
    for wanted in range(STEPS + 1):
        updater = make(settings)
        updater.launch()
        for number, name in enumerate(phases(updater, signal.SIGTERM)):
            if number == wanted:
                updater.tell(signal.SIGTERM)
                assert updater.wait() == 0, name
                break
        assert "Traceback" not in updater.log, name


@pytest.mark.timeout(400)
def test_a_reload_at_each_moment_of_its_start_ends_it_never(make, settings):
    updater = make(settings)
    updater.launch()
    for _ in phases(updater, signal.SIGHUP):
        assert updater.hears(signal.SIGHUP)
        updater.tell(signal.SIGHUP)
    eventually(lambda: updater.page("/readyz")[0] == 200)
    updater.tell(signal.SIGTERM)
    assert updater.wait() == 0


@pytest.mark.timeout(240)
def test_workers_start_are_started_again_and_drain(make, workers):
    parent = make(workers, arguments=("--workers", "2"))
    parent.launch()
    first = eventually(lambda: parent.first, READY_S)
    both = eventually(lambda: len(found := first.children()) == 2 and found, READY_S)
    eventually(lambda: parent.hears(signal.SIGTERM))
    assert {rights(each)["Uid"][0] for each in both} == {str(restricted.UID)}
    both[0].kill()
    eventually(lambda: {each.pid for each in first.children()} - {each.pid for each in both}, READY_S)
    assert not both[0].is_running()  # nobody else would have buried it
    parent.tell(signal.SIGTERM)
    assert parent.wait() == 0
    assert "worker 0 has ended with -9" in parent.log


def test_workers_without_a_folder_for_their_sockets_end_with_78_and_a_sentence(make, workers):
    parent = make(workers, arguments=("--workers", "2"))
    parent.writable = False
    parent.launch()
    assert parent.wait(READY_S) == 78
    assert parent.log.splitlines()[-1].startswith("cacheupdater: TMPDIR: no folder for the workers' sockets")
    assert "mount one at /tmp" in parent.log


def test_a_socket_in_a_folder_that_takes_no_files_ends_with_78_and_a_sentence(make, settings):
    updater = make(settings)
    updater.writable = False
    updater.launch()
    assert updater.wait(READY_S) == 78
    last = updater.log.splitlines()[-1]
    assert last.startswith(f"cacheupdater: listen: cannot listen on {updater.emit}"), last
    assert "Read-only file system" in last
