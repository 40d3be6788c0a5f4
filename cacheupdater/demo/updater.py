"""The updater that serves three of the applications: `python -m cacheupdater run`, as an operator would start it.

The conductor starts it, asks its metrics page what it cost the database, changes its budgets, kills it in the middle, starts it again, and
stops it at the end. What a killed updater had counted is kept from the last look, so look right before the kill.
"""

from __future__ import annotations

import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.lanes import FIXED, SERVED
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.testing.children import dying_with_us

if TYPE_CHECKING:
    from pathlib import Path

_SCRAPE_TIMEOUT_S = 1.0  # it takes 5 ms
_SAMPLE = re.compile(r'^cacheupdater_(rows_total|statements_total)\{namespace="(\w+)"\} (\S+)$', re.MULTILINE)

_CONFIG = """\
version: 1
listen: ["unix://{folder}/hints.sock"]
cache: {{url: "{redis_url}"}}
admin: {{listen: "127.0.0.1:{port}"}}
sources:
"""
_SOURCE = """\
  {name}: {{url: "sqlite+aiosqlite:///{database}", budget: {budget}/s, burst: {burst:g}s, pool_size: 2}}
"""
_NAMESPACE = """\
  {name}:
    key: "{name}:product:{{id:int}}"
    load: {{source: {name}, sql: "SELECT id, version, price FROM products WHERE id IN :id"}}
    refresh: {{{refresh}}}
    ttl: {ttl}s
"""


class Cost(NamedTuple):
    """What the updater has asked of the database for one application."""

    rows: int = 0
    statements: int = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.rows + other.rows, self.statements + other.statements)

    def minus(self, other: Cost) -> Cost:
        return Cost(self.rows - other.rows, self.statements - other.statements)


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is."""

    folder: Path
    redis_url: str
    database: Path


class Updater:
    """One updater, however often it is started."""

    def __init__(self, places: Places) -> None:
        self.budget = plan.BUDGET
        """Rows per second that each application's source may cost."""
        self.every = 0.0
        """Seconds between two refreshes of `fixed`, as the updater that runs has read them."""
        self.emit = f"unix://{places.folder}/hints.sock"
        self.log = places.folder / "updater.log"
        self._port = _free_port()
        self._config = places.folder / "cacheupdater.yaml"
        self._places = places
        self._listens = False  # to signals
        self._begun_with = self.budget
        self._write()
        self._process: subprocess.Popen[bytes] | None = None
        self._before: dict[str, Cost] = {}  # of those that were killed
        self._now: dict[str, Cost] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Returns at once; `ready` says when it accepts hints. Call it from the main thread, which outlives it."""
        self._write()
        self._begun_with, self.every = self.budget, interval(self.budget)
        command = [sys.executable, "-m", "cacheupdater", "run", "-c", str(self._config)]
        with self.log.open("ab") as log:
            # a session of its own: Ctrl-C is for the conductor
            self._process = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def ready(self, within: float) -> bool:
        """Waits at most so long for its ready line. Raises if it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], within)
        if not readable:
            return False
        if not self._process.stdout.readline().startswith(b"ready"):
            raise CacheUpdaterError(
                f"the updater has ended; it says:\n{self.log.read_text('utf-8', 'replace')[-2000:]}"
            )
        self._listens = True
        if self.budget != self._begun_with:
            self._hang_up()
        return True

    def spend(self, budget: int) -> None:
        """Another budget from now on: as an operator would say it, in the file and with SIGHUP."""
        self.budget = budget
        self._write()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._process is not None and self._listens:
            self._process.send_signal(signal.SIGHUP)

    def _write(self) -> None:
        written = self._config.with_suffix(".new")
        written.write_text(_config(self._places, self._port, budget=self.budget), "utf-8")
        written.replace(self._config)  # an updater that reads it now reads either the old one or the new one

    def wait_ready(self) -> None:
        """The first start."""
        if not self.ready(plan.START_TIMEOUT_S):
            raise CacheUpdaterError(f"the updater is not ready after {plan.START_TIMEOUT_S:g} s")

    def cost(self) -> dict[str, Cost]:
        """By namespace, since the first start; as of the last time that it answered."""
        with suppress(OSError):
            self._now = self._scrape()
        none = Cost()
        return {
            lane.name: self._before.get(lane.name, none).plus(self._now.get(lane.name, none))
            for lane in SERVED
        }

    def _page(self) -> str:
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=_SCRAPE_TIMEOUT_S) as page:
            text: str = page.read().decode()
        return text

    def _scrape(self) -> dict[str, Cost]:
        samples = {(name, kind): int(float(value)) for kind, name, value in _SAMPLE.findall(self._page())}
        return {
            lane.name: Cost(
                samples.get((lane.name, "rows_total"), 0), samples.get((lane.name, "statements_total"), 0)
            )
            for lane in SERVED
        }

    def kill(self) -> None:
        """kill -9: nothing is drained, nothing handed over."""
        self._before, self._now = self.cost(), {}
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if it does not follow. Does nothing when it does not run."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._listens = False
        self._process.send_signal(number)
        try:
            self._process.wait(plan.EOF_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def _config(places: Places, port: int, *, budget: int) -> str:
    """Each application is a namespace with a source of its own, so that none takes another's rows."""
    top = _CONFIG.format(folder=places.folder, redis_url=places.redis_url, port=port)
    sources = [
        _SOURCE.format(name=lane.name, database=places.database, budget=budget, burst=plan.BURST_S)
        for lane in SERVED
    ]
    every = f"every: {round(interval(budget) * 1000)}ms"
    namespaces = [
        _NAMESPACE.format(
            name=lane.name, refresh=every if lane is FIXED else "policy: price", ttl=plan.KEEP_S
        )
        for lane in SERVED
    ]
    return "".join([top, *sources, "namespaces:\n", *namespaces])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
