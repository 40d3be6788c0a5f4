"""Processes of all kinds: however they start, fork and end, each hint arrives or is counted."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request

import pytest
from hints.server import HintServer
from suite.pace import PATIENCE_S, soonest

from cacheupdater.local.ports import free_port
from cacheupdater_client.protocol.wire import CHANGE

BEGIN = """
import asyncio, os, signal, sys, threading, time
import cacheupdater_client as cu
from cacheupdater_client import Redis
from cacheupdater_client.asyncio import Redis as AsyncRedis
redis_url, emit = sys.argv[1:3]
"""
PATIENT = """
from cacheupdater_client import sender
sender.EXIT_S = sender.sender._exit_left = 60.0
"""
"""For programs that are not about the time of an exit. Hints that have not left by then are dropped and counted."""


WARNINGS = [
    "-Werror",
    "-Wignore::ResourceWarning",  # redis-py leaves the parent's sockets to the collector in a forked child
    "-Wignore:This process:DeprecationWarning",  # Python 3.12 and later at any fork beside threads, ours for one
]


@pytest.fixture
def ear(tmp_path):
    with HintServer(tmp_path / "hints.sock") as server:
        yield server


def run(program, *arguments, timeout=PATIENCE_S, says=r"", begin=BEGIN + PATIENT):
    """Runs a program in a clean interpreter; its output. `says` is what it may say on the error stream."""
    source = begin + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-c", source, *arguments],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(says, done.stderr), done.stderr
    return done.stdout


def heard(ear, expected):
    assert ear.wait_until(lambda it: it.hints() == expected), (ear.hints(), expected)


def names(*groups, size=100):
    return {f"p:{group}:{number}".encode(): 1 for group in groups for number in range(size)}


def test_exit_delivers_what_waits(ear, redis_url):
    run(
        "r = Redis.from_url(redis_url, emit=emit)\nfor n in range(100): r.get(f'p:main:{n}')",
        redis_url,
        ear.url,
    )
    heard(ear, names("main"))


def test_exit_delivers_what_an_exit_handler_reads(ear, redis_url):
    run(
        """
        import atexit
        r = Redis.from_url(redis_url, emit=emit)
        atexit.register(lambda: [r.get(f'p:exit:{n}') for n in range(100)])
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names("exit"))


def test_exit_after_an_exception_delivers(ear, redis_url):
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        for n in range(100): r.get(f'p:main:{n}')
        sys.exit(0)
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names("main"))


def test_exit_is_not_delayed_when_nobody_listens(redis_url, tmp_path):
    def delay():
        """Seconds by which it ends later than one that has nobody to tell."""
        moments = [time.monotonic()]
        for emit in (f"unix://{tmp_path}/nobody", "none"):
            run("Redis.from_url(redis_url, emit=emit).get('p:1')", redis_url, emit, begin=BEGIN)
            moments.append(time.monotonic())
        return moments[1] - moments[0] - (moments[2] - moments[1])

    soonest(delay, 0.8)


def test_threads_deliver_all(ear, redis_url):
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        def work(name):
            for n in range(100): r.get(f'p:{name}:{n}')
        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names(*range(8)))


