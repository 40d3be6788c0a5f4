"""The process that updaters are forks of: `python warm_process.py SOCKET`, started by `warm.py`, whose page says why.

It imports what `run` imports and starts no thread. For each request it forks, and answers with the fork's pid. When a fork
ends, it writes how into the pipe that came with the request. The process ends when its socket closes.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # noqa: TID251  a fork has only the thread that forked; numpy would start some
del sys.path[0]  # this folder, which `python -m cacheupdater` does not search

import asyncpg  # noqa: E402, F401  these are imported late, by what the configuration asks for
import sqlalchemy.dialects.postgresql.asyncpg  # noqa: E402
import sqlalchemy.dialects.sqlite.aiosqlite  # noqa: E402, F401
import uvloop  # noqa: E402, F401

import cacheupdater.__main__ as command  # noqa: E402
import cacheupdater.service.sidecar  # noqa: E402, F401

_REQUEST_BYTES = 1 << 20
_FILES = 3  # stdout, stderr, the pipe
_TOLD = struct.Struct("=i")
_DIE_WITH_PARENT = 1  # prctl


class _Forks:
    """What the warm process knows of its forks."""

    def __init__(self, door):
        self._door, self._pipes = door, {}

    def serve(self):
        """Returns in each fork, with its request. Never returns in the warm process, which ends here."""
        bell, rung = os.pipe()
        os.set_blocking(rung, False)
        signal.set_wakeup_fd(rung)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # else nothing is written into the bell
        while True:
            ready, _, _ = select.select([self._door, bell], [], [])
            if bell in ready:
                os.read(bell, _REQUEST_BYTES)
                self._tell()
            if self._door in ready and (request := self._answer()) is not None:
                return request

    def _tell(self):
        while self._pipes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            pipe = self._pipes.pop(pid)
            os.write(pipe, _TOLD.pack(status))
            os.close(pipe)

    def _answer(self):
        said, files, _, _ = socket.recv_fds(self._door, _REQUEST_BYTES, _FILES)
        if not said:
            sys.exit(0)
        out, err, pipe = files
        pid = os.fork()
        if not pid:
            _become(out, err)
            return json.loads(said)
        self._pipes[pid] = pipe
        os.close(out)
        os.close(err)
        self._door.send(_TOLD.pack(pid))
        return None


def _become(out, err):
    """A process as `subprocess.Popen` starts it: three files, no signal handlers, killed with its parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _run(request):
    os.environ.clear()  # noqa: TID251  the environment of the updater is not that of this process
    os.environ.update(request["environment"])  # noqa: TID251
    os.chdir(request["folder"])
    sys.argv = [command.__file__, *request["arguments"]]
    return command.main()


if __name__ == "__main__":
    sys.exit(_run(_Forks(socket.socket(fileno=int(sys.argv[1]))).serve()))
