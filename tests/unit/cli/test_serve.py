"""The updater as a process: one ready line, a first signal drains, a second one aborts even a stuck loop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from cacheupdater.cli.serve import END_S
from cacheupdater.service import DRAIN

_PROGRAM = """
import asyncio, io, sys, time
if {without_uvloop}:
    sys.modules["uvloop"] = None
from cacheupdater.cli import logs
from cacheupdater.cli.serve import serve
from cacheupdater.errors import Misconfigured

class Service:
    async def run(self, ready, stop):
        ready("tcp://127.0.0.1:7171")
        {body}

logs.configure("info", sys.stderr)
sys.exit(serve(Service()))
"""
_DRAINS = (
    "await stop.wait(); print('drained', type(asyncio.get_running_loop()).__module__, flush=True); return 0"
)
_STUCK = "await stop.wait(); print('stuck', flush=True)\n        while True: time.sleep(0.01)"

_RESISTS = "await stop.wait(); await asyncio.Event().wait()"


@contextmanager
def service(body, *, without_uvloop=False):
    program = _PROGRAM.format(body=body, without_uvloop=without_uvloop)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("without_uvloop", "loop"), [(False, "uvloop"), (True, "asyncio.unix_events")])
def test_first_signal_drains_and_ends_with_0(number, without_uvloop, loop):
    with service(_DRAINS, without_uvloop=without_uvloop) as process:
        assert process.stdout.readline() == "ready tcp://127.0.0.1:7171\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert out == f"drained {loop}\n"
        assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("without_uvloop", [False, True])
def test_second_signal_aborts_at_once_even_when_the_loop_is_stuck(number, code, without_uvloop):
    with service(f"serve.__globals__['ECHO_S'] = 0; {_STUCK}", without_uvloop=without_uvloop) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.stdout.readline() == "stuck\n"
        start = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert process.returncode == code
        assert time.monotonic() - start < 5
        assert "aborted by a second signal" in err


def test_a_sigterm_that_reaches_the_process_twice_at_once_drains():
    """systemd tells each process of a service, and the parent of workers passes it on; `timeout` tells its group too."""
    body = (
        "serve.__globals__['ECHO_S'] = 600; await stop.wait(); signal.raise_signal(signal.SIGTERM); return 0"
    )
    with service(f"import signal; {body}") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("body", [_STUCK, _RESISTS])
def test_a_drain_that_does_not_end_is_aborted_in_time(body):
    with service(f"serve.__globals__['END_S'] = 0.3; {body}") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 70
        assert "the updater has not ended" in err


def test_a_drain_has_its_time_before_it_is_aborted():
    assert END_S >= DRAIN + 5


def test_exit_code_of_the_service_is_that_of_the_process():
    with service("return 70") as process:
        process.communicate(timeout=20)
        assert process.returncode == 70


def test_unexpected_error_is_logged_without_passwords_and_ends_with_70():
    with service("raise RuntimeError('lost redis://:c4n4ry@host\\n{forged}')") as process:
        _, err = process.communicate(timeout=20)
        assert process.returncode == 70
        lines = [json.loads(line) for line in err.splitlines()]
        assert len(lines) == 1
        assert "RuntimeError: lost redis://***" in lines[0]["exception"]


_HEAVY = """
import os, signal, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "cacheupdater.config":
            print("importing", flush=True)
            sys.stdin.read(1)
        return None

sys.meta_path.insert(0, Slow())
from cacheupdater.cli import main
sys.exit(main(["run", "-c", *sys.argv[1:]]))
"""
WORKERS = pytest.mark.parametrize("workers", [(), ("--workers", "2"), ("--workers", "auto")])


@contextmanager
def starting(tmp_path, workers):
    """An updater that has begun and is still importing."""
    file = tmp_path / "shop.yaml"
    file.write_text("version: 2\n")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", _HEAVY, str(file), *workers]
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "importing\n"
            yield process
        finally:
            process.kill()


@WORKERS
def test_a_stop_before_anything_is_imported_ends_with_0(tmp_path, workers):
    with starting(tmp_path, workers) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


@WORKERS
def test_a_reload_before_anything_is_imported_does_no_harm(tmp_path, workers):
    with starting(tmp_path, workers) as process:
        process.send_signal(signal.SIGHUP)
        _, err = process.communicate("x", timeout=20)
        assert process.returncode == 78, err  # as the file deserves


def test_a_reload_that_came_early_is_made_up_for():
    body = "await stop.wait(); return self.reloads"
    program = _PROGRAM.format(body=body, without_uvloop=False)
    program = program.replace(
        "class Service:", "class Service:\n    reloads = 0\n    def reload(self): self.reloads += 1"
    )
    program = program.replace(
        "sys.exit(serve(Service()))",
        "import os, signal\nfrom cacheupdater.cli import early\n"
        "with early.signals():\n    os.kill(os.getpid(), signal.SIGHUP)\n    sys.exit(serve(Service()))",
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready tcp://127.0.0.1:7171\n"
        process.terminate()
        assert process.wait(timeout=20) == 1
