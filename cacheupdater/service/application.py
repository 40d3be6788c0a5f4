"""The application that declares values, for `--app shop.caching:cache`: imported once, and asked for what it declares.

`cli` calls `application` before it reads the configuration. Django is set up first, where DJANGO_SETTINGS_MODULE names its
settings. The application's own code runs here, so whatever it raises becomes a Misconfigured that names the line.
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from traceback import extract_tb
from typing import TYPE_CHECKING

from cacheupdater import masking
from cacheupdater.adapters.address_redis import url_of
from cacheupdater.config.declared import Application
from cacheupdater.errors import Misconfigured
from cacheupdater.service.importable import import_problem
from cacheupdater_client.protocol.definitions import Defines
from cacheupdater_client.protocol.errors import Misdeclared

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORM = "write module:cache, such as shop.caching:cache"


def application(target: str, environ: Mapping[str, str]) -> Application:
    """Imports the application. Raises Misconfigured."""
    module, _, name = target.partition(":")
    if not module or not name or not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
        raise Misconfigured(f"--app {target}: {_FORM}")
    problem = import_problem(f"{module}:{name.partition('.')[0]}")
    if problem:
        raise Misconfigured(f"--app {target}: {problem}")
    found = _imported(target, module, name, django="DJANGO_SETTINGS_MODULE" in environ)
    if not isinstance(found, Defines):
        raise Misconfigured(
            f"--app {target}: {name} is of type {type(found).__name__}, and no Cache of cacheupdater_client; {_FORM}"
        )
    said = found.definitions()
    if not said.values:
        raise Misconfigured(
            f"--app {target}: the cache at {said.place} declares no value; name a module that imports those which do"
        )
    emit = environ.get("CACHEUPDATER_EMIT", "")
    listen = emit if emit.startswith(("unix://", "tcp://")) else None
    return Application(target, said, lambda: url_of(said.client), listen)


def _imported(target: str, module: str, name: str, *, django: bool) -> object:
    try:
        if django and find_spec("django") is not None:
            import_module("django").setup()
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Misdeclared as e:
        raise Misconfigured(str(e)) from e  # it begins with its file and line
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # an application may raise anything, and end the process
        frames = extract_tb(e.__traceback__)
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        raise Misconfigured(
            f"--app {target}: importing it raised {type(e).__name__}{where}: {masking.foreign(str(e))}"
        ) from e
    finally:
        _heard_again()
    return found


def _heard_again() -> None:
    """An application's logging may have turned off the loggers that it does not know."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "cacheupdater" and isinstance(logger, logging.Logger):
            logger.disabled = False
