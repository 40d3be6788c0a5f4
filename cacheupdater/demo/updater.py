"""The updater that serves three of the applications.

The conductor reads from its metrics page what it cost the database, changes its budgets, kills it and starts it again. The
counts of a killed updater are kept from the last look, so `kill` looks right before it kills.
"""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import interval
from cacheupdater.demo.lanes import FIXED, SERVED
from cacheupdater.demo.process import UpdaterProcess

if TYPE_CHECKING:
    from cacheupdater.demo.opening import Places

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
    """What the updater has loaded from the database for one application."""

    rows: int = 0
    statements: int = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.rows + other.rows, self.statements + other.statements)

    def minus(self, other: Cost) -> Cost:
        return Cost(self.rows - other.rows, self.statements - other.statements)


class Updater(UpdaterProcess):
    """One updater, however often it is started."""

    def __init__(self, places: Places) -> None:
        super().__init__(places.folder / "cacheupdater.yaml", places.folder / "updater.log")
        self.budget = plan.BUDGET
        """Rows per second that each application's source may cost."""
        self.every = 0.0
        """Seconds between two refreshes of `fixed`, as the running updater has read them from its file."""
        self.emit = f"unix://{places.folder}/hints.sock"
        self._places = places
        self._begun_with = self.budget
        self._write()
        self._before: dict[str, Cost] = {}  # of killed updaters
        self._now: dict[str, Cost] = {}

    def start(self) -> None:
        """As `launch`, with the present budget."""
        self._write()
        self._begun_with, self.every = self.budget, interval(self.budget)
        self.launch()

    def ready(self, within: float) -> bool:
        """As any updater's. If the budget changed during the start, sends SIGHUP now."""
        ready = super().ready(within)
        if ready and self.budget != self._begun_with:
            self._hang_up()
        return ready

    def spend(self, budget: int) -> None:
        """Changes the budget as an operator would: in the file and with SIGHUP."""
        self.budget = budget
        self._write()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._process is not None and self._listens:
            self._process.send_signal(signal.SIGHUP)

    def _write(self) -> None:
        written = self._config.with_suffix(".new")
        written.write_text(_config(self._places, self._port, budget=self.budget), "utf-8")
        written.replace(self._config)  # an updater that reads it now reads the old file or the new one

    def cost(self) -> dict[str, Cost]:
        """The cost by namespace since the first start, as of the updater's last answer."""
        with suppress(OSError):
            self._now = self._scrape()
        none = Cost()
        return {
            lane.name: self._before.get(lane.name, none).plus(self._now.get(lane.name, none))
            for lane in SERVED
        }

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
