"""`cacheupdater run`: reads its arguments and the configuration, then hands over to `serve` until the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

LEVELS = ("debug", "info", "warning", "error")


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Run the updater. Prints one line beginning with `ready` when it accepts hints; SIGTERM drains and ends it."
    parser = commands.add_parser("run", parents=[file], help="run the updater", description=text)
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what to log on stderr (default: info)"
    )
    parser.set_defaults(command=run)


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli import logs
    from cacheupdater.config import load_config

    config = load_config(args.config, environ)
    logs.configure(args.log_level, sys.stderr)
    # Python loaders are looked for in the working directory, as gunicorn and uvicorn do
    sys.path.insert(0, "")
    from cacheupdater.cli.serve import serve
    from cacheupdater.service import Service

    return serve(Service(config, reread=lambda: load_config(args.config, environ)))
