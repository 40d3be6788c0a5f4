"""Whether a Python loader can exist, without importing anything: finds its module, and searches the module's text.

For `cacheupdater check`, which runs none of the user's code without `--connect`. Faults that only an import shows (a module
that raises, or that lacks a package) are left to `--connect`. Everything that is refused here, `run` refuses too.
"""

from __future__ import annotations

import ast
import re
import sys
from difflib import get_close_matches
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A module with one of these words may have names that its text does not spell
_DYNAMIC = re.compile(r"import\s*\*|__getattr__|__dict__|\b(?:globals|vars|exec|eval|setattr|modules)\b")


def import_problem(target: str) -> str:
    """What is wrong with `module:function`; empty if nothing is."""
    module, _, name = target.partition(":")
    found: ModuleSpec | None = None
    parts = module.split(".")
    for at in range(1, len(parts) + 1):
        whole = ".".join(parts[:at])
        if at > 1 and (found is None or found.submodule_search_locations is None):
            return f"{'.'.join(parts[: at - 1])} is a module and holds no module {parts[at - 1]!r}"
        path = None if found is None else list(found.submodule_search_locations or ())
        found = _spec(whole, path)
        if found is None:
            place = "the working directory or among the installed packages" if at == 1 else parts[at - 2]
            return f"there is no module {whole!r} in {place}"
    return _text_problem(module, name, found)


def _spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The spec of a module, found as `import` finds it, or the spec of a module that is already imported."""
    known = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(known, ModuleSpec):
        return known
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _text_problem(module: str, name: str, spec: ModuleSpec | None) -> str:
    """Why the module's text cannot define the name; empty if it may. A module without a text may define any name."""
    source = _source(module, spec)
    if source is None:
        return ""
    try:
        ast.parse(source)
    except SyntaxError as e:
        return f"{module} cannot be read by Python: {e.msg}, line {e.lineno}"
    if re.search(rf"\b{name}\b", source) or _DYNAMIC.search(source):
        return ""
    close = get_close_matches(name, re.findall(r"def (\w+)", source), n=1)
    return f"{module} has no {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _source(module: str, spec: ModuleSpec | None) -> str | None:
    loader = spec.loader if spec else None
    if not isinstance(loader, InspectLoader):
        return None
    try:
        return loader.get_source(module)
    except (ImportError, SyntaxError, UnicodeDecodeError):  # the import will report it
        return None
