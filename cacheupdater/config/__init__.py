"""The configuration: the only package that reads files and takes an environment.

`load_config` makes a `Config`, from which the service is built. `ConfigErrors` names everything that is wrong at once.
These names are imported when they are first asked for: pydantic takes 12 MiB, and a collector without a file needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.config.load import load_config
    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.problems import ConfigErrors
    from cacheupdater.config.settings import Config

__all__ = ["Config", "ConfigErrors", "NamespaceSection", "SourceSection", "load_config"]

_HOMES = {
    "Config": "settings",
    "ConfigErrors": "problems",
    "NamespaceSection": "models",
    "SourceSection": "models",
    "load_config": "load",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