@pytest.mark.parametrize("loops", ["asyncio.run", "uvloop.run"])
def test_event_loops_deliver_all(ear, redis_url, loops):
    run(
        f"""
        import {loops.removesuffix(".run")}
        async def main(name):
            async with AsyncRedis.from_url(redis_url, emit=emit) as r:
                await asyncio.gather(*(r.get(f'p:{{name}}:{{n}}') for n in range(100)))
        other = threading.Thread(target=lambda: {loops}(main('thread')))
        other.start()
        {loops}(main('first'))
        {loops}(main('second'))
        other.join()
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names("thread", "first", "second"))


@pytest.mark.parametrize("first", ["thread", "greenlet"])
def test_threads_and_greenlets_of_a_process_that_gevent_has_patched_deliver_all(ear, redis_url, first):
    """A greenlet in a native thread that never gives way would wait for ever: the sender is none."""
    program = """
        def work(name):
            r = Redis.from_url(redis_url, emit=emit)
            for n in range(100): r.get(f'p:{name}:{n}')
        def in_thread(): gevent.get_hub().threadpool.apply(work, ('thread',))
        def in_greenlet(): gevent.joinall([gevent.spawn(work, 'greenlet')], raise_error=True)
        for kind in (in_thread, in_greenlet) if FIRST == 'thread' else (in_greenlet, in_thread): kind()
        """.replace("FIRST", repr(first))
    source = (
        "import gevent.monkey\ngevent.monkey.patch_all()\nimport gevent\n" + BEGIN + textwrap.dedent(program)
    )
    done = subprocess.run(
        [sys.executable, "-c", source, redis_url, ear.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heard(ear, names("thread", "greenlet"))


def test_updater_that_starts_second_is_found_by_parent_and_forked_child(redis_url, tmp_path):
    program = """
        import pathlib
        from cacheupdater_client import settings
        settings.CONVENTIONAL_SOCKET = pathlib.Path(sys.argv[3])
        r = Redis.from_url(redis_url)
        r.get('p:early')
        while not any(t['trouble'] for t in cu.stats()['targets'].values()): time.sleep(0.01)
        pid = os.fork()
        name = 'parent' if pid else 'child'
        r.get('p:early')
        print(name, flush=True)
        while not any(t['delivered'] for t in cu.stats()['targets'].values()):
            r.get(f'p:{name}')
            time.sleep(0.01)
        if pid: assert os.waitpid(pid, 0)[1] == 0
        """
    path = tmp_path / "second.sock"
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(program), redis_url, "auto", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert {process.stdout.readline(), process.stdout.readline()} == {"parent\n", "child\n"}
    with HintServer(path) as second:
        assert second.wait_until(lambda it: it.hints().keys() >= {b"p:parent", b"p:child"}, 20)
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said.count("hints go nowhere: no updater listens at")) == (0, 1), said


def test_fork_in_the_middle_delivers_parents_and_childs_hints_once(ear, redis_url):
    """The parent's buffer is full of hints at the moment of the fork, and its sender is at work."""
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        for n in range(50): r.get(f'p:parent:{n}')
        children = []
        for child in range(4):
            pid = os.fork()
            if not pid:
                assert cu.stats()['emitted'] == 0
                for n in range(100): r.get(f'p:child{child}:{n}')
                sys.exit(0)
            children.append(pid)
        for n in range(50, 100): r.get(f'p:parent:{n}')
        for pid in children: assert os.waitpid(pid, 0)[1] == 0
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names("parent", "child0", "child1", "child2", "child3"))


def test_fork_leaves_the_updater_of_the_parents_memory_to_the_parent(redis_url):
    run(
        """
        from cacheupdater_client.protocol.mailbox import mailbox
        from cacheupdater_client.protocol.wire import Hello
        box = mailbox('shop')
        box.open(Hello(1, []))
        r = Redis.from_url(redis_url, emit=emit)
        r.get('p:parent')
        cu.close(60)
        pid = os.fork()
        if not pid:
            assert box.take() == []
            r.get('p:child')
            cu.close(60)
            stats = cu.stats()
            assert (stats['delivered'], stats['dropped']) == (0, {'closed': 1}), stats
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert cu.stats()['delivered'] == len(box.take()) == 1
        """,
        redis_url, "memory://shop",
    )  # fmt: skip


