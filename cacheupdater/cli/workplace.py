"""The working directory as a place for the user's own modules: searched last, and only for the user's code.

Commands that use Python loaders call `look_last` first. Its finder is the last of all finders, so installed modules win. The
finder answers only two kinds of import: the import of a loader that the configuration names or of the
application that `--app` names, and imports while the user's
code runs. A module that this package or a driver fails to import is never taken from the working directory, even if somebody
has put a file of its name there.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, ModuleType

_OURS = {"cacheupdater", "cacheupdater_client"}
# these modules import a loader by its name, look for its file, and call it
_CALLERS = {
    "cacheupdater.adapters.loader_python",
    "cacheupdater.service.application",
    "cacheupdater.service.declared_loader",
    "cacheupdater.service.importable",
}


def look_last() -> None:
    """Search the present working directory last, from now on."""
    before = [each for each in sys.meta_path if isinstance(each, _Workplace)]
    sys.meta_path[:] = [each for each in sys.meta_path if each not in before]
    with suppress(OSError):  # the folder has been removed, so it holds no modules
        sys.meta_path.append(_Workplace(str(Path.cwd()), *(each.found for each in before)))


class _Workplace(MetaPathFinder):
    """The last finder: Python asks it for modules that no other finder has found."""

    def __init__(self, folder: str, *found: set[str]) -> None:
        self._folder = folder
        self.found: set[str] = set().union(*found)  # top-level modules that were found here

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002  as importlib asks
    ) -> ModuleSpec | None:
        """Finds top-level modules and packages only: the modules of a package are found by the package's own path."""
        if path is not None or not self._for_the_user(sys._getframe(1)):  # noqa: SLF001  only the stack says who imports
            return None
        spec = PathFinder.find_spec(fullname, [self._folder])
        if spec is not None:
            self.found.add(fullname)
        return spec

    def _for_the_user(self, asking: FrameType | None) -> bool:
        """Whether the nearest frame that is not a library's belongs to the user's code, or to a module that calls it."""
        while asking is not None:
            module = str(asking.f_globals.get("__name__", ""))
            top = module.partition(".")[0]
            if top in self.found:
                return True
            if top in _OURS:
                return module in _CALLERS and asking.f_code.co_name != "<module>"
            asking = asking.f_back
        return False
