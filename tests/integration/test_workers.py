"""`cacheupdater run --workers 2`: processes of one group on one machine, which start and end with their parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress

import psutil
import pytest
import redis
from group.rows import Rows
from group.story import PARTITIONS, QUICK_START, Group
from group.topic import Topic
from live.updater_process import DRAINED_S, eventually

from cacheupdater.service.workers import Worker
from cacheupdater_client import Redis

pytestmark = pytest.mark.untimed

TWO = ("--workers", "2")
WITHIN_S = 60.0  # two cold starts on a busy machine
AGAIN_S = (
    60.0  # until a killed worker serves again: the group waits for its session, and a start takes its time
)
KEYS = [f"item:{n}" for n in range(300)]


@pytest.fixture
def group(tmp_path, kafka, new_topic, pg_url, redis_url, updaters):
    topic = new_topic(partitions=PARTITIONS)
    return Group(
        tmp_path, updaters, queue=Topic(kafka.bootstrap, topic), rows=Rows(pg_url), redis_url=redis_url
    )


@pytest.fixture
def parent(group, updaters):
    """It runs, and so do both workers."""
    made = updaters.make(group.settings(), arguments=TWO, environment=QUICK_START)
    group.members.append(made)
    return made.start()


def workers(parent):
    """By number."""
    found = {}
    for child in psutil.Process(parent.pid).children():
        with suppress(psutil.NoSuchProcess, ValueError):
            said = child.cmdline()
            found[int(said[said.index("--worker") + 1].partition(":")[0])] = child
    return found


def serving(group, redis_url):
    """Whether keys of all partitions come into the cache by themselves, each time anew."""
    with (
        redis.Redis.from_url(redis_url) as plain,
        Redis.from_url(redis_url, emit=group.emit) as application,
    ):
        plain.delete(*KEYS)
        application.invalidate(*KEYS)
        eventually(lambda: None not in plain.mget(KEYS), WITHIN_S)


def ready(parent):
    return parent.page("/readyz")[0] == 200


def restarts(parent, number):
    return parent.metric("worker_restarts_total", worker=str(number))


def said(parent, text):
    """The lines of the log whose messages have this text."""
    lines = [json.loads(line) for line in parent.log.splitlines() if line.startswith("{")]
    return [line for line in lines if text in line["message"]]


def owned(parent):
    """Partitions by worker."""
    page = parent.page("/metrics")[1]
    return {
        number: sum(
            line.startswith("cacheupdater_done_offset{") and f'worker="{number}"' in line
            for line in page.splitlines()
        )
        for number in (0, 1)
    }


@pytest.mark.timeout(240)
def test_both_work_and_one_page_tells_of_both_and_a_dead_one_is_started_again(
    needs_apache, group, parent, redis_url
):
    eventually(lambda: ready(parent), WITHIN_S)
    serving(group, redis_url)
    eventually(lambda: all(parent.metric("hints_total", worker=str(n)) for n in (0, 1)))
    eventually(lambda: parent.metric("hints_total") == len(KEYS))  # a worker reports once a second
    eventually(lambda: sum(owned(parent).values()) >= PARTITIONS)
    page = parent.page("/metrics")[1]
    assert page.count("# TYPE cacheupdater_hints_total counter") == 1

    def names():
        return [each["name"] for each in json.loads(parent.page("/freshness")[1])["sources"]]

    eventually(lambda: names() in ([], ["main (0)", "main (1)"]))  # a worker that answers late is left out
    assert {each.get("worker") for each in said(parent, "is ours")} == {0, 1}

    killed = workers(parent)[1]
    killed.kill()
    eventually(lambda: not ready(parent))
    eventually(lambda: ready(parent), AGAIN_S, every=0.2)
    assert (restarts(parent, 0), restarts(parent, 1)) == (0, 1)
    assert workers(parent)[1].pid != killed.pid
    assert [each.get("worker") for each in said(parent, "worker 1 has ended with -9")] == [None]
    serving(group, redis_url)

    both = list(workers(parent).values())
    parent.terminate()
    assert parent.wait() == 0
    assert not any(each.is_running() for each in both)
    assert group.behind == 0  # all of it was drained, and none given up
    assert "aborted" not in parent.log


@pytest.mark.timeout(240)
def test_ctrl_c_in_the_terminal_drains_all_and_aborts_none(group, updaters, redis_url):
    """The terminal sends it to the whole foreground group."""
    alone = (
        "-c",
        "import os, runpy; os.setsid(); runpy.run_module('cacheupdater', run_name='__main__', alter_sys=True)",
    )
    parent = updaters.start(group.settings(), program=alone, arguments=TWO, environment=QUICK_START)
    group.members.append(parent)
    serving(group, redis_url)
    both = list(workers(parent).values())
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait() == 0
    assert not any(each.is_running() for each in both)
    assert "aborted" not in parent.log


@pytest.mark.timeout(240)
def test_workers_end_with_a_parent_that_was_killed(group, parent):
    both = list(workers(parent).values())
    assert len(both) == 2
    parent.kill()
    psutil.wait_procs(both, timeout=DRAINED_S)
    assert not any(each.is_running() for each in both)


@pytest.mark.timeout(240)
def test_a_stop_while_the_workers_are_starting_ends_all_with_0(group, updaters):
    parent = updaters.make(group.settings(), arguments=TWO, environment=QUICK_START)
    parent.launch()
    eventually(lambda: len(workers(parent)) == 2, WITHIN_S)
    parent.terminate()
    assert parent.wait(WITHIN_S) == 0


def test_a_memory_queue_is_refused(group, updaters):
    settings = group.settings() | {"queue": {"url": "memory://"}}
    parent = updaters.make(settings, arguments=TWO, environment=QUICK_START)
    parent.launch()
    assert parent.wait(WITHIN_S) == 78
    assert (
        "queue: memory:// belongs to one process; --workers needs a queue that processes share, such as kafka:// or sqlite://"
        in parent.log
    )


def test_a_configuration_that_only_a_worker_finds_bad_ends_all_with_78(group, updaters):
    """The parent loads nothing, so it does not know the user's loaders."""
    settings = group.settings(load={"source": "main", "python": "group.loaders:nobody"}, value={})
    parent = updaters.make(settings, arguments=TWO, environment=QUICK_START)
    parent.launch()
    assert parent.wait(WITHIN_S) == 78
    assert "nobody" in parent.log


CHATTY = """
print("x" * 300_000)
print("ready tcp://127.0.0.1:1", flush=True)
print("y" * 300_000)
raise SystemExit(3)
"""


async def test_a_worker_whose_loader_prints_long_lines_is_heard_all_the_same(tmp_path):
    worker = Worker(0, tmp_path)
    async with asyncio.timeout(WITHIN_S):
        assert await worker.live([sys.executable, "-c", CHATTY], asyncio.Event()) == 3
    assert worker.ready.is_set()
    assert worker.where == "tcp://127.0.0.1:1"
