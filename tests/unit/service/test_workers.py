"""The parent of several updaters: how it handles their starts and ends, tested without updaters."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from cacheupdater.config import load_config
from cacheupdater.errors import Misconfigured
from cacheupdater.service.workers import Worker, Workers, as_worker

WITHIN_S = 30.0  # a start of Python on a busy machine
FILE = (
    "version: 1\nqueue: {url: 'kafka://127.0.0.1:1/hints'}\ncache: {url: 'redis://127.0.0.1:1'}\n"
    "sources: {main: {budget: 1/s}}\n"
    "namespaces: {item: {key: 'item:{id:int}', load: {source: main, python: 'shop:items'}}}\n"
)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    return load_config(file, {})


def test_of_several_workers_one_listens(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(FILE + "listen: ['unix:///run/hints.sock']\n")
    config = load_config(file, {})
    assert [bool(as_worker(config, number, "/s").listen) for number in range(3)] == [True, False, False]


HOLDS_STDOUT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"])
print("ready here", child.pid, flush=True)
raise SystemExit(3)
"""


async def test_a_workers_end_is_noticed_while_a_child_of_it_holds_its_stdout(tmp_path):
    worker = Worker(0, tmp_path)
    living = asyncio.ensure_future(worker.live([sys.executable, "-c", HOLDS_STDOUT], asyncio.Event()))
    try:
        async with asyncio.timeout(WITHIN_S):
            assert await living == 3
        assert worker.where.startswith("here ")
    finally:
        living.cancel()
        if worker.where:
            os.kill(int(worker.where.split()[1]), signal.SIGKILL)


HUNG_UP = """
import os, signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: os.write(1, b"heard\\n") and sys.exit(4))
print("ready here", flush=True)
time.sleep(600)
"""


async def test_a_reload_waits_until_the_worker_can_hear_it(tmp_path):
    """SIGHUP ends a process that has no handler yet."""
    worker = Worker(0, tmp_path)
    slow = "import time\ntime.sleep(0.3)\n" + HUNG_UP
    living = asyncio.ensure_future(worker.live([sys.executable, "-c", slow], asyncio.Event()))
    async with asyncio.timeout(WITHIN_S):
        while not worker.lives:  # noqa: ASYNC110  no event says that it was started
            await asyncio.sleep(0.001)
        worker.tell(signal.SIGHUP)
        assert await living == 4


def test_a_long_tmpdir_is_a_configuration_that_cannot_work(config, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(Misconfigured, match="TMPDIR"):
        Workers(config, 2, ["/no/such/program"])
    assert list(Path(folder).iterdir()) == []


def test_no_folder_for_the_sockets_is_a_configuration_that_a_person_must_mend(config, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(
        Misconfigured,
        match=r"TMPDIR: no folder .*; name a folder that this user may write to, or mount one at /tmp",
    ):
        Workers(config, 2, ["/no/such/program"])


async def test_a_worker_that_is_down_is_told_of_each_key_for_the_key_may_be_of_its_partitions(
    config, monkeypatch, request
):
    own = {"event": "no_client", "subject": "", "text": "no client is connected"}

    async def asked(_page):
        return {0: (0, b""), 1: (200, json.dumps({"ours": False, "troubles": [own]}).encode())}

    parent = Workers(config, 2, ["/no/such/program"])
    request.addfinalizer(parent._folder.cleanup)
    monkeypatch.setattr(parent, "_asked", asked)
    assert (await parent._explain(b"item:7"))["troubles"] == [own]
    parent._notices.trouble("worker_down", "0", "worker 0 has ended with 1")
    said = await parent._explain(b"item:7")
    assert [each["event"] for each in said["troubles"]] == ["worker_down", "no_client"]


async def test_a_worker_that_is_down_is_no_concern_of_a_key_whose_owner_has_answered(
    config, monkeypatch, request
):
    async def asked(_page):
        return {0: (0, b""), 1: (200, json.dumps({"ours": True, "troubles": []}).encode())}

    parent = Workers(config, 2, ["/no/such/program"])
    request.addfinalizer(parent._folder.cleanup)
    monkeypatch.setattr(parent, "_asked", asked)
    parent._notices.trouble("worker_down", "0", "worker 0 has ended with 1")
    assert (await parent._explain(b"item:7"))["troubles"] == []


async def test_an_answer_of_a_worker_that_has_ended_meanwhile_does_not_say_that_the_next_one_runs(
    config, monkeypatch, request
):
    parent = Workers(config, 1, ["/no/such/program"])
    request.addfinalizer(parent._folder.cleanup)
    [worker] = parent._workers
    told, loop, thrice = [], asyncio.get_running_loop(), asyncio.Event()

    def fetch(_socket, _page):
        if not worker.restarts:  # it answers, and ends before the answer is read
            worker.restarts, worker.down = 1, True
        told.append((worker.serves, worker.down))
        if len(told) == 3:
            loop.call_soon_threadsafe(thrice.set)
        return 200, b"{}"

    monkeypatch.setattr("cacheupdater.service.workers.pages.fetch", fetch)
    monkeypatch.setattr("cacheupdater.service.workers.PROBE_EVERY", 0.01)
    probing = asyncio.ensure_future(parent._probe())
    try:
        async with asyncio.timeout(WITHIN_S):
            await thrice.wait()
        assert told[:3] == [(False, True), (False, True), (True, False)]
    finally:
        probing.cancel()


async def test_a_worker_that_cannot_be_started_stands_as_a_trouble_and_ends_no_other(config, caplog):
    stop = asyncio.Event()
    parent = Workers(config, 2, ["/no/such/program"])
    running = asyncio.ensure_future(parent.run(lambda _: None, stop))
    async with asyncio.timeout(WITHIN_S):
        while min(each.restarts for each in parent._workers) < 2:  # noqa: ASYNC110  polled for what shall be true
            await asyncio.sleep(0.01)
        stop.set()
        await running
    assert caplog.text.count("could not be started") == 2  # once for each, however often it was tried
    assert [each.restarts >= 2 for each in parent._workers] == [True, True]
    assert {(each["event"], each["subject"]) for each in parent.warnings()} == {
        ("worker_down", "0"),
        ("worker_down", "1"),
    }
