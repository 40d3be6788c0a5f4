"""The working directory as a place for the user's own modules: looked at last, and for nobody but their code.

Commands that call Python loaders begin with `look_last`. It stands at the end of all finders, so what is installed wins, and
it looks at who asks: the import of a loader that the configuration names, and whatever is imported while that code runs. A
module that we or our drivers try to import and do not have is never taken from there, whoever planted one of its name.
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
# they import a loader by its name, look for its file, and call it
_CALLERS = {"cacheupdater.adapters.loader_python", "cacheupdater.service.importable"}


def look_last() -> None:
    """From here on, in the folder that is the working directory now."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Workplace)]
    with suppress(OSError):  # it has been removed, so no module lies there
        sys.meta_path.append(_Workplace(str(Path.cwd())))


class _Workplace(MetaPathFinder):
    """Asked for what nobody else has found."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._found: set[str] = set()  # top-level names that were taken from here

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002  as importlib asks
    ) -> ModuleSpec | None:
        """Only whole modules and packages: what lies in a package is found by the package's own path."""
        if path is not None or not self._for_the_user(sys._getframe(1)):  # noqa: SLF001  who asks is nowhere else
            return None
        spec = PathFinder.find_spec(fullname, [self._folder])
        if spec is not None:
            self._found.add(fullname)
        return spec

    def _for_the_user(self, asking: FrameType | None) -> bool:
        """Whether the nearest code that is not a library's is the user's, or calls the user's."""
        while asking is not None:
            module = str(asking.f_globals.get("__name__", ""))
            top = module.partition(".")[0]
            if top in self._found:
                return True
            if top in _OURS:
                return module in _CALLERS and asking.f_code.co_name != "<module>"
            asking = asking.f_back
        return False
