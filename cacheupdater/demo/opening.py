"""The shop as both demonstrations open it: its Redis and database, the applications, the back office, and the ledger.

The `main` of each demonstration starts updaters between these steps, and closes everything by its stack. The conductors take
the reads from it.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cacheupdater.demo.lanes import Application
from cacheupdater.demo.ledger import Ledger
from cacheupdater.demo.shop import BackOffice, build
from cacheupdater.errors import CacheUpdaterError, Misconfigured
from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis, close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack

    from cacheupdater.demo.lanes import Lane, Premises
    from cacheupdater.demo.ledger import Read, Verdict
    from cacheupdater.demo.shop import Change


@dataclass(frozen=True, slots=True)
class Places:
    """Paths and addresses."""

    folder: Path
    redis_url: str
    database: Path


def places(stack: ExitStack) -> Places:
    """A folder, a Redis and a database of our own. Misconfigured if this machine has no Redis."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cacheupdater-demo-")))
    try:
        redis = stack.enter_context(RedisServer())
    except FileNotFoundError as e:
        raise Misconfigured(str(e)) from e
    build(folder / "shop.db")
    return Places(folder, redis.url, folder / "shop.db")


class Shop:
    """The applications, each in a process, and the back office, a thread. The stack closes both."""

    office: BackOffice
    """From `open` on."""

    def __init__(self, stack: ExitStack, premises: Premises, lanes: Sequence[Lane]) -> None:
        """Starts the applications and returns at once."""
        self.applications: list[Application] = []
        self._ledger = Ledger()
        self._premises = premises
        for lane in lanes:
            self.applications.append(Application(lane, premises))
            stack.callback(self.applications[-1].close)

    def wait_ready(self) -> None:
        """Returns when all caches are warm."""
        for application in self.applications:
            application.wait_ready()

    def open(self, stack: ExitStack, *, told: Lane, follow: Callable[[Change], None]) -> float:
        """Starts the reads and the changes, which are announced to the cache of `told`. Returns the time of the opening."""
        stack.callback(partial(close, 0.1))
        cache = stack.enter_context(Redis.from_url(self._premises.redis_url, emit=self._premises.emit))
        self.office = BackOffice(
            self._premises.database,
            self._premises.seed,
            committed=self._ledger.commit,
            announce=lambda number: cache.invalidate(told.key(number)),
            follow=follow,
        )
        stack.callback(self.office.stop)
        opening = time.monotonic()
        for application in self.applications:
            application.open(opening)
        self.office.start()
        return opening

    def reads(self) -> Iterator[tuple[Lane, Read, Verdict]]:
        """The reads since the last call, each with its verdict. Raises if the back office has failed."""
        if self.office.failure is not None:
            raise CacheUpdaterError("the back office has failed") from self.office.failure
        for application in self.applications:
            for read in application.reads():
                yield application.lane, read, self._ledger.judge(read)
