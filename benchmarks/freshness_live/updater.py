"""An updater as an operator starts it, `cacheupdater run -c FILE`, and the two configurations that are compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from freshness_live.servers import Servers

DRAINED_S = 15.0
PAGE_S = 5.0
# the command itself, except that its page covers so many seconds of draws instead of ten minutes
_RUN = (
    "import sys; from cacheupdater.price import report; report.MEASURED_OVER = float(sys.argv.pop(1));"
    " from cacheupdater.cli import main; sys.exit(main())"
)
LIVE = "2h"  # longer than any run, so that nothing but the policy decides


def settings(
    servers: Servers, loader: str, *, budget: float, refresh: dict[str, str], feed: bool = False
) -> dict[str, object]:
    """The configuration of a lane. Lanes differ in `refresh` alone, and in whether the database tells its changes."""
    source = {"changes": "replication"} if feed else {}
    namespace = {"changes": [{"table": "items"}]} if feed else {}
    return {
        "version": 1,
        "queue": {"url": "memory://", "partitions": 1},
        "cache": {"url": servers.redis.url},
        "sources": {"main": {"url": loader, "budget": f"{budget:g}/s", "burst": "1s", **source}},
        "namespaces": {
            "item": {
                "key": "item:{id:int}",
                "load": {"source": "main", "sql": "SELECT id, version FROM items WHERE id IN :id"},
                "value": {"encoding": "string", "columns": ["version"]},
                "refresh": refresh,
                "ttl": LIVE,
                **namespace,
            }
        },
    }


class Updater:
    """One process at a time; its socket and port stay the same."""

    def __init__(self, folder: Path, told: dict[str, object], *, over: float) -> None:
        """Its page covers the reads of the last `over` seconds."""
        self._over = over
        self.emit = f"unix://{folder}/hints.sock"
        self._port = free_port()
        self._file, self._log = folder / "cacheupdater.yaml", folder / "updater.log"
        places = {"listen": [self.emit], "admin": {"listen": f"127.0.0.1:{self._port}"}}
        self._file.write_text(json.dumps({**places, **told}, indent=1), "utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Returns when it accepts hints."""
        paths = os.pathsep.join(path for path in sys.path if path)
        command = [
            sys.executable,
            "-c",
            _RUN,
            str(self._over),
            "run",
            "-c",
            str(self._file),
            "--log-level",
            "warning",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": paths},  # noqa: TID251  a child inherits it
            )
        assert self._process.stdout
        if not self._process.stdout.readline().startswith(b"ready"):
            raise RuntimeError(f"the updater does not start:\n{self.log[-2000:]}")

    def kill(self) -> None:
        """Kills it, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops it in order, if it still runs."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(DRAINED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._process = None

    def page(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=PAGE_S) as answer:
            return str(answer.read().decode())

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")
