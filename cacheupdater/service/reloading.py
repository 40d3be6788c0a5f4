"""The configuration changes while the updater runs: when it is read again, what is refused, and what is said of it.

The service makes one `Reloading` and runs it beside the partitions. A SIGHUP and a change of the file ask for a reload. The
file is validated whole, and a reload happens whole or not at all. What it changes is the service's business (`turnover`). A
refusal is a trouble until the next reload that is accepted.

The file is looked at once a second, and not watched by inotify: a ConfigMap changes by a symlink in another directory, an
editor replaces the file, and both look the same from here. A change counts when two looks have found it alike, so that a
file is not read while it is being written. A file that is gone changes nothing, but a restart would fail: it is refused too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable
from cacheupdater.service.difference import Difference, difference, warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

MISSED = 10  # looks in a row that find no file, before that is a trouble: a file is missing for a moment where it is replaced
LOOK_EVERY = (
    1.0  # seconds between two looks at the file; Kubernetes takes up to a minute to bring a ConfigMap
)


class NeedsRestart(Misconfigured):
    """The running updater cannot go over to this configuration; one that is started anew would use it."""

    def __init__(self, settings: tuple[str, ...]) -> None:
        super().__init__(f"{', '.join(settings)}: needs a restart")
        self.settings = settings


class Sight(NamedTuple):
    """What changes with a file, be it written, replaced, or reached by another link."""

    place: str
    inode: int
    changed_ns: int
    size: int


class Reread:
    """How the configuration is read again. Made before it is read for the first time, so that no change is missed."""

    def __init__(self, read: Callable[[], Config], file: str | None = None) -> None:
        """Without a `file`, only a request makes the configuration be read again."""
        self.read = read
        self.file = file
        self.seen = look(file) if file else None


class Running(Protocol):
    """Who runs with a configuration, and can go over to another one."""

    @property
    def config(self) -> Config: ...

    async def go_over(self, config: Config, changes: Difference) -> None:
        """Runs with this configuration from now on. Raises CacheUpdaterError, and then everything is as it was."""
        ...


class Reloading:
    """The reloads of one process."""

    def __init__(self, reread: Reread | None, observer: Observer, notices: Notices) -> None:
        """Without `reread`, a reload changes nothing."""
        self._reread = reread
        self._observer = observer
        self._notices = notices
        self._due = asyncio.Event()
        self._one = asyncio.Lock()  # reloads come one after the other
        self._next: asyncio.Future[Difference] | None = None  # of the next reload
        self._succeeded()

    def ask(self) -> None:
        """A reload is wanted. Requests that come before it begins are one reload."""
        self._due.set()

    async def outcome(self) -> Difference:
        """Asks for a reload, and waits for it. Raises CacheUpdaterError as `reload` does, and Unavailable at a start or an end.

        The reload is not the caller's: it goes on if the caller is cancelled.
        """
        if self._next is None:
            raise Unavailable("the updater starts or stops, and reads its configuration only between")
        self.ask()
        return await asyncio.shield(self._next)

    async def run(self, running: Running) -> None:
        """Until cancelled."""
        self._next = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                if self._reread is not None and self._reread.file is not None:
                    group.create_task(self._watch(self._reread.file, self._reread.seen))
                while True:
                    await self._due.wait()
                    self._due.clear()
                    outcome, self._next = self._next, asyncio.get_running_loop().create_future()
                    await self._reload_for(outcome, running)
        finally:
            self._next.cancel()
            self._next = None

    async def _reload_for(self, outcome: asyncio.Future[Difference], running: Running) -> None:
        try:
            outcome.set_result(await self.reload(running))
        except CacheUpdaterError as e:  # it is logged
            outcome.set_exception(e)
            outcome.exception()  # perhaps nobody waits
        finally:
            outcome.cancel()  # without an effect, unless the service ends meanwhile

    async def reload(self, running: Running) -> Difference:
        """Reads the configuration and goes over to it. Raises CacheUpdaterError if it is refused: then all stays as it was."""
        async with self._one:
            try:
                changes = await self._reload(running)
            except CacheUpdaterError as e:
                self._refused(e)
                raise
            self._succeeded()
            self._notices.over("reload_refused", "")
            log.info("the configuration was read again: %s", changes)
            for sentence in warnings(changes.forms):
                log.warning("%s", sentence)
            return changes

    async def _reload(self, running: Running) -> Difference:
        if self._reread is None:
            return Difference()
        # in a thread: thousands of namespaces take longer than the loop may be blocked
        config = await asyncio.to_thread(self._reread.read)
        changes = difference(running.config, config)
        if changes.restart:
            raise NeedsRestart(changes.restart)
        if changes.added or changes.changed or changes.removed:
            await running.go_over(config, changes)
        return changes

    def _succeeded(self) -> None:
        """The present configuration is that of the file, at a start as well."""
        self._observer.level("config_last_reload_successful", 1)
        now = time.time()  # noqa: TID251  the clock of whoever compares it with the file's
        self._observer.level("config_last_reload_success_timestamp_seconds", now)

    async def _watch(self, file: str, known: Sight | None) -> None:
        last, missed = known, 0
        while True:
            await asyncio.sleep(LOOK_EVERY)
            seen = await asyncio.to_thread(look, file)
            if seen is None:
                missed += 1
                if missed == MISSED:
                    self._refused(f"{file} is gone, and a restart would fail")
            elif seen == last:
                if seen != known or missed >= MISSED:
                    known = seen
                    log.info("%s has changed, and is read again", file)
                    self.ask()
                missed = 0
            last = seen

    def _refused(self, why: object) -> None:
        self._observer.level("config_last_reload_successful", 0)
        text = f"the configuration is not taken over, and everything stays as it was: {why}"
        self._notices.trouble("reload_refused", "", text)


def look(file: str) -> Sight | None:
    """The file as it is now; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116  beside realpath
        return Sight(os.path.realpath(file), found.st_ino, found.st_mtime_ns, found.st_size)
    except OSError:
        return None
