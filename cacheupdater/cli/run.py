"""`cacheupdater run`: reads its arguments and the configuration, then calls `serve` until the end."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cacheupdater.config import Config
    from cacheupdater.service.workers import Workers

LEVELS = ("debug", "info", "warning", "error")
AUTO = 0  # workers: as many as this container has cores, which `_workers` finds out
WORKERS_MAX = 256


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    text = "Run the updater. Prints one line beginning with `ready` when it accepts hints; SIGTERM drains and ends it."
    parser = commands.add_parser("run", parents=[file], help="run the updater", description=text)
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what to log on stderr (default: info)"
    )
    parser.add_argument(
        "--workers",
        type=_count,
        metavar="N|auto",
        help="how many processes share the partitions of a queue that is not memory://; auto: one per core that this container may use",
    )
    parser.add_argument(
        "--sidecar",
        action="store_true",
        help="run as one of many copies, each beside an application: refuses a configuration without fleet, for each copy would spend the whole budgets",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # NUMBER:SOCKET, from the parent of the workers
    parser.set_defaults(command=run)


def _count(text: str) -> int:
    """Imports nothing: signals have no handlers yet."""
    if text == "auto":
        return AUTO
    count = int(text)
    if not 1 <= count <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"from 1 to {WORKERS_MAX}, or auto")
    return count


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli import early

    with early.signals():
        return _run(args, environ)


def _run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from cacheupdater.cli import logs
    from cacheupdater.cli.configured import configured, file_of
    from cacheupdater.cli.serve import serve
    from cacheupdater.cli.workplace import look_last
    from cacheupdater.service.sidecar import unfit_beside_an_application

    worker, _, socket = (args.worker or "").partition(":")

    def read() -> Config:
        further = unfit_beside_an_application if args.sidecar else None
        config = configured(args, environ, further=further)
        if not worker:
            return config
        from cacheupdater.service.workers import as_worker

        return as_worker(config, int(worker), socket)

    from cacheupdater.service.reloading import Reread

    reread = Reread(read, file_of(args))
    config = read()
    logs.configure(args.log_level, sys.stderr, worker=int(worker) if worker else None)
    workers = _workers(args)
    if workers and not worker:
        return serve(_parent(args, config, workers))
    look_last()  # for Python loaders
    from cacheupdater.service import Service

    if worker:
        from cacheupdater.service.workers import lifeline

        threading.Thread(target=lifeline, name="lifeline", daemon=True).start()
    return serve(Service(config, reread, processes=1 + workers))


def _workers(args: argparse.Namespace) -> int:
    """How many workers share this container with their parent; 0: this process is alone."""
    if args.workers != AUTO:
        return args.workers or 0
    from cacheupdater.service.allowance import usable_cores

    return min(usable_cores(), WORKERS_MAX)


def _parent(args: argparse.Namespace, config: Config, workers: int) -> Workers:
    from cacheupdater.service.workers import Workers

    # -P: Python must not search the working directory first
    again = [sys.executable, "-P", "-m", "cacheupdater", "run", *_named(args)]
    again += ["--log-level", args.log_level]
    again += ["--workers", str(workers)]  # as many processes share the memory
    return Workers(config, workers, [*again, "--worker"])


def _named(args: argparse.Namespace) -> Iterator[str]:
    from cacheupdater.cli.configured import file_of

    if file := file_of(args):
        yield from ("--config", file)
    if args.app:
        yield from ("--app", args.app)
