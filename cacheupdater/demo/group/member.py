"""One updater of the group: a process of its own. Its log says which partitions it owns; its metrics count its refreshes.

The conductor starts two, kills one with SIGKILL in the middle and starts a third. All have the same configuration except for
the port of their admin pages.
"""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from cacheupdater.demo import plan as numbers
from cacheupdater.demo.group import plan
from cacheupdater.demo.group.books import PAGES
from cacheupdater.demo.process import UpdaterProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cacheupdater.demo.opening import Places

_OWNERSHIP = re.compile(r"partition (\d+) is (ours|handed over)")
_REFRESHES = re.compile(r"^cacheupdater_refreshes_total\{.*\} (\S+)$", re.MULTILINE)

_CONFIG = """\
version: 1
queue: {{url: "{topic}?group={group}&session_timeout={session}s"}}
cache: {{url: "{redis_url}"}}
admin: {{listen: "127.0.0.1:{port}"}}
sources:
  shop: {{url: "sqlite+aiosqlite:///{database}", budget: {budget}/s, pool_size: 2}}
namespaces:
"""
# `by` marks a value of an updater: a reader that finds nothing writes a value without it
_NAMESPACE = """\
  {name}:
    key: "{name}:product:{{id:int}}"
    load: {{source: shop, sql: "SELECT id, version, price, 'updater' AS by FROM products WHERE id IN :id"}}
    refresh: {{every: {every}ms}}
    ttl: {ttl}s
"""


class Member(UpdaterProcess):
    """One updater. Once killed, it is not started again."""

    def __init__(self, name: str, places: Places, topic: str) -> None:
        """`topic`: a kafka:// URL."""
        super().__init__(places.folder / f"{name}.yaml", places.folder / f"{name}.log")
        self.name = name
        self.owned: set[int] = set()
        """Its partitions, as of the last look at its log."""
        self.refreshes = 0
        """Refreshes since its start, as of the last look at its metrics."""
        self.rate = 0.0
        self.last_pid = 0
        self.dead = False
        self._config.write_text(_config(places, self._port, topic=topic), "utf-8")
        self._heard = 0  # bytes of the log

    def start(self) -> None:
        """As `launch`."""
        self.launch()
        self.last_pid = self.pid or 0

    def listen(self) -> None:
        """Reads from its log which partitions it won or lost since the last call. Raises if it has ended by itself."""
        if self.dead:
            return
        self.check()
        with self.log.open("rb") as log:
            log.seek(self._heard)
            said = log.read()
        whole = said[: said.rfind(b"\n") + 1]
        self._heard += len(whole)
        for number, what in _OWNERSHIP.findall(whole.decode("utf-8", "replace")):
            if what == "ours":
                self.owned.add(int(number))
            else:
                self.owned.discard(int(number))

    def measure(self, seconds: float) -> int:
        """The number of keys refreshed since the last call, which was `seconds` ago."""
        before = self.refreshes
        if not self.dead:
            with suppress(OSError):  # it is starting, or too busy: the next look counts these
                self.refreshes = sum(round(float(each)) for each in _REFRESHES.findall(self._page()))
        self.rate = (self.refreshes - before) / max(seconds, 1e-9)
        return self.refreshes - before

    def kill(self) -> set[int]:
        """kill -9: nothing is drained, nothing handed over. Returns the partitions that have no owner now."""
        self.listen()
        self._end(signal.SIGKILL)
        orphans, self.owned, self.dead = self.owned, set(), True
        return orphans


def owned(members: Iterable[Member]) -> int:
    """The number of partitions with exactly one owner; 0 while one log says more than another during a hand-over."""
    everyone = [number for member in members for number in member.owned]
    return len(set(everyone)) if len(everyone) <= plan.PARTITIONS else 0


def shared(members: Sequence[Member]) -> bool:
    """Whether each member has partitions, and each partition has an owner."""
    return owned(members) == plan.PARTITIONS and all(member.owned for member in members)


def _config(places: Places, port: int, *, topic: str) -> str:
    top = _CONFIG.format(
        topic=topic,
        group=plan.GROUP,
        session=plan.SESSION_S,
        redis_url=places.redis_url,
        port=port,
        database=places.database,
        budget=plan.BUDGET,
    )
    return top + "".join(
        _NAMESPACE.format(name=page.name, every=round(plan.EVERY_S * 1000), ttl=numbers.KEEP_S)
        for page in PAGES
    )
