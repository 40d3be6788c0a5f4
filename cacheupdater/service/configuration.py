"""The pages about the configuration: what a running updater uses, and the wish that it read its file again.

`cacheupdater reload` asks for them. `Turnover` makes one `ConfigurationPages`, and it lives as long as the service. The pages need the
token, as `/explain` does. Passwords are not shown: `same` says of up to `SAME_MAX` settings whether the caller has the same text,
by a digest with the caller's salt.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.config.spelled import digest, spelled
from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater.service.difference import warnings
from cacheupdater.service.reloading import NeedsRestart

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from cacheupdater.config.settings import Config
    from cacheupdater.service.difference import Difference

SETTINGS, SAME, RELOAD = "/configuration", "/configuration/same", "/reload"
SAME_MAX = 30  # settings of one request: half a second of work in a thread, and 5 KiB of a request line
RELOAD_S = 25.0  # loaders are imported, and statements under way end. The admin server gives it 30


class ConfigurationPages:
    """The pages of one process."""

    def __init__(
        self, config: Callable[[], Config], reloaded: Callable[[], Awaitable[Difference]] | None = None
    ) -> None:
        """`config` returns the present one. `reloaded` reads it again; None: this process has no `RELOAD` page."""
        self._config = config
        self._reloaded = reloaded

    async def settings(self, query: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
        """The settings that are not as by default, by name."""
        del query
        # in a thread: ten thousand namespaces take longer than the loop may be blocked
        found = await asyncio.to_thread(spelled, self._config())
        return {"settings": {name: each.shown for name, each in found.items()}}

    async def same(self, query: Mapping[str, bytes]) -> dict[str, dict[str, bool]] | None:
        """Whether each setting has the text of this digest, with the query's `salt`."""
        digests = {name: said for name, said in query.items() if name != "salt"}
        if not query.get("salt") or len(digests) > SAME_MAX:
            return None
        return {"same": await asyncio.to_thread(_same, self._config(), digests, query["salt"])}

    async def reload(self, query: Mapping[str, bytes]) -> dict[str, object]:
        """Reads the file and goes over to it. The answer says what has changed, or why nothing has."""
        del query
        assert self._reloaded is not None
        try:
            async with asyncio.timeout(RELOAD_S):
                changes = await self._reloaded()
                return outcome("\n".join((str(changes), *warnings(changes.forms))), taken=True)
        except NeedsRestart as e:
            return outcome(str(e), taken=False, restart=e.settings)
        except Unavailable as e:
            return outcome(str(e), taken=None)
        except CacheUpdaterError as e:
            return outcome(str(e), taken=False)
        except TimeoutError:
            return outcome(f"still under way after {RELOAD_S:g} s; the log will say how it ends", taken=None)


def _same(config: Config, digests: Mapping[str, bytes], salt: bytes) -> dict[str, bool]:
    found = spelled(config)
    return {
        name: name in found and digest(found[name].whole, salt).encode() == said
        for name, said in digests.items()
    }


def outcome(said: str, *, taken: bool | None, restart: Iterable[str] = ()) -> dict[str, object]:
    """The page of a reload. `taken` is None if nobody knows, `restart` names the settings that need one."""
    return {"taken": taken, "said": said, "restart": list(restart)}
