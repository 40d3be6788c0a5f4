"""Commands as an operator gives them, `python -m cacheupdater ...`; in `make test` most of them start at once.

A start of `run` takes a second of one core. Nine tenths of that second are imports, and the suite starts hundreds of updaters. So
each worker of `make test` keeps one warm process (`warm_process.py`), which has imported all that an updater imports. A command
is a fork of the warm process, and runs the same `main`. `make prove` starts each command anew. A test that changes the
environment of Python itself also starts its command anew.

`Updater` calls `start`; tests call `run` for a command that ends by itself. The warm process lives as long as the test process,
and the forks end with the warm process. The module is a plugin of pytest, for it has to know which form of the suite runs.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from suite.pace import PATIENCE_S

from cacheupdater.local.children import dying_with_us

ROOT = Path(__file__).parents[3]
IMPORTS = os.pathsep.join(str(each) for each in (ROOT, ROOT / "client", ROOT / "tests" / "support"))
COMMAND = ("-m", "cacheupdater")
PROGRAM = Path(__file__).with_name("warm_process.py")
IMPORTS_S = 60.0  # of a busy machine; usually a second
_OF_IMPORTS = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}  # a fork imports hardly anything
_TOLD = struct.Struct("=i")
_kept = []  # this process' one warm process


def pytest_configure(config):
    Fork.allowed = sys.platform == "linux" and not config.option.prove


def surroundings(environment):
    """The environment of a command: ours, and what a test adds."""
    return {**os.environ, "PYTHONPATH": IMPORTS, **(environment or {})}  # noqa: TID251  a child inherits it


def run(*arguments, environment=None, folder=None):
    """`cacheupdater` with these arguments, to its end: its exit code and what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        said = [str(each) for each in arguments]
        process = start(said, out=out, err=err, environment=environment, folder=folder)
        code = process.wait(PATIENCE_S)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(said, code, out.read(), err.read())


def start(arguments, *, err, out=None, environment=None, folder=None):
    """`cacheupdater` with these arguments, running. `out` and `err` are files; without `out`, its stdout is a pipe."""
    if not _suits(environment or {}):
        return start_python((*COMMAND, *arguments), err=err, out=out, environment=environment, folder=folder)
    whole = surroundings(environment)
    if not _kept:
        _kept.append(_Warm(whole))
        atexit.register(_kept[0].close)
    request = {"arguments": arguments, "environment": whole, "folder": str(folder or Path.cwd())}
    if out is not None:
        return _kept[0].fork(request, out, err)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        fork = _kept[0].fork(request, pipe, err)
    fork.stdout = os.fdopen(read, "rb")
    return fork


def start_python(program, *, err, out=None, environment=None, folder=None):
    """Python with these arguments, running, and never a fork."""
    return subprocess.Popen(
        dying_with_us([sys.executable, *program]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if out is None else out,
        stderr=err,
        env=surroundings(environment),
        cwd=folder,
    )


def _suits(environment):
    """Whether a fork does what the command does. Python reads its own settings before it runs anything of ours."""
    of_python = {name for name in environment if name.startswith("PYTHON")}
    return Fork.allowed and of_python <= _OF_IMPORTS


class Fork:
    """A running command, with what tests use of a `subprocess.Popen`."""

    allowed = False  # `pytest_configure` decides; without pytest, each command is started anew

    def __init__(self, pid, ended):
        """`ended` is a pipe that becomes readable when the process has ended, and says how."""
        self.pid, self.stdout, self.returncode = pid, None, None
        self._ended = ended

    def poll(self):
        return self._look(0.0)

    def wait(self, timeout=None):
        if self._look(timeout) is None:
            raise subprocess.TimeoutExpired("cacheupdater", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _look(self, within):
        if self.returncode is None and select.select([self._ended], [], [], within)[0]:
            told = os.read(self._ended, _TOLD.size)
            os.close(self._ended)
            assert told, "the warm process has ended, and its forks with it"
            self.returncode = os.waitstatus_to_exitcode(_TOLD.unpack(told)[0])
        return self.returncode


class _Warm:
    """The warm process, and the socket to it."""

    def __init__(self, environment):
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, str(PROGRAM), str(theirs.fileno())]
            self._process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        self._door.settimeout(IMPORTS_S)

    def fork(self, request, out, err):
        ended, theirs = os.pipe()
        with os.fdopen(theirs, "wb") as pipe:
            files = [each.fileno() for each in (out, err, pipe)]
            socket.send_fds(self._door, [json.dumps(request).encode()], files)
        return Fork(_TOLD.unpack(self._door.recv(_TOLD.size))[0], ended)

    def close(self):
        self._door.close()
        self._process.wait()