def test_fork_of_a_fork_delivers(ear, redis_url):
    run(
        """
        r = Redis.from_url(redis_url, emit=emit)
        def generation(number):
            for n in range(100): r.get(f'p:{number}:{n}')
            if number < 3:
                pid = os.fork()
                if not pid: generation(number + 1)
                else: assert os.waitpid(pid, 0)[1] == 0
            sys.exit(0)
        generation(0)
        """,
        redis_url, ear.url,
    )  # fmt: skip
    heard(ear, names(*range(4)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_deliver(ear, redis_url, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(
        BEGIN
        + PATIENT
        + textwrap.dedent("""
        import multiprocessing
        def work(name):
            r = Redis.from_url(redis_url, emit=emit)
            for n in range(100): r.get(f'p:{name}:{n}')
        if __name__ == '__main__':
            work('parent')
            context = multiprocessing.get_context(sys.argv[3])
            children = [context.Process(target=work, args=(n,)) for n in range(3)]
            for c in children: c.start()
            for c in children: c.join()
            assert [c.exitcode for c in children] == [0, 0, 0]
        """)
    )
    subprocess.run([sys.executable, program, redis_url, ear.url, method], check=True, timeout=60)
    heard(ear, names("parent", *range(3)))


def test_gunicorn_with_preload_and_four_workers_delivers_all(ear, redis_url, tmp_path):
    (tmp_path / "app.py").write_text(
        textwrap.dedent(f"""
        import os
        from cacheupdater_client import Redis, sender
        sender.EXIT_S = sender.sender._exit_left = 60.0
        r = Redis.from_url({redis_url!r}, emit={ear.url!r})
        r.get("p:preloaded")            # before the fork: the master's sender runs
        def app(environ, start_response):
            r.get("p:" + environ["QUERY_STRING"])
            r.set("p:worker", os.getpid())
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(os.getpid()).encode()]
        """)
    )
    port = free_port()
    command = [
        "-m",
        "gunicorn",
        "--preload",
        "-w",
        "4",
        "-b",
        f"127.0.0.1:{port}",
        "--no-control-socket",
        "app:app",
    ]
    gunicorn = subprocess.Popen([sys.executable, *command], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        workers, asked, deadline = set(), 0, time.monotonic() + PATIENCE_S
        while asked < 200 or len(workers) < 2:  # the first may be alone for long
            assert time.monotonic() < deadline, workers
            workers.add(ask(f"http://127.0.0.1:{port}/?{asked}"))
            asked += 1
    finally:
        gunicorn.send_signal(signal.SIGTERM)
        _, errors = gunicorn.communicate(timeout=60)
    assert gunicorn.returncode == 0, errors.decode()
    requests = {f"p:{number}".encode(): 1 for number in range(asked)}
    heard(ear, requests | {b"p:preloaded": 1, b"p:worker": asked})
    assert ear.hints(CHANGE) == {b"p:worker": asked}


def ask(url, timeout=PATIENCE_S):
    deadline = time.monotonic() + timeout
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def test_killed_updater_gets_the_waiting_hints_when_it_is_back(redis_url, tmp_path):
    path = tmp_path / "hints.sock"
    program = """
        r = Redis.from_url(redis_url, emit=emit)
        r.get('p:before')
        while not cu.stats()['delivered']: time.sleep(0.01)  # else it comes again
        sys.stdout.write('read\\n'); sys.stdout.flush()
        sys.stdin.readline()
        for n in range(100): r.get(f'p:during:{n}')
        sys.stdout.write('read\\n'); sys.stdout.flush()
        sys.stdin.readline()
        """
    with HintServer(path) as first:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + textwrap.dedent(program), redis_url, first.url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        process.stdout.readline()
        heard(first, {b"p:before": 1})
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.5)  # the outage itself: attempts fail, and the back-off grows
    with HintServer(path) as second:
        heard(second, names("during"))  # how soon: test_transports
        process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_nothing_listening_shows_neither_exception_nor_wait_nor_growth(redis_url, tmp_path):
    out = run(
        """
        import resource
        r = Redis.from_url(redis_url, emit=emit)
        keys = [f'p:{n}' for n in range(1000)]
        hints = r._hints
        for n in range(400_000):
            hints.touch(f'p:{n}')
        r.get('p:1')
        def read(key):
            began = time.perf_counter()
            r.get(key)
            return time.perf_counter() - began
        slowest = [max(map(read, keys)) for _ in range(5)]
        while (stats := cu.stats())['emitted'] < 405_001 or stats['waiting'] > 200_000:
            time.sleep(0.05)
        assert stats['emitted'] == 405_001 == stats['waiting'] + stats['dropped']['full'], stats
        assert stats['waiting'] <= 200_000
        print(min(slowest))  # the machine may have held up one or two of them
        """,
        redis_url, f"unix://{tmp_path}/nobody", says=r"(hints wait: unix:.*\n)?",  # where it takes long
    )  # fmt: skip
    assert float(out) < 1


def test_package_alone_loads_no_redis_and_its_names_do():
    code = """
import cacheupdater_client as cu, sys
import cacheupdater_client.outbox, cacheupdater_client.transports
assert not {'redis', 'asyncio'} & sys.modules.keys()
assert {'Redis', 'stats', 'wrap'} <= set(dir(cu))
for name in cu.__all__:
    assert getattr(cu, name) is getattr(cu, name)
assert 'redis' in sys.modules
try:
    cu.nothing
except AttributeError as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "module 'cacheupdater_client' has no attribute 'nothing'"


def test_clean_interpreter_loads_nothing_heavy():
    heavy = "{'sqlalchemy', 'aiokafka', 'prometheus_client', 'pydantic', 'uvloop', 'cacheupdater', 'orjson', 'starlette', 'django'}"
    ours = "{'cacheupdater_client.watching', 'cacheupdater_client.sqlalchemy', 'cacheupdater_client.django', 'cacheupdater_client.prometheus'}"
    code = (
        "import cacheupdater_client, cacheupdater_client.asyncio, sys; "
        f"print({heavy} & {{m.split('.')[0] for m in sys.modules}} | {ours} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
