"""The configuration of a command: from a file (`-c`), from an application's declarations (`--app`), or from both.

Every command that takes `-c` calls `configured`. With `--app`, the working directory is searched for the application's modules,
and the application's own clients emit nothing in this process: an updater must not send hints to itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from cacheupdater.config import Config
    from cacheupdater.config.load import Further

USUAL = "cacheupdater.yaml"


class Unsaid(str):
    """The file's usual name, which nobody has said: with `--app` it may be missing."""

    __slots__ = ()


def add_to(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Adds `-c` and `--app`."""
    add_file_to(parser, environ)
    parser.add_argument(
        "--app",
        metavar="MODULE:CACHE",
        help="take the values that this cacheupdater_client.Cache declares; a file is not needed, and may add and override",
    )


def add_file_to(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """Adds `-c`."""
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        default=environ.get("CACHEUPDATER_CONFIG") or Unsaid(USUAL),
        help=f"the configuration (default: $CACHEUPDATER_CONFIG, else {USUAL})",
    )


def configured(
    args: argparse.Namespace, environ: Mapping[str, str], *, further: Further | None = None
) -> Config:
    """Raises Misconfigured."""
    from cacheupdater.config import load_config

    if args.app is None:
        return load_config(args.config, environ, further=further)
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service.application import application

    look_last()
    os.environ["CACHEUPDATER_DISABLED"] = "1"  # noqa: TID251  the clients of this process read it when they are made
    file = file_of(args)
    return load_config(file, environ, app=application(args.app, environ), further=further)


def of_namespace(args: argparse.Namespace, environ: Mapping[str, str], name: str) -> Config:
    """The configuration of a command that names this namespace. Raises Misconfigured, also if there is no such namespace."""
    from cacheupdater.errors import Misconfigured

    config = configured(args, environ)
    if name not in config.namespaces:
        known = ", ".join(sorted(config.namespaces))
        raise Misconfigured(f"no namespace is called {name}; there are: {known}")
    return config


def file_of(args: argparse.Namespace) -> str | None:
    """The file that the command reads; None if there is none."""
    missing = args.app is not None and isinstance(args.config, Unsaid) and not Path(args.config).exists()
    return None if missing else str(args.config)


def said_by(args: argparse.Namespace) -> str:
    """Where the configuration comes from, for people."""
    return " and ".join(each for each in (args.app, file_of(args)) if each)
